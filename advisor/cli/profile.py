"""``advisor profile``: measures jobs alone, or writes profiles of numbers that exist."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, BadParameter, Context, Exit, Option

from advisor.cli import options
from advisor.cli.measure import supervised
from advisor.cli.output import aside, show_json
from advisor.cli.question import mlflow_log
from advisor.documents import answer_document
from advisor.errors import GpuUnavailable, InvalidInput
from advisor.files import units
from advisor.hardware import DEFAULT_DEVICE
from advisor.workload.spec import Execution, Precision, Script, Workload, is_launcher, is_name

if TYPE_CHECKING:
    from advisor.run.mlflow import MlflowLog


_WITHOUT_GPU = (
    "Without a GPU, describe the job by numbers of its log and nvidia-smi: `advisor profile "
    "--from-numbers --help`. Or name a similar job with a profile: `advisor profiles`."
)


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


def profile(
    context: Context,
    workloads: Annotated[
        list[str] | None,
        Argument(metavar="WORKLOAD", help="A name, as `advisor workloads` lists it."),
    ] = None,
    device: options.DeviceOrCpu = DEFAULT_DEVICE,
    out: options.ProfilesOut = None,
    gpu: options.OnlyGpu = None,
    probe: Annotated[
        bool,
        Option(
            help="Measure it under MPS limits, too, which takes most of the time and predicts "
            "limits better."
        ),
    ] = False,
    cores: options.Cores = None,
    deadline: options.Deadline = None,
    patience: Annotated[
        float,
        Option(
            metavar="SECONDS",
            parser=options.above_0,
            help="End a workload without a step for this long, e.g. while it loads or compiles.",
        ),
    ] = 300.0,
    skip_existing: Annotated[
        bool, Option("--skip-existing", help="Leave out the profiles that DIR has.")
    ] = False,
    data: Annotated[
        Path | None,
        Option(
            metavar="DIR",
            help="Read images from this folder, which has a folder for each class, or CIFAR-10's "
            "binary files; default: made-up images.",
        ),
    ] = None,
    as_json: options.AsJson = False,
    mlflow: options.Mlflow = None,
    name: Annotated[
        str | None,
        Option(
            "--name",
            metavar="NAME",
            help="Name the profile of a script; default: that of its file or module.",
        ),
    ] = None,
    folder: Annotated[
        Path | None,
        Option(
            metavar="DIR",
            help="Run the script in this folder; what it writes there is not kept; default: this "
            "folder.",
        ),
    ] = None,
    env: Annotated[
        list[Any] | None,
        Option(
            metavar="NAME=VALUE",
            parser=options.pair,
            help="Set this variable for the script, and keep it in the profile; repeatable.",
        ),
    ] = None,
    measure_env: Annotated[
        list[Any] | None,
        Option(
            metavar="NAME=VALUE",
            parser=options.pair,
            help="Set this variable while measuring only, e.g. WANDB_MODE=disabled; repeatable.",
        ),
    ] = None,
    steps_per_epoch: Annotated[
        int | None,
        Option(
            metavar="N",
            help="Count N optimizer steps as an epoch; default: those of the script's loader.",
        ),
    ] = None,
    throughput: Annotated[
        str | None,
        Option(
            metavar="REGEX",
            help="Without PyTorch: read the examples a second from the output. The one group of "
            "REGEX is the number.",
        ),
    ] = None,
    seconds_per_step: Annotated[
        str | None,
        Option(
            metavar="REGEX",
            help="Without PyTorch: read the seconds of a step from the output; name the group ms "
            "for milliseconds: '(?P<ms>[0-9.]+)ms/step'.",
        ),
    ] = None,
    timm: Annotated[
        str | None,
        Option(metavar="NAME", help="Measure the model of timm of this name, e.g. resnet18."),
    ] = None,
    resolution: Annotated[
        int | None, Option(metavar="PIXELS", help="Set the side of an image of timm's model.")
    ] = None,
    classes: Annotated[
        int | None, Option(metavar="N", help="Set the outputs of timm's model.")
    ] = None,
    batch_size: Annotated[
        int | None,
        Option(
            metavar="N",
            help="Set the examples of a step of a script or of timm's model; default: those of "
            "the script's loader.",
        ),
    ] = None,
    precision: Annotated[
        Precision | None, Option(help="Set the precision of timm's model; default: default.")
    ] = None,
    execution: Annotated[
        Execution | None, Option(help="Set the execution of timm's model; default: eager.")
    ] = None,
    loader_workers: Annotated[
        int | None,
        Option(
            metavar="N",
            help="Set the processes of the data loader; default: 0, or those of the script's.",
        ),
    ] = None,
    examples_per_epoch: Annotated[
        int | None,
        Option(metavar="N", help="Set the images of an epoch of timm's model, for epoch times."),
    ] = None,
) -> None:
    """Measure workloads, or your own script, alone.

    A script is started as it is: advisor profile -- python train.py [ARGUMENTS]

    Without a GPU, write the profile of a job from numbers that you have, or of the jobs that
    Prometheus or a file has: see `advisor profile --from-numbers -h` and `advisor profile
    --from-history -h`.
    """
    words = workloads or []
    command = words[words.index("--") + 1 :] if "--" in words else []
    names = words[: words.index("--")] if "--" in words else words
    of_script = _passed(
        name=name,
        folder=folder,
        env=env,
        measure_env=measure_env,
        steps_per_epoch=steps_per_epoch,
        throughput=throughput,
        seconds_per_step=seconds_per_step,
    )
    of_both = _passed(batch_size=batch_size, loader_workers=loader_workers)
    of_timm = of_both | _passed(
        resolution=resolution,
        classes=classes,
        precision=precision,
        execution=execution,
        examples_per_epoch=examples_per_epoch,
    )
    if command:
        if names or timm is not None:
            raise InvalidInput("a script is profiled by itself: name no workload before the --")
        jobs = [_script_workload(command, of_script | of_both)]
    elif of_script:
        raise InvalidInput(
            f"{_flag(of_script)} describes a script: give its command after --, "
            f"e.g. -- python train.py"
        )
    else:
        jobs = _timm_workloads(timm, of_timm)
        if not (names or jobs):
            raise InvalidInput(
                "name a workload, or a model with --timm. `advisor workloads` lists them."
            )
    log, began_s = mlflow_log(mlflow), time()
    code = supervised(
        "advisor.measure.profile:run_profile",
        context,
        workloads=[*names, *jobs],
        device=device,
        out=out,
        gpu=gpu,
        probe=probe,
        cores=cores,
        deadline=deadline,
        patience=patience,
        skip_existing=skip_existing,
        data=data,
        measure_env=dict(measure_env or ()),
    )
    show_written(began_s, out, log, as_json=as_json)
    if code == GpuUnavailable.exit_code:
        aside(_WITHOUT_GPU)
    raise Exit(code)


def _passed(**passed: Any) -> dict[str, Any]:
    """Return the options that were passed; an empty word or 0 counts, too."""
    return {name: value for name, value in passed.items() if value not in (None, [], ())}


def _flag(passed: Mapping[str, Any]) -> str:
    return "--" + next(iter(passed)).replace("_", "-")


def _timm_workloads(model: str | None, passed: Mapping[str, Any]) -> list[Workload]:
    """Return the `model` of timm with the options `passed`, if there is one."""
    from advisor.workload.catalogue import timm_workload

    if model is None:
        if passed:
            raise InvalidInput(f"{_flag(passed)} describes a model of timm: give --timm NAME too.")
        return []
    needed = ("resolution", "classes", "batch_size")
    if lacking := [_flag({name: None}) for name in needed if name not in passed]:
        raise InvalidInput(f"--timm {model} also needs {' and '.join(lacking)}.")
    others = {name: value for name, value in passed.items() if name != "batch_size"}
    return [timm_workload(model, batch=passed["batch_size"], **others)]


def _script_workload(command: Sequence[str], passed: Mapping[str, Any]) -> Workload:
    """Return the job of a script, with the variables that a profile keeps."""
    script = Script(
        command=tuple(command),
        folder=str(passed.get("folder", Path()).resolve()),
        environment=dict(passed.get("env", ())),
        throughput=passed.get("throughput"),
        seconds_per_step=passed.get("seconds_per_step"),
    )
    # Refuses wrong variables before anything starts.
    replace(script, environment=dict(passed.get("measure_env", ())))
    name = passed.get("name")
    if name is None:
        program = script.file or ""
        name = Path(program).stem if program.endswith((".py", ".sh")) else Path(program).name
        if not is_name(name):
            named = program or shlex.join(command)
            raise InvalidInput(f"{named[:80]!r} does not name a profile. Add --name NAME.")
    batch = passed.get("batch_size", 1)
    steps = passed.get("steps_per_epoch")
    return Workload(
        name=name,
        source="script",
        model=name,
        family=name,
        batch=batch,
        script=script,
        loader_workers=passed.get("loader_workers", 0),
        examples_per_epoch=None if steps is None else steps * batch,
    )


def show_written(
    began_s: float, out: Path | None, log: "MlflowLog | None" = None, *, as_json: bool
) -> None:
    """Print as JSON, and log, the profiles written since a moment."""
    if log is None and not as_json:
        return
    from advisor.files.reading import profile_files, user_folder
    from advisor.report.lists import MeasuredProfiles, listed_profile
    from advisor.workload.store import read_profile

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
        show_json(answer_document(MeasuredProfiles(tuple(listed))))


def _limited_step(word: str) -> tuple[str, float]:
    percent, seconds = options.pair(word, "PERCENT=SECONDS, e.g. 50=0.14")
    return percent.strip().removesuffix("%").strip(), options.above_0(seconds)


def _share_of(what: str) -> Any:
    return Option(metavar="SHARE", parser=options.share, help=f"Share of {what}, by DCGM.")


def from_numbers(
    name: Annotated[str, Option("--name", metavar="NAME", help="Name the job.")],
    gpu: Annotated[
        str,
        Option(
            "--gpu",
            metavar="GPU",
            envvar="ADVISOR_GPU",
            help="GPU model, as `advisor gpus` lists it.",
        ),
    ],
    memory_mib: Annotated[
        float,
        Option(metavar="MIB", parser=options.mebibytes, help="Memory that the process holds."),
    ],
    batch_size: Annotated[
        int | None, Option(metavar="N", help="Examples of a step; needed if its length is known.")
    ] = None,
    step_s: Annotated[
        float | None,
        Option(metavar="SECONDS", parser=options.seconds, help="Length of a training step."),
    ] = None,
    duration_s: Annotated[
        float | None,
        Option(
            metavar="SECONDS",
            parser=options.seconds,
            help="Length of the whole job alone, e.g. 2h, which counts as an epoch; needed if the "
            "length of a step is not known.",
        ),
    ] = None,
    power_w: Annotated[
        float | None,
        Option(metavar="WATTS", parser=options.watts, help="Mean power of the whole GPU."),
    ] = None,
    gpu_utilization: Annotated[
        float | None,
        Option(
            metavar="SHARE",
            parser=options.share,
            help="GPU utilisation of nvidia-smi, 0 to 1, or e.g. 83%.",
        ),
    ] = None,
    memory_utilization: Annotated[
        float | None,
        Option(
            metavar="SHARE",
            parser=options.share,
            help="Memory utilisation of nvidia-smi, likewise.",
        ),
    ] = None,
    sm_active: Annotated[float | None, _share_of("SMs with a warp")] = None,
    sm_occupancy: Annotated[float | None, _share_of("warp slots in use")] = None,
    tensor_active: Annotated[float | None, _share_of("cycles in which tensor cores work")] = None,
    dram_active: Annotated[float | None, _share_of("memory bandwidth in use")] = None,
    step_under_limit: Annotated[
        list[Any] | None,
        Option(
            metavar="PERCENT=SECONDS",
            parser=_limited_step,
            help="Step alone under an MPS limit, e.g. 50=0.14; repeatable.",
        ),
    ] = None,
    examples_per_epoch: Annotated[
        int | None, Option(metavar="N", help="Examples of an epoch, for epoch times.")
    ] = None,
    out: options.ProfilesOut = None,
    as_json: options.AsJson = False,
    mlflow: options.Mlflow = None,
    from_numbers: Annotated[bool, Option("--from-numbers", hidden=True)] = True,  # noqa: ARG001
) -> None:
    """Write a profile from numbers of a job alone on a GPU.

    A training log and nvidia-smi have them. Answers for the job have wider ranges than for a
    measured one.

    Every command accepts the path of the file, DIR/NAME.json, as a JOB. `advisor init --schema
    numbers` prints the schema of such a file.
    """
    from advisor.hardware.gpus import gpu_meant
    from advisor.measure.profile import write_numbers
    from advisor.workload.minimal_profile import MinimalProfile

    card, log, began_s = gpu_meant(gpu), mlflow_log(mlflow), time()
    if step_s is None:
        batch_size = batch_size or 1  # of nominal steps
    if step_s is None is duration_s or batch_size is None:
        raise InvalidInput(
            "expected --step-s with --batch-size, or --duration-s for a job whose step's length "
            "is not known. See `advisor profile --from-numbers -h`."
        )
    minimal = MinimalProfile(
        schema=1,
        workload=name,
        gpu=card.key,
        batch_size=batch_size,
        step_s=step_s,
        memory_mib=memory_mib,
        power_w=power_w,
        gpu_utilization=gpu_utilization,
        memory_utilization=memory_utilization,
        sm_active=sm_active,
        sm_occupancy=sm_occupancy,
        tensor_active=tensor_active,
        dram_active=dram_active,
        examples_per_epoch=examples_per_epoch,
        duration_s=duration_s,
        step_s_under_limit=dict(step_under_limit or ()),
    )
    aside(f"  {write_numbers(minimal, card, out)}")
    show_written(began_s, out, log, as_json=as_json)


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
    from advisor.measure.prometheus import is_metric

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
    from_history: Annotated[
        str,
        Option(
            "--from-history",
            metavar="FILE|ADDRESS",
            help="Read this file, or Prometheus at this address, e.g. http://prometheus:9090. The "
            "variable ADVISOR_PROMETHEUS_TOKEN may have a token.",
        ),
    ],
    start: Annotated[
        float | None,
        Option(
            metavar="TIME",
            parser=_moment,
            help="Leave out earlier samples: a time such as 2026-05-01T12:00, or how long ago, "
            "e.g. 6h; default: a day before the end.",
        ),
    ] = None,
    end: Annotated[
        float | None,
        Option(
            "--end", metavar="TIME", parser=_moment, help="Leave out later samples; default: now."
        ),
    ] = None,
    interval: Annotated[
        float | None,
        Option(
            metavar="SECONDS",
            parser=options.above_0,
            help="Time between samples; default: 30, more for long ranges; of a file: by its "
            "times.",
        ),
    ] = None,
    by: Annotated[
        str | None,
        Option(
            metavar="LABEL",
            parser=_metric,
            help="Name jobs by this label; gpu: one job a GPU; default: exported_pod, pod or "
            "hpc_job.",
        ),
    ] = None,
    match: Annotated[
        list[Any] | None,
        Option(
            metavar="LABEL=VALUE",
            parser=_label,
            help="Use series with this label only, e.g. namespace=ml; repeatable.",
        ),
    ] = None,
    step_s: Annotated[
        list[Any] | None,
        Option(metavar="[JOB=]SECONDS", parser=_step, help="Set the step of a job; repeatable."),
    ] = None,
    step_metric: Annotated[
        str | None,
        Option(
            metavar="NAME",
            parser=_metric,
            help="Read steps, in seconds, from this metric of your jobs.",
        ),
    ] = None,
    gpu: Annotated[
        str | None,
        Option(
            "--gpu",
            metavar="GPU",
            help="Leave out jobs on other GPU models; needed if the history does not name the "
            "model.",
        ),
    ] = None,
    name: Annotated[str | None, Option("--name", metavar="NAME", help="Name the only job.")] = None,
    out: options.ProfilesOut = None,
    as_json: options.AsJson = False,
    mlflow: options.Mlflow = None,
) -> None:
    """Write profiles of jobs that monitoring recorded.

    Prometheus with dcgm-exporter has them, or a file of nvidia-smi, dcgmi dmon or Grafana. Counters
    are of the whole GPU, so the numbers are from samples in which the job was active and alone on
    its GPU. The exit code is 1 if no profile was written.
    """
    from advisor.measure.history_command import HistoryTerms, write_recorded_profiles

    terms = HistoryTerms(
        start_s=start,
        end_s=end,
        interval_s=interval,
        by=by,
        match=dict(match or ()),
        steps_s=dict(step_s or ()),
        step_metric=step_metric,
        gpu=gpu,
        name=name,
        out=out,
    )
    log, began_s = mlflow_log(mlflow), time()
    write_recorded_profiles(from_history, terms)
    show_written(began_s, out, log, as_json=as_json)
