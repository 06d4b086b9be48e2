"""The question that the words of a command ask: its GPU, its jobs, and the advisor that answers."""

import re
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer import Context

from advisor.cli.output import aside
from advisor.errors import AdvisorError, InvalidInput, NothingFits, UnknownName
from advisor.hardware import DEFAULT_GPU
from advisor.plan import MOST_GPUS

if TYPE_CHECKING:
    from advisor.api import Advisor
    from advisor.hardware.gpus import Gpu
    from advisor.plan.rules import Conditions
    from advisor.run.mlflow import MlflowLog
    from advisor.workload.job import Job
    from advisor.workload.profile import Profile


def choose_gpu(context: Context, word: str) -> str:
    """Return the key of the GPU that ``--gpu WORD`` names; without the option, the likeliest one.

    Raises:
        InvalidInput: Several GPUs have that name, or none has.
    """
    from advisor.files.reading import located
    from advisor.hardware.gpus import gpu_meant, read_own_gpu
    from advisor.measure.device import first_gpu

    if context.resilient_parsing:  # a shell completes a word
        return word
    source = context.get_parameter_source("gpu")
    if source is not None and source.name != "DEFAULT":
        with located("ADVISOR_GPU") if source.name == "ENVIRONMENT" else nullcontext():
            try:
                return (
                    read_own_gpu(Path(word)).key if word.endswith(".toml") else gpu_meant(word).key
                )
            except UnknownName:
                first_gpu()  # adds a GPU that the catalogue lacks
                return gpu_meant(word).key
    plans, _ = plans_and_jobs(context.params.get("words") or ())
    if any(str(word).endswith(".json") for word in (*plans, context.params.get("plan"))):
        return DEFAULT_GPU  # a plan names its GPU
    key, why = first_gpu(), "the GPU in this machine"
    if key is None:
        profiled_on = _profiled_on(context.params)
        if len(profiled_on) != 1 or DEFAULT_GPU in profiled_on:
            return DEFAULT_GPU  # the answer names it
        key, why = profiled_on[0], "on which the jobs were profiled"
    aside(f"no --gpu given: the answer is for {key}, {why}")
    return key


# How the notation of a sharing begins.
_SHARING = re.compile(r"(serial|naive|mps|mig|time[-_ ]?slic\w*|\d+g[.\w]*)(?![-\w.])", re.I)


