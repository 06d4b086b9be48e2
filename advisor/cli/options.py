"""Options that several commands accept, and checks of which exclude or need others."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, BadParameter, Context, Option

from advisor.cli.completion import complete_gpu, complete_job
from advisor.cli.output import aside
from advisor.errors import AdvisorError, InvalidInput, NothingFits, UnknownName
from advisor.hardware import DEFAULT_GPU
from advisor.plan import MOST_GPUS, Layouts, ObjectiveName
from advisor.workload import units

if TYPE_CHECKING:
    from advisor.api import Advisor
    from advisor.hardware.gpus import Gpu
    from advisor.plan.rules import Conditions
    from advisor.report.mlflow_log import MlflowLog
    from advisor.workload.job import Job
    from advisor.workload.profile import Profile

AUTO = "auto"
"""Value of ``--power-cap`` that lets each plan choose a cap."""


def choose_gpu(context: Context, word: str) -> str:
    """Return the key of the GPU that ``--gpu WORD`` names; without the option, the likeliest one.

    Raises:
        InvalidInput: Several GPUs have that name, or none has.
    """
    from advisor.hardware.gpus import gpu_meant, read_own_gpu
    from advisor.measure.device import first_gpu
    from advisor.workload.reading import located

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
    from advisor.workload.file_kinds import kind_of_file
    from advisor.workload.reading import read_bytes

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


def to_write(word: str) -> Path:
    """Return the path `word` of a file after checking that it can be written."""
    from advisor.workload.writing import writable

    writable(path := folder_to_write(word))
    return path


def folder_to_write(word: str) -> Path:
    """Return the path `word` after checking that its parent exists."""
    from advisor.workload.writing import new_path

    return new_path(word)


def picture(word: str) -> Path:
    """Return the path `word` of a picture after checking that it can be written, and drawn."""
    if not word.endswith((".svg", ".png")):
        raise BadParameter(f"{word}: expected FILE.svg or FILE.png")
    return to_write(word)


def watts(word: str) -> float:
    """Return the power cap in `word`."""
    try:
        return units.watts(word)
    except InvalidInput as error:
        alone = f"; {AUTO} is for `advisor recommend` alone" if word == AUTO else ""
        raise InvalidInput(f"--power-cap: {error}{alone}") from None


def _in_units(read: Callable[[str], float]) -> Callable[[Any], float]:
    """Return `read` for an option: of words or defaults, with the option's name in its errors."""

    def quantity(word: Any) -> float:
        try:
            return read(str(word))
        except InvalidInput as error:
            raise BadParameter(str(error)) from None

    return quantity


seconds, share, euros, mebibytes = map(
    _in_units, (units.seconds, units.share, units.euros, units.mebibytes)
)
"""Parsers of options that accept units, e.g. ``2h``, ``10%``, ``"2 EUR"``."""


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
Profiles = Annotated[
    Path | None,
    Option(
        "--profiles",
        metavar="DIR",
        envvar="ADVISOR_PROFILES",
        help="Read profiles from this folder instead of the shipped ones.",
    ),
]
Models = Annotated[
    Path | None,
    Option(
        "--models",
        metavar="DIR",
        envvar="ADVISOR_MODELS",
        help="Read models from this folder instead of the shipped ones.",
    ),
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
AsJson = Annotated[bool, Option("--json", help="Print one JSON document.")]
Mlflow = Annotated[
    str | None,
    Option(
        "--mlflow",
        metavar="URI",
        help="Log the result to this MLflow server or sqlite:///FILE, too.",
    ),
]


def passed_options(context: Context) -> dict[str, str]:
    """Return the options on the command line as they are typed, by the names of their parameters.

    Those that have their defaults, or are set by the environment, are left out.
    """
    passed = {}
    for parameter in context.command.params:
        name = parameter.name or ""
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            argument = parameter.param_type_name == "argument"
            passed[name] = name.upper() if argument else max(parameter.opts, key=len)
    return passed


def exclude(passed: Mapping[str, str], one: str, others: Iterable[str], why: str) -> None:
    """Check that the parameter `one` is not passed together with any of `others`.

    Raises:
        InvalidInput: It is; the message says `why` it must not be.
    """
    for other in others:
        if one in passed and other in passed:
            raise InvalidInput(f"{passed[one]} and {passed[other]} exclude each other: {why}")


def require(passed: Mapping[str, str], one: str, others: Mapping[str, str]) -> None:
    """Check that the parameter `one`, if passed, is passed with one of `others`.

    Raises:
        InvalidInput: It is not.
    """
    if one in passed and not set(others) & set(passed):
        raise InvalidInput(
            f"{passed[one]} has no effect alone. Add {' or '.join(others.values())}."
        )


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
        from advisor.workload.store import recent_host_check

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
    if "gpu" in passed_options(context):
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
    from advisor.measure.host_check import check_host

    script = next(filter(None, (each.workload.script for each in profiles)), None)
    return replace(advisor, host_check=check_host(at_once, script, aside) or recent)


def mlflow_log(uri: str | None) -> "MlflowLog | None":
    """Return the log at `uri`; None if `uri` is None.

    Raises:
        AdvisorError: MLflow is not installed, or `uri` is not found.
    """
    if uri is None:
        return None
    from advisor.report.mlflow_log import MlflowLog

    return MlflowLog(uri)
