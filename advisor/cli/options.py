"""Options that several commands accept, the parsers of their values, and their completion."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import fields, is_dataclass
from functools import partial, wraps
from inspect import Parameter, signature
from math import inf
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, BadParameter, Context, Option

from advisor.cli.output import aside
from advisor.errors import AdvisorError, InvalidInput, UnknownName, require_extra
from advisor.files import units
from advisor.files.reading import located, read_bytes
from advisor.files.records import kind_of_file
from advisor.files.writing import new_path, writable
from advisor.hardware import DEFAULT_GPU
from advisor.hardware.gpus import gpu as find_gpu
from advisor.hardware.gpus import gpu_meant, known_gpus, read_own_gpu
from advisor.plan import Layouts, ObjectiveName


def to_write(word: str) -> Path:
    """Return the path `word` of a file after checking that it can be written."""
    writable(path := new_path(word))
    return path


def picture(word: str) -> Path:
    """Return the path `word` of a picture after checking that it can be written, and drawn."""
    if not word.endswith((".svg", ".png")):
        raise BadParameter(f"{word}: expected FILE.svg or FILE.png")
    require_extra("--plot", "page", "altair", "vl_convert")
    return to_write(word)


def _in_units(read: Callable[[str], Any]) -> Callable[[Any], Any]:
    """Return `read` for an option: of words or defaults, with the option's name in its errors."""

    def quantity(word: Any) -> Any:
        try:
            return read(str(word))
        except InvalidInput as error:
            raise BadParameter(str(error)) from None

    return quantity


seconds = _in_units(units.seconds)


def pair(word: str, form: str = "NAME=VALUE") -> tuple[str, str]:
    """Return the two parts of `word`, which is written in this `form`."""
    name, equals, value = word.partition("=")
    if not equals:
        raise BadParameter(f"{word}: expected {form}")
    return name, value


# The placeholder of a value decides how it is read, e.g. ``2h``, ``10%``, ``2 EUR``.
_PARSERS: Mapping[str, Callable[[Any], Any]] = {
    "NAME=VALUE": pair,
    "SECONDS": seconds,
    "SHARE": _in_units(units.share),
    "WATTS": _in_units(units.watts),
    "WATTS|auto": _in_units(
        lambda word: word if word == "auto" else units.watts(word, "watts such as 400, or auto")
    ),
    "MIB": _in_units(units.mebibytes),
    "SIZE": _in_units(units.mebibytes),
    "EUR_PER_GPU_HOUR": _in_units(units.euros),
}


def option(placeholder: str, help_text: str, *names: str, default: Any = None, **more: Any) -> Any:
    """Return an option with one value, which the parser for `placeholder` reads.

    Its name is that of its parameter, or `names`.
    """
    more.setdefault("parser", _PARSERS.get(placeholder))
    if placeholder == "SHARING":
        more["autocompletion"] = complete_sharing
    return Option(default, *names, metavar=placeholder, help=help_text, **more)


# Within `Annotated`, the parameter has the default.
_shared = partial(option, default=...)


def flag(help_text: str, name: str) -> Any:
    """Return an option without a value."""
    return Option(False, name, help=help_text)