def plans_and_jobs(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the PLANs among `words`, sharings and files of plans, and the JOBs."""
    from advisor.files.reading import read_bytes
    from advisor.files.records import kind_of_file

    def is_plan(word: str) -> bool:
        if word.endswith(".json"):
            return kind_of_file(read_bytes(Path(word))) != "a profile"
        return _SHARING.match(word) is not None

    plans = [word for word in words if is_plan(word)]
    return plans, [word for word in words if word not in plans]


def _profiled_on(params: Mapping[str, Any]) -> list[str]:
    """Keys of the GPUs with profiles of all jobs in `params`; none without jobs."""
    from advisor.hardware.gpus import known_gpus
    from advisor.workload.arrivals import names_in_arrivals
    from advisor.workload.job import names_in_file, profile_in, single_words
    from advisor.workload.store import profile_paths, profiled_gpus, read_profile

    words = [*(params.get("jobs") or params.get("names") or ()), params.get("job") or ""]
    words += plans_and_jobs(params.get("words") or ())[1]
    folder = params.get("profiles")
    try:
        names = {profile_in(word) for word in single_words(filter(None, words))}
        for file in map(Path, filter(None, (params.get("job_file"), params.get("trace_in")))):
            names |= names_in_arrivals(file) if file.suffix == ".csv" else names_in_file(file)
        files = {name for name in names if name.endswith(".json")}
        keys = {read_profile(Path(name)).gpu for name in files}
        keys = keys or (set(profiled_gpus(folder)) if names else set())
        return [
            key
            for key in sorted(keys & known_gpus().keys())
            if names - files <= profile_paths(key, folder).keys()
        ]
    except AdvisorError:  # the command itself will report it
        return []


def passed(context: Context, *names: str) -> bool:
    """Return whether one of the parameters `names` is on the command line.

    Those that have their defaults, or are set by the environment, are not.
    """
    sources = map(context.get_parameter_source, names)
    return any(source is not None and source.name == "COMMANDLINE" for source in sources)


def _typed(context: Context, name: str) -> str:
    """The parameter `name` as people type it."""
    (parameter,) = (each for each in context.command.params if each.name == name)
    return parameter.opts[0] if parameter.param_type_name == "option" else name.upper()


def exclude(context: Context, one: str, *others: str, why: str) -> None:
    """Check that the parameter `one` is not passed together with any of `others`.

    Raises:
        InvalidInput: It is; the message says `why` it must not be.
    """
    for other in others:
        if passed(context, one) and passed(context, other):
            both = f"{_typed(context, one)} and {_typed(context, other)}"
            raise InvalidInput(f"{both} exclude each other: {why}")


def require(context: Context, one: str, *others: str) -> None:
    """Check that the parameter `one`, if passed, is passed with one of `others`.

    Raises:
        InvalidInput: It is not.
    """
    if passed(context, one) and not passed(context, *others):
        needed = " or ".join(_typed(context, other) for other in others)
        raise InvalidInput(f"{_typed(context, one)} has no effect alone. Add {needed}.")


def chosen_jobs(
    advisor: "Advisor", names: list[str] | None, file: Path | None, gpus: int = 1
) -> "tuple[Job, ...]":
    """Return the jobs with these names or in `file`; without either, examples, with a note."""
    if not names and not file:
        aside(
            "no JOB given: the answer is for examples. Name your own jobs: `advisor profiles` "
            "lists them."
        )
    jobs = advisor.chosen_jobs(names, file, gpus)
    ranks = [job.name for job in jobs if job.data_parallel and job.gpus == 1]
    if gpus > 1 and ranks:
        aside(
            f"data_parallel without gpus: {', '.join(dict.fromkeys(ranks))}. Each counts as one "
            f"process on one GPU. Write gpus = 2 in its [[job]] if it takes two at once."
        )
    return jobs


def protected_jobs(
    jobs: "Sequence[Job]", names: Sequence[str] | None, max_slowdown: float | None
) -> "tuple[Job, ...]":
    """Return `jobs`, whose steps may become longer by `max_slowdown` at most if `names` has them.

    Raises:
        InvalidInput: A name is of none of them, or the share is impossible.
    """
    from advisor.plan.rules import MAX_SLOWDOWN
    from advisor.workload.job import check_protection

    most = MAX_SLOWDOWN if max_slowdown is None else max_slowdown
    check_protection("--max-slowdown", most)
    for name in names or ():
        if name not in {job.name for job in jobs}:
            names_of_jobs = ", ".join(dict.fromkeys(job.name for job in jobs))
            raise InvalidInput(f"--protect {name}: no JOB has that name. Write {names_of_jobs}.")
    return tuple(replace(job, protect=most) if job.name in (names or ()) else job for job in jobs)


def confined(gpu: "Gpu", conditions: "Conditions", *, whole: bool) -> "Conditions":
    """Return `conditions` for what there is of this machine's `gpu` in MIG mode, else unchanged.

    A line prints the MIG devices. Plans for the `whole` GPU are not confined to them.

    Raises:
        NothingFits: There is no root and no MIG device, or only parts of divided instances.
    """
    from advisor.hardware.live_gpu import instances_of

    if (there := instances_of(gpu.key)) is None:
        return conditions
    index, profiles = there
    state = f"GPU {index} of this machine is in MIG mode, with {', '.join(profiles) or 'no device'}"
    profiles = tuple(name for name in profiles if name in {each.name for each in gpu.mig})
    if not profiles and not conditions.root:
        raise NothingFits(f"{state}. Have root make undivided ones, or switch MIG mode off.")
    if whole or not profiles:
        aside(
            f"{state}. Plans for the whole GPU need MIG mode off: sudo nvidia-smi -i {index} -mig "
            f"0. For plans on what is there: --no-root, or --gpu {gpu.key}-PROFILE within one."
        )
        return conditions
    aside(
        f"{state}. Plans use these as they are; their scripts take the UUIDs of `nvidia-smi -L` "
        f"as MIG_1, MIG_2, ... Not yet run on MIG hardware."
    )
    return replace(conditions, instances=profiles)


def advisor_for(
    gpu: str,
    power_cap_w: float | None,
    profiles: Path | None,
    models: Path | None,
    calibration: Path | None,
    host_cores: int | None,
) -> "Advisor":
    """Return the `Advisor` for `gpu`, which allows for this machine if it has such a GPU."""
    from advisor.api import Advisor
    from advisor.hardware.gpus import gpu_meant
    from advisor.hardware.live_gpu import as_offered_here
    from advisor.measure.device import present_machine

    present, check = present_machine(gpu), None
    if present is not None:
        from advisor.hardware.machine import recent_host_check

        check = recent_host_check()
    return Advisor(
        gpu,
        profiles=profiles,
        models=models,
        calibration=calibration,
        power_cap_w=power_cap_w,
        host_cores=host_cores,
        present=present,
        host_check=check,
        mig=as_offered_here(gpu_meant(gpu))[0].mig,
    )


def counted_gpus(gpus: str, gpu: str, context: Context, most: int = MOST_GPUS) -> tuple[int, str]:
    """Return how many GPUs `gpus` names, and the model that jobs are named on: `gpu`, or the first.

    Raises:
        InvalidInput: `gpus` is malformed, or a model is named in it and by --gpu.
    """
    from advisor.hardware.gpus import parse_gpus

    counts = parse_gpus(gpus, most)
    total = sum(each.gpus for each in counts)
    if counts[0].gpu is None:
        return total, gpu
    if passed(context, "gpu"):
        raise InvalidInput(f"--gpus {gpus} names the models of all GPUs. Leave --gpu out.")
    return total, counts[0].gpu


def on_checked_host(
    advisor: "Advisor",
    profiles: "Sequence[Profile]",
    check: bool | None,
    at_once: int | None = None,
) -> "Advisor":
    """Return `advisor` with a `check` of the host for jobs of `profiles`; False: without any check.

    None: with its recent check, if that kept as many cores busy. `at_once` jobs run at the same
    time; default: all.
    """
    at_once = len(profiles) if at_once is None else at_once
    recent = advisor.host_check
    if check is None and recent is not None and recent.busy >= min(at_once, recent.cores):
        return advisor
    if not check:
        return replace(advisor, host_check=None)
    from advisor.measure.device import check_host

    script = next(filter(None, (each.workload.script for each in profiles)), None)
    return replace(advisor, host_check=check_host(at_once, script, aside) or recent)


def mlflow_log(uri: str | None) -> "MlflowLog | None":
    """Return the log at `uri`; None if `uri` is None.

    Raises:
        AdvisorError: MLflow is not installed, or `uri` is not found.
    """
    if uri is None:
        return None
    from advisor.run.mlflow import MlflowLog

    return MlflowLog(uri)
