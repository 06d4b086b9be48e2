"""``advisor profile``: measures jobs alone, or writes profiles from numbers and histories."""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from itertools import pairwise
from pathlib import Path
from time import time
from typing import Any

from typer import Argument, BadParameter, Context, Exit, Option

from advisor.cli import options
from advisor.cli.measure import supervised
from advisor.cli.options import flag, option
from advisor.cli.output import aside, show_json
from advisor.cli.question import mlflow_log
from advisor.errors import GpuUnavailable, InvalidInput
from advisor.files import units
from advisor.files.reading import profile_files, user_folder
from advisor.hardware import DEFAULT_DEVICE
from advisor.hardware.gpus import gpu_meant
from advisor.workload.spec import Execution, Precision, Script, Workload, is_launcher, is_name


def as_commands(words: list[str], rest: list[str]) -> tuple[list[str], list[str]]:
    """Return the words of ``advisor profile``, and those from ``--`` on, for typer's commands.

    Numbers and histories have commands of their own. Typer drops one ``--``, and the words of a
    script follow another.

    Raises:
        InvalidInput: A script's command does not follow ``--``.
    """
    for kind in ("--from-numbers", "--from-history"):
        if any(word.partition("=")[0] == kind for word in words):
            # Its value may be left out before -h.
            named = [
                word for word, after in pairwise((*words, "-")) if word != kind or after[:1] != "-"
            ]
            return [f"profile {kind}", *named[1:]], rest
    for at, word in enumerate(words if not rest else ()):
        if is_launcher(word) or word.endswith((".py", ".sh")):  # no workload is called so
            started = ["python"] if word.endswith(".py") else []
            line = shlex.join(["advisor", *words[:at], "--", *started, *words[at:]])
            raise InvalidInput(f"put -- before a command of your own: `{line}`")
    return words, rest[:1] + rest


@dataclass(frozen=True)
class _Measuring:
    """Options on how workloads are measured."""

    device: options.DeviceOrCpu = DEFAULT_DEVICE
    out: options.ProfilesOut = None
    gpu: options.OnlyGpu = None
    probe: bool = Option(
        False,
        help=(
            "Also measure under MPS limits: this takes most of the time, and improves predictions "
            "with limits."
        ),
    )
    cores: options.Cores = None
    deadline: options.Deadline = None
    patience: float = option(
        "SECONDS",
        "End a workload that takes no step for this long, e.g. while it loads or compiles.",
        default=300.0,
        parser=options.above_0,
    )
    skip_existing: bool = flag("Skip workloads that have a profile in DIR.", "--skip-existing")
    data: Path | None = option(
        "DIR",
        "Read images from this folder of class folders, or of CIFAR-10; default: made-up ones.",
    )


@dataclass(frozen=True)
class _Script:
    """Options on a script."""

    name: str | None = option(
        "NAME", "Name the profile of a script; default: that of its file or module."
    )
    folder: Path | None = option(
        "DIR",
        (
            "Run the script in this folder; what it writes there is not kept; default: the "
            "current folder."
        ),
    )
    env: list[Any] | None = option(
        "NAME=VALUE", "Set this variable for the script, and keep it in the profile; repeatable."
    )
    measure_env: list[Any] | None = option(
        "NAME=VALUE",
        "Set this variable only while measuring, e.g. WANDB_MODE=disabled; repeatable.",
    )
    steps_per_epoch: int | None = option(
        "N", "Count N optimizer steps as an epoch; default: those of the script's loader."
    )
    throughput: str | None = option(
        "REGEX",
        "Without PyTorch: read the examples per second from the output; REGEX has one group.",
    )
    seconds_per_step: str | None = option(
        "REGEX",
        "Without PyTorch: read the seconds of a step from the output; a group named ms has "
        "milliseconds: '(?P<ms>[0-9.]+)ms/step'.",
    )


