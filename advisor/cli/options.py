"""Options that several commands accept, the parsers of their values, and their completion."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, BadParameter, Context, Option

from advisor.cli.question import choose_gpu
from advisor.errors import AdvisorError, InvalidInput
from advisor.files import units
from advisor.hardware import DEFAULT_GPU
from advisor.plan import Layouts, ObjectiveName


def to_write(word: str) -> Path:
    """Return the path `word` of a file after checking that it can be written."""
    from advisor.files.writing import writable

    writable(path := folder_to_write(word))
    return path


def folder_to_write(word: str) -> Path:
    """Return the path `word` after checking that its parent exists."""
    from advisor.files.writing import new_path

    return new_path(word)


def picture(word: str) -> Path:
    """Return the path `word` of a picture after checking that it can be written, and drawn."""
    if not word.endswith((".svg", ".png")):
        raise BadParameter(f"{word}: expected FILE.svg or FILE.png")
    return to_write(word)


def _in_units(read: Callable[[str], float]) -> Callable[[Any], float]:
    """Return `read` for an option: of words or defaults, with the option's name in its errors."""

    def quantity(word: Any) -> float:
        try:
            return read(str(word))
        except InvalidInput as error:
            raise BadParameter(str(error)) from None

    return quantity


seconds, share, euros, mebibytes, watts = map(
    _in_units, (units.seconds, units.share, units.euros, units.mebibytes, units.watts)
)
"""Parsers of options that accept units, e.g. ``2h``, ``10%``, ``"2 EUR"``."""


def pair(word: str, form: str = "NAME=VALUE") -> tuple[str, str]:
    """Return the two parts of `word`, which is written in this `form`."""
    name, equals, value = word.partition("=")
    if not equals:
        raise BadParameter(f"{word}: write {form}")
    return name, value


def in_seconds(help_text: str, *names: str) -> Any:
    """Return an option of a duration."""
    return Option(*names, metavar="SECONDS", parser=seconds, help=help_text)


def file_to_write(help_text: str, *names: str) -> Any:
    """Return an option of a file that the command writes."""
    return Option(*names, metavar="FILE", parser=to_write, help=help_text)


def above_0(word: Any) -> float:
    """Return the seconds in `word`, which must be above 0."""
    if not 0 < (value := seconds(word)) < inf:
        raise BadParameter(f"{word} is not above 0")
    return value


def cap_or_auto(word: str | None) -> tuple[float | None, bool]:
    """Return the watts of ``--power-cap WORD``, and whether each plan may choose a cap."""
    if word in (None, "auto"):
        return None, word is not None
    return watts(word), False


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


# An option whose placeholder is the name of its parameter in capitals has an explicit name: typer
# 0.27.2 prints its name in capitals, too.

