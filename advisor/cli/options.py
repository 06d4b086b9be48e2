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
    from advisor.report.mlflow_log import MlflowLog
    from advisor.workload.job import Job


def choose_gpu(context: typer.Context, word: str) -> str:
    """Return the key of the GPU that ``--gpu WORD`` names; without the option, the likeliest one.

    Raises:
        InvalidInput: Several GPUs have that name, or none has.
    """
    from advisor.hardware.gpus import gpu_meant
    from advisor.measure.device import first_gpu

    source = context.get_parameter_source("gpu")
    if source is not None and source.name != "DEFAULT":
        try:
            return gpu_meant(word).key
        except UnknownName:
            first_gpu()  # adds a GPU that the catalogue lacks
            return gpu_meant(word).key
    params = context.params
    key, why = first_gpu(), "the GPU in this machine"
    if key is None:
        words = params.get("jobs") or params.get("names") or [params.get("job") or ""]
        profiled_on = _profiled_on([*filter(None, words)], params.get("profiles"))
        if len(profiled_on) != 1 or DEFAULT_GPU in profiled_on:
            return DEFAULT_GPU
        key, why = profiled_on[0], "on which the jobs were profiled"
    if not any(str(value).endswith(".json") for value in params.values()):  # a plan names its GPU
        aside(f"no --gpu given: the answer is for {key}, {why}")
    return key


def _profiled_on(words: Sequence[str], folder: Path | None) -> list[str]:
    """Keys of the GPUs with profiles of all jobs in `words`; none without jobs."""
    from advisor.hardware.gpus import known_gpus
    from advisor.workload.store import profile_paths, profiled_gpus, read_profile

    names = {word.partition(":")[0] for word in words}
    files = {name for name in names if name.endswith(".json")}
    try:
        keys = {read_profile(Path(name)).gpu for name in files}
        keys = keys or (set(profiled_gpus(folder)) if names else set())
        return [
            key for key in sorted(keys & known_gpus().keys())
            if names - files <= profile_paths(key, folder).keys()
        ]  # fmt: skip
    except AdvisorError:  # the command itself will report it
        return []


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Give `command` an option for every field of its parameters that are dataclasses."""
    own = signature(command).parameters.values()
    groups: dict[str, Any] = {
        parameter.name: parameter.annotation
        for parameter in own
        if is_dataclass(parameter.annotation)
    }
    flat: list[Parameter] = []
    for parameter in own:
        if parameter.name not in groups:
            flat.append(parameter.replace(kind=Parameter.KEYWORD_ONLY))
            continue
        flat += [
            Parameter(
                field.name, Parameter.KEYWORD_ONLY, annotation=field.type,
                default=Parameter.empty if field.default is MISSING else field.default,
            )
            for field in fields(groups[parameter.name])
        ]  # fmt: skip

    @wraps(command)
    def spread(**words: Any) -> None:
        values = {
            name: kind(**{field.name: words.pop(field.name) for field in fields(kind)})
            for name, kind in groups.items()
        }
        command(**words, **values)

    spread.__signature__ = signature(command).replace(parameters=flat)  # type: ignore[attr-defined]
    return spread


Given = dict[str, str]
"""Options on a command line as they are typed, by the names of their parameters."""


def given_in(context: typer.Context) -> Given:
    """Return the options on the command line of `context`, without defaults and environment."""
    given = {}
    for parameter in context.command.params:
        name = parameter.name or ""
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            argument = parameter.param_type_name == "argument"
            given[name] = name.upper() if argument else max(parameter.opts, key=len)
    return given


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
        callback=choose_gpu,
        envvar="ADVISOR_GPU",
        show_default=False,
        help=_GPU,
    ),
]
Profiles = Annotated[
    Path | None,
    typer.Option(
        "--profiles", metavar="DIR", envvar="ADVISOR_PROFILES",
        help="Read profiles from this folder instead of the shipped ones.",
    ),
]  # fmt: skip
Models = Annotated[
    Path | None,
    typer.Option(
        "--models", metavar="DIR", envvar="ADVISOR_MODELS",
        help="Read models from this folder instead of the shipped ones.",
    ),
]  # fmt: skip
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
    """Return the path `word` after checking that it can be written."""
    from advisor.workload.writing import new_path

    return new_path(word)


def _watts(word: str) -> float:
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
        """Return the jobs that they name, or examples, with a note on stderr."""
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
        """Return the `Advisor` for `gpu`, which allows for this machine if it has such a GPU."""
        from advisor.api import Advisor
        from advisor.measure.device import present_machine

        present, check_host = present_machine(gpu), None
        if present is not None:
            from advisor.measure.calibrate import host_now

            check_host = partial(host_now, gpu)
        return Advisor(
            gpu, profiles=self.profiles, models=self.models, calibration=self.calibration,
            power_cap_w=power_cap_w, host_cores=self.host_cores, present=present,
            check_host=check_host,
        )  # fmt: skip


def cap_w(word: str | None) -> float | None:
    """Return the watts in ``--power-cap WORD``; None without the option, or with `AUTO`."""
    return None if word is None or word == AUTO else _watts(word)


_WORD = "--mlflow"

Mlflow = Annotated[
    str | None,
    typer.Option(
        _WORD, metavar="URI", help="Log the result to this MLflow server or sqlite:///FILE, too."
    ),
]


def mlflow_log(uri: str | None) -> "MlflowLog | None":
    """Return the log at `uri`; None if `uri` is None.

    Raises:
        AdvisorError: MLflow is not installed, or `uri` is not found.
    """
    if uri is None:
        return None
    from advisor.report.mlflow_log import MlflowLog

    return MlflowLog(uri)


def profiled_and_logged(words: Sequence[str], main: Callable[[Sequence[str]], int]) -> int:
    """Measure by ``main(words)``, log the profiles that it wrote, and return its exit code."""
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
    places = [folder, *filter(Path.is_dir, folder.glob("*"))]
    files = (path for place in places for path in profile_files(place))
    # Time stamps of files may lag behind the clock.
    return sorted(path for path in files if path.stat().st_mtime > began_s - 0.1)