@dataclass(frozen=True)
class _Timm:
    """Options on a timm model."""

    timm: str | None = option("NAME", "Measure the timm model of this name, e.g. resnet18.")
    resolution: int | None = option("PIXELS", "Set the side of an image for the timm model.")
    classes: int | None = option("N", "Set the number of classes of the timm model.")
    precision: Precision | None = Option(
        None, help="Set the precision of the timm model; default: that of PyTorch."
    )
    execution: Execution | None = Option(
        None, help="Set the execution of the timm model; default: eager."
    )
    examples_per_epoch: int | None = option(
        "N", "Set the images in an epoch of the timm model, for epoch times."
    )


def profile(
    context: Context,
    workloads: list[str] | None = Argument(
        None, metavar="WORKLOAD...", help="Name of a workload in `advisor workloads`."
    ),
    *,
    measuring: _Measuring,
    script: _Script,
    model: _Timm,
    batch_size: int | None = option(
        "N",
        "Set the examples in a step of a script or a timm model; default: those of its loader.",
    ),
    loader_workers: int | None = option(
        "N", "Set the worker processes of the data loader; default: 0, or those of the script."
    ),
    as_json: options.AsJson = False,
    mlflow: options.Mlflow = None,
) -> None:
    """Measure workloads, or your own script, alone.

    A script is started as it is: advisor profile -- python train.py [ARGUMENTS]

    Without a GPU, write a profile from numbers of a job, or from the records of Prometheus or a
    file: see `advisor profile --from-numbers -h` and `advisor profile --from-history -h`.
    """
    words = workloads or []
    command = words[words.index("--") + 1 :] if "--" in words else []
    names = words[: words.index("--")] if "--" in words else words
    of_script = _passed(vars(script))
    if command:
        if names or model.timm is not None:
            raise InvalidInput("a script is profiled alone. Name no workload before the --")
        jobs = [_script_workload(command, script, batch_size, loader_workers)]
    elif of_script:
        raise InvalidInput(
            f"{_flag(of_script)} describes a script: give its command after --, "
            f"e.g. -- python train.py"
        )
    else:
        of_both = {"batch_size": batch_size, "loader_workers": loader_workers}
        jobs = _timm_workloads(_passed(of_both | vars(model)))
        if not (names or jobs):
            raise InvalidInput(
                "name a workload, or a model with --timm. `advisor workloads` lists them."
            )
    with _shown(measuring.out, mlflow, as_json=as_json):
        code = supervised(
            "advisor.measure.profile:run_profile",
            context,
            workloads=[*names, *map(asdict, jobs)],
            measure_env=dict(script.measure_env or ()),
            **vars(measuring),
        )
    if code == GpuUnavailable.exit_code:
        aside(
            "Without a GPU, describe the job by numbers of its log and nvidia-smi: `advisor "
            "profile --from-numbers --help`. Or name a similar job with a profile: `advisor "
            "profiles`."
        )
    raise Exit(code)


