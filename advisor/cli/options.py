"""Options that several commands take, singly or in groups; and which exclude or need others."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import partial, wraps
from inspect import Parameter, signature
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from advisor.cli.output import aside
from advisor.errors import AdvisorError, InvalidInput, UnknownName
from advisor.hardware import DEFAULT_GPU
from advisor.plan import ObjectiveName

if TYPE_CHECKING:
    from advisor.api import Advisor
    from advisor.plan.forecast import HostCheckNow
    from advisor.report.mlflow_log import MlflowLog
    from advisor.workload.job import Job

    pass


def asked_gpu(context: typer.Context, word: str) -> str:
    """Key of the GPU that ``--gpu WORD`` names; without the option, of the likeliest one.

    Raises:
        InvalidInput: Several GPUs have that name, or none has.
    """
    source = context.get_parameter_source("gpu")
    if source is not None and source.name != "DEFAULT":
        return _named(word)
    key, why = _likeliest(context.params)
    if why and not _says_its_gpu(context.params):
        aside(f"no --gpu given: the answer is for {key}, {why}")
    return key


def _named(word: str) -> str:
    from advisor.hardware.gpus import gpu_meant
    from advisor.measure.device import first_gpu

    try:
        return gpu_meant(word).key
    except UnknownName:
        first_gpu()  # which keeps what the driver says of one that is not listed
        return gpu_meant(word).key


def _likeliest(given: Mapping[str, Any]) -> tuple[str, str | None]:
    """The key of the likeliest GPU, and the reason; no reason for the default."""
    from advisor.measure.device import first_gpu

    here = first_gpu()
    if here is not None:
        return here, "the GPU in this machine"
    words = given.get("jobs") or given.get("names") or [given.get("job") or ""]
    profiled_on = _profiled_on([*filter(None, words)], given.get("profiles"))
    if len(profiled_on) == 1 and DEFAULT_GPU not in profiled_on:
        return profiled_on[0], "on which the jobs were profiled"
    return DEFAULT_GPU, None


def _profiled_on(words: Sequence[str], folder: Path | None) -> list[str]:
    """Keys of the GPUs with profiles of all jobs in `words`; none without jobs."""
    from advisor.hardware.gpus import known_gpus
    from advisor.workload.store import profile_paths, profiled_gpus, read_profile

    names = [word.partition(":")[0] for word in words]
    files = [Path(name) for name in names if name.endswith(".json")]
    try:
        of_files = {read_profile(path).gpu for path in files}
        known = of_files or (set(profiled_gpus(folder)) if names else set())
        return [
            key for key in sorted(known & known_gpus().keys())
            if {*names} - {*map(str, files)} <= profile_paths(key, folder).keys()
        ]  # fmt: skip
    except AdvisorError:  # which the command itself will say more of
        return []


def _says_its_gpu(given: Mapping[str, Any]) -> bool:
    """Whether a plan file is given, which names its GPU."""
    return any(str(value).endswith(".json") for value in given.values())


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """`command` with an option for every field of its parameters that are dataclasses."""
    own = signature(command).parameters.values()
    groups: dict[str, Any] = {
        each.name: each.annotation for each in own if is_dataclass(each.annotation)
    }

    @wraps(command)
    def spread(**words: Any) -> None:
        values = {
            name: kind(**{field.name: words.pop(field.name) for field in fields(kind)})
            for name, kind in groups.items()
        }
        command(**words, **values)

    flat = [part for each in own for part in _options(each, groups)]
    spread.__signature__ = signature(command).replace(parameters=flat)  # type: ignore[attr-defined]
    return spread


def _options(parameter: Parameter, groups: dict[str, Any]) -> list[Parameter]:
    if parameter.name not in groups:
        return [parameter.replace(kind=Parameter.KEYWORD_ONLY)]
    return [
        Parameter(
            field.name, Parameter.KEYWORD_ONLY, annotation=field.type,
            default=Parameter.empty if field.default is MISSING else field.default,
        )
        for field in fields(groups[parameter.name])
    ]  # fmt: skip


Given = dict[str, str]
"""What a command line itself says, by the parameter: the option as it is typed, or the word."""


def given_in(context: typer.Context) -> Given:
    """The options on the command line of `context`, without defaults and environment."""
    said = {}
    for each in context.command.params:
        name = each.name or ""
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            argument = each.param_type_name == "argument"
            said[name] = name.upper() if argument else max(each.opts, key=len)
    return said


def apart(given: Given, one: str, others: Iterable[str], why: str) -> None:
    """Check that `one` is not given together with any of `others`.

    Raises:
        InvalidInput: It is; the message says `why` it must not be.
    """
    for other in others:
        if one in given and other in given:
            raise InvalidInput(f"{given[one]} and {given[other]} exclude each other: {why}")


def needs(given: Given, one: str, others: Mapping[str, str]) -> None:
    """Check that `one`, if given, is given with one of `others`; all are names of parameters.

    Raises:
        InvalidInput: It is given without them.
    """
    if one in given and not set(others) & set(given):
        listed = " or ".join(others.values())
        raise InvalidInput(f"{given[one]} has no effect alone. Add {listed}.")


_GPU = (
    "GPU model, as `advisor gpus` lists it; default: the GPU in this machine, else the one "
    "on which the jobs were profiled, "
    f"else {DEFAULT_GPU}."
)

Jobs = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="JOB", help="NAME[:COPIES][@EPOCHS]; NAME: a profile's name or its file."
    ),
]
JobFile = Annotated[
    Path | None, typer.Option("--jobs", metavar="FILE", help="Read the jobs from this TOML file.")
]
GpuKey = Annotated[
    str,
    typer.Option(
        "--gpu",
        metavar="GPU",
        callback=asked_gpu,
        envvar="ADVISOR_GPU",
        show_default=False,
        help=_GPU,
    ),
]
Profiles = Annotated[
    Path | None,
    typer.Option(
        "--profiles",
        metavar="DIR",
        envvar="ADVISOR_PROFILES",
        help="Read profiles from this folder instead of the shipped ones.",
    ),
]
Models = Annotated[
    Path | None,
    typer.Option(
        "--models",
        metavar="DIR",
        envvar="ADVISOR_MODELS",
        help="Read models from this folder instead of the shipped ones.",
    ),
]
Calibration = Annotated[
    Path | None,
    typer.Option(
        "--calibration",
        metavar="FILE",
        help="Use this result of `advisor calibrate`; default: your own for that GPU, else a short "
        "check of the host if it has the GPU. none: skip both.",
    ),
]
HostCores = Annotated[
    int | None,
    typer.Option(
        "--host-cores",
        metavar="N",
        min=1,
        help="Host cores for all jobs together; default: this machine's if it has the GPU, else no "
        "limit.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
By = Annotated[
    ObjectiveName,
    typer.Option("--objective", help="Rank plans by this."),
]
AUTO = "auto"


def to_write(word: str) -> Path:
    """The file or folder `word`, to be written; errors as of `new_path`."""
    from advisor.workload.writing import new_path

    return new_path(word)


def _watts(word: str) -> float:
    """The power cap in `word`, in watts.

    Raises:
        InvalidInput: It is no number; only `recommend` takes `AUTO`.
    """
    try:
        return float(word)
    except ValueError:
        alone = ", which is for `advisor recommend` alone" if word == AUTO else ""
        raise InvalidInput(f"--power-cap: expected watts, e.g. 400, got {word!r}{alone}") from None


PowerCap = Annotated[
    float | None,
    typer.Option(
        "--power-cap",
        metavar="WATTS",
        parser=_watts,
        help="Cap the GPU's power; default: its own limit.",
    ),
]
CapOrAuto = Annotated[
    str | None,
    typer.Option(
        "--power-cap",
        metavar="WATTS|auto",
        help="Cap the GPU's power; auto: each plan may choose 90, 80, 70 or 60 % of its limit; "
        "default: its own limit.",
    ),
]
Top = Annotated[int, typer.Option("--top", metavar="N", min=1, help="Use at most N plans.")]
Device = Annotated[
    str, typer.Option("--device", metavar="INDEX|UUID", help="Use this GPU of the machine.")
]


_EXAMPLES = (
    "no JOB given: the answer is for examples. Name your own jobs: `advisor profiles` lists them."
)


@dataclass(frozen=True, slots=True)
class Named:
    """Options that name the jobs."""

    jobs: Jobs = None
    job_file: JobFile = None

    def chosen(self, advisor: "Advisor", gpus: int = 1) -> "tuple[Job, ...]":
        """The jobs that they name; as `Advisor.chosen_jobs`.

        Says on stderr that they are examples, where none is named.
        """
        if not self.jobs and not self.job_file:
            aside(_EXAMPLES)
        return advisor.chosen_jobs(self.jobs, self.job_file, gpus)


@dataclass(frozen=True, slots=True)
class Files:
    """Options of the files that advice is based on."""

    profiles: Profiles = None
    models: Models = None
    calibration: Calibration = None
    host_cores: HostCores = None

    def advisor(self, gpu: str, power_cap_w: float | None = None) -> "Advisor":
        """The `Advisor` about `gpu`, for the machine at hand."""
        from advisor.api import Advisor
        from advisor.measure.device import present_machine

        present = present_machine(gpu)
        return Advisor(
            gpu, profiles=self.profiles, models=self.models, calibration=self.calibration,
            power_cap_w=power_cap_w, host_cores=self.host_cores, present=present,
            check_host=None if present is None else _host_check(gpu),
        )  # fmt: skip


def _host_check(gpu: str) -> "HostCheckNow":
    from advisor.measure.calibrate import host_now

    return partial(host_now, gpu)


def cap_w(word: str | None) -> float | None:
    """Watts in ``--power-cap WORD``; None without the option, or with `AUTO`.

    Raises:
        InvalidInput: It is neither a number nor `AUTO`.
    """
    if word in (None, AUTO):
        return None
    try:
        return float(word)
    except ValueError:
        raise InvalidInput(
            f"--power-cap: expected watts, e.g. 400, or {AUTO}, got {word!r}"
        ) from None


_WORD = "--mlflow"

Mlflow = Annotated[
    str | None,
    typer.Option(
        _WORD, metavar="URI", help="Log the result to this MLflow server or sqlite:///FILE, too."
    ),
]


def mlflow_log(uri: str | None) -> "MlflowLog | None":
    """The log at `uri`; None where `uri` is.

    Raises:
        AdvisorError: MLflow is not installed, or there is no such place.
    """
    if uri is None:
        return None
    from advisor.report.mlflow_log import MlflowLog

    return MlflowLog(uri)


def profiled_and_logged(words: Sequence[str], main: Callable[[Sequence[str]], int]) -> int:
    """Exit code of ``main(words)``, which measures; the profiles that it wrote are logged.

    Raises:
        InvalidInput: ``--mlflow`` has no URI.
        AdvisorError: As `mlflow_log`.
    """
    ends = words.index("--") if "--" in words else len(words)  # the rest is a script's
    ours, uri = _taken(list(words[:ends]), _WORD)
    log = mlflow_log(uri)
    began_s = time()
    code = main([*ours, *words[ends:]])
    if log is not None:
        from advisor.workload.store import read_profile

        for path in _written_since(began_s, _taken(ours, "--out")[1]):
            log.profile(read_profile(path))
    return code


def _taken(words: list[str], option: str) -> tuple[list[str], str | None]:
    """`words` without `option` and its value, and the value; None without the option."""
    for at, word in enumerate(words):
        if word == option:
            if at + 1 == len(words):
                raise InvalidInput(f"{option} needs a value after it.")
            return words[:at] + words[at + 2 :], words[at + 1]
        if word.startswith(f"{option}="):
            return words[:at] + words[at + 1 :], word.partition("=")[2]
    return words, None


def _written_since(began_s: float, out: str | None) -> list[Path]:
    from advisor.workload.reading import profile_files, user_folder

    folder = user_folder("profiles") if out is None else Path(out)
    places = [folder, *(each for each in folder.glob("*") if each.is_dir())]
    files = (path for place in places for path in profile_files(place))
    # Time stamps of files may lag behind the clock.
    return sorted(path for path in files if path.stat().st_mtime > began_s - 0.1)
