"""Words that a shell offers: jobs, GPUs, sharings and plan files.

Heavy modules stay out, and what cannot be read is passed over: a shell waits for the words.
"""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from typer import Context

from advisor.errors import AdvisorError
from advisor.hardware import DEFAULT_GPU

_SHARINGS = ("serial", "naive", "mps", "mps=", "mps/2", "mig=")


def complete_gpu(incomplete: str) -> list[str]:
    """Return the keys of GPU models that begin so."""
    from advisor.hardware.gpus import known_gpus

    return _beginning(incomplete, known_gpus())


def complete_job(context: Context, incomplete: str) -> list[str]:
    """Return the names of profiles of the chosen GPU that begin so; of any GPU if it has none."""
    from advisor.workload.store import profile_paths, profiled_gpus

    names: Iterable[str] = ()
    folder = context.params.get("profiles")
    with suppress(AdvisorError, OSError):
        names = profile_paths(_gpu(context), folder)
        names = names or {name for key in profiled_gpus(folder) for name in profile_paths(key)}
    return _beginning(incomplete, sorted(names))


def complete_sharing(context: Context, incomplete: str) -> list[str]:
    """Return the ways to share that begin so, or the MIG profiles for the next instance."""
    from advisor.hardware.gpus import gpu

    if not incomplete.startswith("mig="):
        return _beginning(incomplete, _SHARINGS)
    with suppress(AdvisorError):
        before = incomplete[: max(incomplete.rfind(sign) for sign in "=,+") + 1]
        return _beginning(incomplete, [before + each.name for each in gpu(_gpu(context)).mig])
    return []


def complete_plan(incomplete: str) -> list[str]:
    """Return the JSON files that begin so, in the folder that `incomplete` names, or here."""
    folder, _, name = incomplete.rpartition("/")
    with suppress(OSError):
        files = Path(folder or ("/" if "/" in incomplete else ".")).glob("*.json")
        place = incomplete.removesuffix(name)
        return sorted(place + each.name for each in files if each.name.startswith(name))
    return []


def complete_plan_or_job(context: Context, incomplete: str) -> list[str]:
    """Return the plans that begin so, and the jobs, which may follow two plans."""
    plans = complete_sharing(context, incomplete) + complete_plan(incomplete)
    return plans + complete_job(context, incomplete)


def _gpu(context: Context) -> str:
    """The key of the GPU that is chosen so far; the default if there is none, or an unclear one."""
    from advisor.hardware.gpus import gpu_meant

    with suppress(AdvisorError):
        return gpu_meant(str(context.params.get("gpu") or DEFAULT_GPU)).key
    return DEFAULT_GPU


def _beginning(incomplete: str, words: Iterable[str]) -> list[str]:
    return [word for word in words if word.startswith(incomplete)]