def _passed(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that were passed; an empty word or 0 counts, too."""
    return {name: value for name, value in values.items() if value not in (None, [], ())}


def _flag(passed: Iterable[str]) -> str:
    return "--" + next(iter(passed)).replace("_", "-")


def _timm_workloads(passed: dict[str, Any]) -> list[Workload]:
    """Return the timm model with the options `passed`, if there is one."""
    from advisor.workload.catalogue import timm_workload

    model = passed.pop("timm", None)
    if model is None:
        if passed:
            raise InvalidInput(f"{_flag(passed)} describes a timm model: give --timm NAME too.")
        return []
    needed = ("resolution", "classes", "batch_size")
    if lacking := [_flag([name]) for name in needed if name not in passed]:
        raise InvalidInput(f"--timm {model} also needs {' and '.join(lacking)}.")
    return [timm_workload(model, batch=passed.pop("batch_size"), **passed)]


def _script_workload(
    command: Sequence[str], options: _Script, batch_size: int | None, loader_workers: int | None
) -> Workload:
    """Return the job of a script, with the variables that its profile keeps."""
    script = Script(
        command=tuple(command),
        folder=str((options.folder or Path()).resolve()),
        environment=dict(options.env or ()),
        throughput=options.throughput,
        seconds_per_step=options.seconds_per_step,
    )
    # Refuses wrong variables before anything starts.
    replace(script, environment=dict(options.measure_env or ()))
    name, batch = options.name, 1 if batch_size is None else batch_size
    if name is None:
        program = script.file or ""
        name = Path(program).stem if program.endswith((".py", ".sh")) else Path(program).name
        if not is_name(name):
            named = program or shlex.join(command)
            raise InvalidInput(f"{named[:80]!r} does not name a profile. Add --name NAME.")
    steps = options.steps_per_epoch
    return Workload(
        name=name,
        source="script",
        model=name,
        family=name,
        batch=batch,
        script=script,
        loader_workers=loader_workers or 0,
        examples_per_epoch=None if steps is None else steps * batch,
    )


@contextmanager
def _shown(out: Path | None, mlflow: str | None, *, as_json: bool) -> Iterator[None]:
    """Log the profiles that the block writes, and print them as JSON."""
    from advisor.report.lists import MeasuredProfiles, listed_profile
    from advisor.workload.store import read_profile

    log, began_s = mlflow_log(mlflow), time()
    yield
    if log is None and not as_json:
        return
    folder = user_folder("profiles") if out is None else out
    places = [folder, *filter(Path.is_dir, folder.glob("*"))]
    files = sorted(file for place in places for file in profile_files(place))
    # Time stamps of files may lag behind the clock.
    written = [file for file in files if file.stat().st_mtime > began_s - 0.1]
    profiles = {str(file): read_profile(file) for file in written}
    if log is not None:
        for each in profiles.values():
            log.profile(each)
    if as_json:
        listed = (listed_profile(each.name, each, file) for file, each in profiles.items())
        show_json(MeasuredProfiles(tuple(listed)))


def _limited_step(word: str) -> tuple[str, float]:
    percent, seconds = options.pair(word, "PERCENT=SECONDS, e.g. 50=0.14")
    return percent.strip().removesuffix("%").strip(), options.above_0(seconds)


def from_numbers(
    context: Context,
    workload: str = option("NAME", "Name the job.", "--name", default=...),
    gpu: str = option(
        "GPU", "Set the GPU model, as `advisor gpus` lists it.", default=..., envvar="ADVISOR_GPU"
    ),
    memory_mib: float = option("MIB", "Set the memory that the process holds.", default=...),
    batch_size: int | None = option(
        "N", "Set the examples in a step; needed if its length is known."
    ),
    step_s: float | None = option("SECONDS", "Set the length of a training step."),
    duration_s: float | None = option(
        "SECONDS",
        (
            "Set the time of the whole job alone, e.g. 2h, counted as an epoch; needed if no step "
            "is known."
        ),
    ),
    power_w: float | None = option("WATTS", "Set the mean power of the whole GPU."),
    gpu_utilization: float | None = option(
        "SHARE", "Set the GPU utilisation of nvidia-smi, 0 to 1, or e.g. 83%."
    ),
    memory_utilization: float | None = option(
        "SHARE", "Set the memory utilisation of nvidia-smi, 0 to 1, or e.g. 40%."
    ),
    sm_active: float | None = option("SHARE", "Set the share of SMs with a warp, by DCGM."),
    sm_occupancy: float | None = option("SHARE", "Set the share of warp slots in use, by DCGM."),
    tensor_active: float | None = option(
        "SHARE", "Set the share of cycles in which tensor cores work, by DCGM."
    ),
    dram_active: float | None = option(
        "SHARE", ("Set the share of memory bandwidth in use, by DCGM.")
    ),
    step_s_under_limit: list[Any] | None = option(
        "PERCENT=SECONDS",
        "Set the step alone under an MPS limit, e.g. 50=0.14; repeatable.",
        "--step-under-limit",
        parser=_limited_step,
    ),
    examples_per_epoch: int | None = option("N", "Set the examples in an epoch, for epoch times."),
    out: options.ProfilesOut = None,
    as_json: options.AsJson = False,
    mlflow: options.Mlflow = None,
    from_numbers: bool = Option(True, "--from-numbers", hidden=True),
) -> None:
    """Write a profile from numbers of a job alone on a GPU.

    A training log and nvidia-smi contain the numbers. Answers have wider ranges than for a
    measured job.

    Every command accepts the path of the file, DIR/NAME.json, as a JOB. `advisor init --schema
    numbers` prints the schema of such a file.
    """
    from advisor.measure.profile import write_numbers
    from advisor.workload.minimal_profile import MinimalProfile

    card = gpu_meant(gpu)
    if step_s is None:
        batch_size = batch_size or 1  # of nominal steps
    if step_s is None is duration_s or batch_size is None:
        raise InvalidInput(
            "expected --step-s with --batch-size, or --duration-s for a job whose step is "
            "unknown. See `advisor profile --from-numbers -h`."
        )
    own = {field.name for field in fields(MinimalProfile)} & context.params.keys()
    numbers = {name: context.params[name] for name in own} | {
        "gpu": card.key,
        "batch_size": batch_size,
        "step_s_under_limit": dict(step_s_under_limit or ()),
    }
    with _shown(out, mlflow, as_json=as_json):
        aside(f"  {write_numbers(MinimalProfile(schema=1, **numbers), card, out)}")


def _moment(word: str) -> float:
    """Return seconds since the epoch of a time of day, or of so long ago."""
    from advisor.measure.history import epoch_s

    try:
        return epoch_s(word)
    except InvalidInput:
        try:
            return time() - units.seconds(word)
        except InvalidInput:
            raise BadParameter(
                f"expected a time such as 2026-05-01T12:00, or how long ago, such as 2h; got {word}"
            ) from None


def _metric(word: str) -> str:
    from advisor.measure.history import is_metric

    if not is_metric(word):
        raise BadParameter(f"{word} is not a name of Prometheus")
    return word


def _label(word: str) -> tuple[str, str]:
    name, value = options.pair(word, "LABEL=VALUE")
    return _metric(name), value


def _step(word: str) -> tuple[str | None, float]:
    name, _, seconds = word.rpartition("=")
    return name or None, options.above_0(seconds)


def from_history(
    from_history: str = option(
        "FILE|ADDRESS",
        "Read this file, or Prometheus at this address, e.g. http://prometheus:9090. The variable "
        "ADVISOR_PROMETHEUS_TOKEN may contain a token.",
        default=...,
    ),
    start: float | None = option(
        "TIME",
        "Leave out earlier samples: a time such as 2026-05-01T12:00, or how long ago, "
        "e.g. 6h; default: a day before the end.",
        parser=_moment,
    ),
    end: float | None = option("TIME", "Leave out later samples; default: now.", parser=_moment),
    interval: float | None = option(
        "SECONDS",
        "Set the time between samples; default: 30 s, more for long ranges; for a file: its own.",
        parser=options.above_0,
    ),
    by: str | None = option(
        "LABEL",
        "Name jobs by this label; gpu: one job a GPU; default: exported_pod, pod or hpc_job.",
        parser=_metric,
    ),
    match: list[Any] | None = option(
        "LABEL=VALUE",
        "Use series with this label only, e.g. namespace=ml; repeatable.",
        parser=_label,
    ),
    step_s: list[Any] | None = option(
        "[JOB=]SECONDS", "Set the step of a job; repeatable.", parser=_step
    ),
    step_metric: str | None = option(
        "NAME", "Read steps, in seconds, from this metric of your jobs.", parser=_metric
    ),
    gpu: str | None = option(
        "GPU", "Leave out jobs on other GPU models; needed if the history does not name the model."
    ),
    name: str | None = option("NAME", "Name the only job."),
    out: options.ProfilesOut = None,
    as_json: options.AsJson = False,
    mlflow: options.Mlflow = None,
) -> None:
    """Write profiles of jobs that monitoring recorded.

    The records are in Prometheus with dcgm-exporter, or in a file of nvidia-smi, dcgmi dmon or
    Grafana. Counters are of the whole GPU, so advisor uses the samples in which the job was active
    and alone on its GPU. The exit code is 1 if no profile was written.
    """
    from advisor.measure.recorded_jobs import jobs_in, write_recorded_profiles

    jobs = jobs_in(from_history, by, start, end, interval, dict(match or ()), step_metric)
    with _shown(out, mlflow, as_json=as_json):
        write_recorded_profiles(jobs, name, dict(step_s or ()), gpu, out)