Jobs = Annotated[
    list[str] | None,
    Argument(
        metavar="JOB",
        autocompletion=complete_job,
        help="NAME[:COPIES][@EPOCHS]; NAME: a profile's name or its file.",
    ),
]
JobFile = Annotated[
    Path | None, Option("--jobs", metavar="FILE", help="Read the jobs from this TOML file.")
]
GpuKey = Annotated[
    str,
    Option(
        "--gpu",
        metavar="GPU",
        callback=choose_gpu,
        autocompletion=complete_gpu,
        envvar="ADVISOR_GPU",
        show_default=False,
        help="GPU model, as `advisor gpus` lists it, or a file of `advisor init gpu`; default: the "
        f"GPU in this machine, else the one on which the jobs were profiled, else {DEFAULT_GPU}.",
    ),
]
_READ = "Read {} from this folder instead of the shipped ones."
Profiles = Annotated[
    Path | None,
    Option("--profiles", metavar="DIR", envvar="ADVISOR_PROFILES", help=_READ.format("profiles")),
]
Models = Annotated[
    Path | None,
    Option("--models", metavar="DIR", envvar="ADVISOR_MODELS", help=_READ.format("models")),
]
Calibration = Annotated[
    Path | None,
    Option(
        "--calibration",
        metavar="FILE",
        help="Use this result of `advisor calibrate`; default: your own for that GPU; none: none.",
    ),
]
CheckHost = Annotated[
    bool | None,
    Option(
        "--check-host/--no-check-host",
        envvar="ADVISOR_CHECK_HOST",
        show_default=False,
        help="Check how fast this host is, which takes a second, and predict for it; default: "
        "`run` and `validate` check, others use a check of the last 10 minutes if this machine "
        "has the GPU.",
    ),
]
HostCores = Annotated[
    int | None,
    Option(
        "--host-cores",
        metavar="N",
        min=1,
        help="Cores of each host, for the jobs of all its GPUs together; default: this machine's "
        "if it has the GPU, else no limit.",
    ),
]
HostMemory = Annotated[
    float | None,
    Option(
        "--host-memory",
        metavar="SIZE",
        parser=mebibytes,
        help="Memory of each host, as 512GiB, of which the jobs of each GPU have an equal part; "
        "default: no limit.",
    ),
]
Gpus = Annotated[
    str,
    Option(
        "--gpus",
        metavar="N|HOSTSxN|GPU:N,...",
        help="Use N equal GPUs of one host, hosts with N each, or GPUs of several models, as "
        "a100-40gb:8,h100-sxm-80gb:2x4.",
    ),
]
PowerCap = Annotated[
    float | None,
    Option(
        "--power-cap",
        metavar="WATTS",
        parser=watts,
        help="Cap the GPU's power; default: its own limit.",
    ),
]
Mig = Annotated[
    Layouts,
    Option(
        help="MIG layouts that plans may have: plain, a job on each instance; any, also several "
        "jobs on an instance, or compute instances, which were never measured."
    ),
]
Root = Annotated[
    bool,
    Option(
        "--root/--no-root", help="Allow plans that need root: to switch MIG on and make instances."
    ),
]
Pessimistic = Annotated[
    bool, Option("--pessimistic", help="Rank by the upper ends of the 90 % intervals.")
]
CapOrAuto = Annotated[
    str | None,
    Option(
        "--power-cap",
        metavar="WATTS|auto",
        help="Cap the GPU's power; auto: each plan may choose 90, 80, 70 or 60 % of its limit; "
        "default: its own limit.",
    ),
]
Effort = Annotated[
    float,
    Option(metavar="TIMES", help="Search so many times as long for many jobs or several GPUs."),
]
MemoryMargin = Annotated[
    float,
    Option(
        "--memory-margin",
        metavar="SHARE",
        parser=share,
        help="Leave this share of memory free, e.g. 0.1.",
    ),
]
Protect = Annotated[
    list[str] | None,
    Option(
        "--protect",
        metavar="NAME",
        help="Do not let sharing slow this job by more than --max-slowdown; repeatable.",
    ),
]
MaxSlowdown = Annotated[
    float | None,
    Option(
        "--max-slowdown",
        metavar="SHARE",
        parser=share,
        help="Let steps of running or protected jobs become longer by this share at most, e.g. "
        "0.1 for 10 %; default: 0.05.",
    ),
]
Objective = Annotated[
    ObjectiveName, Option("--objective", case_sensitive=False, help="Rank plans by this.")
]
Slices = Annotated[
    str | None,
    Option(
        "--slices",
        metavar="NAMES",
        help="Use only these MIG profiles, as 1g.18gb,2g.35gb; default: all.",
    ),
]
Top = Annotated[int, Option("--top", metavar="N", min=1, help="Use at most N plans.")]
Device = Annotated[
    str, Option("--device", metavar="INDEX|UUID", help="Use this GPU of the machine.")
]
Cores = Annotated[
    str | None,
    Option(
        "--cores",
        metavar="CORES",
        help="Keep all processes to these host cores, e.g. 0-15; default: all.",
    ),
]
Deadline = Annotated[
    float | None,
    Option(
        "--deadline", metavar="SECONDS", parser=above_0, help="Start nothing that would end later."
    ),
]
ProfilesOut = Annotated[
    Path | None,
    Option(
        metavar="DIR",
        parser=folder_to_write,
        help="Write to this folder of profiles; default: your own, which every command reads.",
    ),
]
DeviceOrCpu = Annotated[
    str,
    Option(
        "--device", metavar="INDEX|UUID", help="Use this GPU of the machine, or cpu to try it out."
    ),
]
OnlyGpu = Annotated[
    str | None,
    Option("--gpu", metavar="GPU", help="Refuse any other GPU model, e.g. than h200-141gb."),
]
Ray = Annotated[
    str | None,
    Option(
        "--ray",
        metavar="ADDRESS",
        help="Use the GPUs of this Ray cluster, e.g. auto, whose nodes have advisor installed.",
    ),
]
Rank = Annotated[int, Option("--rank", metavar="RANK", min=1, help="Use the plan of this rank.")]
Csv = Annotated[Path | None, file_to_write("Write a row for each plan to this file, too.", "--csv")]
AsJson = Annotated[bool, Option("--json", help="Print one JSON document.")]
Mlflow = Annotated[
    str | None,
    Option(
        "--mlflow",
        metavar="URI",
        help="Log the result to this MLflow server or sqlite:///FILE, too.",
    ),
]