def above_0(word: Any) -> float:
    """Return the seconds in `word`, which must be above 0."""
    value: float = seconds(word)
    if not 0 < value < inf:
        raise BadParameter(f"{word} is not above 0")
    return value


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Return `command` for typer, with each group of options replaced by its fields.

    A group is a dataclass whose fields are annotated as options.
    """
    parameters = signature(command).parameters
    groups = {name: each.annotation for name, each in parameters.items()}
    groups = {name: group for name, group in groups.items() if is_dataclass(group)}

    @wraps(command)
    def typed(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        command(**values)

    flat: list[Parameter] = []
    for name, parameter in parameters.items():
        members = signature(groups[name]).parameters.values() if name in groups else [parameter]
        flat += [each.replace(kind=Parameter.KEYWORD_ONLY) for each in members]
    typed.__annotations__ = {each.name: each.annotation for each in flat}
    typed.__signature__ = signature(command).replace(parameters=flat)  # type: ignore[attr-defined]
    return typed


# Completion: heavy modules stay out, and what cannot be read is passed over, for a shell waits.

_SHARINGS = ("serial", "naive", "mps", "mps=", "mps/2", "mig=")


def complete_gpu(incomplete: str) -> list[str]:
    """Return the keys of GPU models that begin with `incomplete`."""
    return _beginning(incomplete, known_gpus())


def complete_job(context: Context, incomplete: str) -> list[str]:
    """Return the names of profiles that begin with `incomplete`, on the chosen GPU or on any."""
    from advisor.workload.store import profile_paths, profiled_gpus

    names: Iterable[str] = ()
    folder = context.params.get("profiles")
    with suppress(AdvisorError, OSError):
        names = profile_paths(_gpu(context), folder)
        names = names or {name for key in profiled_gpus(folder) for name in profile_paths(key)}
    return _beginning(incomplete, sorted(names))


def complete_sharing(context: Context, incomplete: str) -> list[str]:
    """Return the ways to share that begin with `incomplete`, or MIG profiles to go on with."""
    if not incomplete.startswith("mig="):
        return _beginning(incomplete, _SHARINGS)
    with suppress(AdvisorError):
        before = incomplete[: max(incomplete.rfind(sign) for sign in "=,+") + 1]
        return _beginning(incomplete, [before + each.name for each in find_gpu(_gpu(context)).mig])
    return []


def complete_plan(incomplete: str) -> list[str]:
    """Return the JSON files that begin with `incomplete`, in the folder that it names, or here."""
    folder, _, name = incomplete.rpartition("/")
    with suppress(OSError):
        files = Path(folder or ("/" if "/" in incomplete else ".")).glob("*.json")
        place = incomplete.removesuffix(name)
        return sorted(place + each.name for each in files if each.name.startswith(name))
    return []


def complete_plan_or_job(context: Context, incomplete: str) -> list[str]:
    """Return the plans and jobs that begin with `incomplete`; jobs may follow two plans."""
    plans = complete_sharing(context, incomplete) + complete_plan(incomplete)
    return plans + complete_job(context, incomplete)


def _gpu(context: Context) -> str:
    """The key of the GPU that is chosen so far; the default if there is none, or an unclear one."""
    with suppress(AdvisorError):
        return gpu_meant(str(context.params.get("gpu") or DEFAULT_GPU)).key
    return DEFAULT_GPU


def _beginning(incomplete: str, words: Iterable[str]) -> list[str]:
    return [word for word in words if word.startswith(incomplete)]


def choose_gpu(context: Context, word: str) -> str:
    """Return the key of the GPU that ``--gpu WORD`` names; without the option, the likeliest one.

    Raises:
        InvalidInput: Several GPUs have that name, or none has.
    """
    from advisor.hardware.live_gpu import first_gpu

    if context.resilient_parsing:  # a shell completes a word
        return word
    source = context.get_parameter_source("gpu")
    if source is not None and source.name != "DEFAULT":
        with located("ADVISOR_GPU") if source.name == "ENVIRONMENT" else nullcontext():
            try:
                return (read_own_gpu(Path(word)) if word.endswith(".toml") else gpu_meant(word)).key
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

    def is_plan(word: str) -> bool:
        if word.endswith(".json"):
            return kind_of_file(read_bytes(Path(word))) != "a profile"
        return _SHARING.match(word) is not None

    plans = [word for word in words if is_plan(word)]
    return plans, [word for word in words if word not in plans]


def _profiled_on(params: Mapping[str, Any]) -> list[str]:
    """Return the keys of the GPUs with profiles of all jobs in `params`; none without jobs."""
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


Jobs = Annotated[
    list[str] | None,
    Argument(
        metavar="JOB...",
        autocompletion=complete_job,
        help="NAME[:COPIES][@EPOCHS]; NAME: a profile's name or its file.",
    ),
]
JobFile = Annotated[Path | None, _shared("FILE", "Read the jobs from this TOML file.", "--jobs")]
GpuKey = Annotated[
    str,
    _shared(
        "GPU",
        "Answer for this GPU model, as `advisor gpus` lists it, or for a file of `advisor init "
        "gpu`; default: the GPU in this machine, else the one on which the jobs were profiled, "
        f"else {DEFAULT_GPU}.",
        callback=choose_gpu,
        autocompletion=complete_gpu,
        envvar="ADVISOR_GPU",
        show_default=False,
    ),
]
_READ = "Read {} from this folder instead of the shipped ones."
Profiles = Annotated[
    Path | None, _shared("DIR", _READ.format("profiles"), "--profiles", envvar="ADVISOR_PROFILES")
]
Models = Annotated[Path | None, _shared("DIR", _READ.format("models"), envvar="ADVISOR_MODELS")]
CheckHost = Annotated[
    bool | None,
    Option(
        "--check-host/--no-check-host",
        envvar="ADVISOR_CHECK_HOST",
        show_default=False,
        help="Check how fast this host is, for a second, and predict for it; default: `run` and "
        "`validate` check; the others use a check of the last 10 minutes if this machine has "
        "the GPU.",
    ),
]
Gpus = Annotated[
    str,
    _shared(
        "N|HOSTSxN|GPU:N,...",
        "Use N equal GPUs of one host, hosts with N each, or GPUs of several models, as "
        "a100-40gb:8,h100-sxm-80gb:2x4.",
    ),
]
PowerCap = Annotated[float | None, _shared("WATTS", "Cap the GPU's power; default: its own limit.")]
Mig = Annotated[
    Layouts,
    Option(
        help="Allow these MIG layouts; plain: one job at a time on each instance; any: also "
        "several jobs on an instance, and compute instances, which were never measured."
    ),
]
Root = Annotated[
    bool, Option(help="Allow plans that need root: to switch MIG on and make instances.")
]
Pessimistic = Annotated[
    bool, Option("--pessimistic", help="Rank by the upper ends of the 90 % intervals.")
]
MemoryMargin = Annotated[float, _shared("SHARE", "Leave this share of memory free, e.g. 0.1.")]
ShareLoader = Annotated[
    bool,
    Option(
        "--share-loader",
        help="Give jobs that run at the same time one data loader.",
    ),
]
Protect = Annotated[
    list[str] | None,
    _shared("NAME", "Do not let sharing slow this job by more than --max-slowdown; repeatable."),
]
MaxSlowdown = Annotated[
    float | None,
    _shared(
        "SHARE",
        "Allow steps of running or protected jobs to become longer by this share, e.g. 0.1 for 10 "
        "%; default: 0.05.",
    ),
]
Objective = Annotated[ObjectiveName, Option(case_sensitive=False, help="Rank plans by this.")]
Slices = Annotated[
    str | None,
    _shared("NAMES", "Use only these MIG profiles, as 1g.18gb,2g.35gb; default: all."),
]
Top = Annotated[int, _shared("N", "Use at most N plans.", min=1)]
Device = Annotated[str, _shared("INDEX|UUID", "Use this GPU of the machine.")]
Cores = Annotated[
    str | None,
    _shared("CORES", "Keep all processes to these host cores, e.g. 0-15; default: all."),
]
Deadline = Annotated[
    float | None, _shared("SECONDS", "Start no measurement that would end later.", parser=above_0)
]
ProfilesOut = Annotated[
    Path | None,
    _shared(
        "DIR",
        "Write to this folder of profiles; default: your own, which every command reads.",
        parser=new_path,
    ),
]
DeviceOrCpu = Annotated[
    str, _shared("INDEX|UUID", "Use this GPU of the machine, or cpu to try it out.")
]
OnlyGpu = Annotated[
    str | None, _shared("GPU", ("Refuse every GPU model but this one, e.g. h200-141gb."))
]
Ray = Annotated[
    str | None,
    _shared(
        "ADDRESS",
        (
            "Use the GPUs of the Ray cluster at this address, e.g. auto; its nodes need advisor "
            "installed."
        ),
    ),
]
Rank = Annotated[int, _shared("RANK", "Use the plan of this rank.", min=1)]
Csv = Annotated[
    Path | None,
    _shared("FILE", "Also write a row for each plan to this file.", "--csv", parser=to_write),
]
AsJson = Annotated[bool, Option("--json", help="Print one JSON document.")]
Mlflow = Annotated[
    str | None, _shared("URI", "Also log the result to this MLflow server or sqlite:///FILE.")
]
