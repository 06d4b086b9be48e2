"""``advisor profile``: profiles workloads one after another, and writes each file as it is done."""

import argparse
import os
import shlex
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import monotonic
from typing import get_args

from advisor.errors import AdvisorError, InvalidInput
from advisor.hardware import DEFAULT_DEVICE
from advisor.hardware.gpus import Gpu, gpu_meant
from advisor.hardware.machine import allowed_cores
from advisor.hardware.profile_checks import check_power, preallocating_profiles
from advisor.measure.alone import profile_alone
from advisor.measure.bench import Bench, bench_on
from advisor.measure.device import (
    Device,
    command_line,
    find_device,
    power_readings_w,
    refuse_other,
)
from advisor.measure.parser import Parser, above_0, in_units, variable
from advisor.measure.process import say
from advisor.measure.tenant import LOAD_S
from advisor.workload import units
from advisor.workload.catalogue import timm_workload, workload
from advisor.workload.minimal_profile import MinimalProfile, holds_minimal, minimal_text
from advisor.workload.moments import add_moment
from advisor.workload.profile import Profile
from advisor.workload.reading import beside_package, is_file, read_bytes, shown, user_folder
from advisor.workload.spec import (
    Execution,
    Precision,
    Script,
    Workload,
    is_launcher,
    is_name,
    masked_words,
)
from advisor.workload.store import read_profile
from advisor.workload.writing import new_path, profile_text, writable, writable_folder, write_whole

OUT_HELP = "Write to this folder of profiles; default: your own, which every command reads."


def _split_command(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the words before the first ``--``, and the command after it."""
    words = list(argv)
    if "--" in words:
        at = words.index("--")
        return words[:at], words[at + 1 :]
    for at, word in enumerate(words):
        if is_launcher(word) or word.endswith((".py", ".sh")):  # no workload is called so
            started = ["python"] if word.endswith(".py") else []
            line = shlex.join(["advisor", "profile", *words[:at], "--", *started, *words[at:]])
            raise InvalidInput(f"put -- before a command of your own: `{line}`")
    return words, []


_OF_SCRIPTS = (
    "name",
    "folder",
    "env",
    "measure_env",
    "steps_per_epoch",
    "throughput",
    "seconds_per_step",
)
_OF_TIMM = (
    "resolution",
    "classes",
    "batch_size",
    "precision",
    "execution",
    "loader_workers",
    "examples_per_epoch",
)


def _own_workloads(words: Namespace, command: Sequence[str]) -> list[Workload]:
    """Return the script of `command`, or the model of timm that `words` describe, if any."""
    if command:
        if words.workloads or words.timm is not None:
            raise InvalidInput("a script is profiled by itself: name no workload before the --")
        return [_script_workload(words, command)]
    # An empty word or 0 counts, too.
    options = {name: value for name, value in vars(words).items() if value not in (None, [])}
    for name in _OF_SCRIPTS:
        if name in options:
            raise InvalidInput(
                f"--{name.replace('_', '-')} describes a script: give its command after --, "
                f"e.g. -- python train.py"
            )
    of_timm = {name: options[name] for name in _OF_TIMM if name in options}
    if words.timm is None:
        if of_timm:
            flag = "--" + next(iter(of_timm)).replace("_", "-")
            raise InvalidInput(f"{flag} describes a model of timm: give --timm NAME too.")
        if not words.workloads:
            raise InvalidInput(
                "name a workload, or a model with --timm. `advisor workloads` lists them."
            )
        return []
    if lacking := [name for name in ("resolution", "classes", "batch_size") if name not in of_timm]:
        needed = " and ".join(f"--{name.replace('_', '-')}" for name in lacking)
        raise InvalidInput(f"--timm {words.timm} also needs {needed}.")
    return [timm_workload(words.timm, batch=of_timm.pop("batch_size"), **of_timm)]


def _script_workload(words: Namespace, command: Sequence[str]) -> Workload:
    script = Script(
        command=tuple(command),
        folder=str((words.folder or Path()).resolve()),
        environment=dict(words.env),
        throughput=words.throughput,
        seconds_per_step=words.seconds_per_step,
    )
    name = words.name
    if name is None:
        program = script.file or ""
        name = Path(program).stem if program.endswith((".py", ".sh")) else Path(program).name
        if not is_name(name):
            named = program or shlex.join(command)
            raise InvalidInput(f"{named[:80]!r} does not name a profile. Add --name NAME.")
    batch = 1 if words.batch_size is None else words.batch_size
    steps = words.steps_per_epoch
    job = Workload(
        name=name,
        source="script",
        model=name,
        family=name,
        batch=batch,
        script=script,
        loader_workers=words.loader_workers or 0,
        examples_per_epoch=None if steps is None else steps * batch,
    )
    _measured(job, words)  # refuses wrong variables before anything starts
    return job


def _measured(job: Workload, words: Namespace) -> Workload:
    """Return `job` with the variables that are set only while it is measured."""
    if job.script is None:
        return job
    environment = job.script.environment | dict(words.measure_env)
    return replace(job, script=replace(job.script, environment=environment))


def _profile_parser() -> Parser:
    parser = Parser(
        prog="advisor profile",
        usage="advisor profile [OPTIONS] WORKLOAD...\n"
        "       advisor profile [OPTIONS] -- python train.py [ARGUMENTS]\n"
        "       advisor profile --from-numbers [OPTIONS]\n"
        "       advisor profile --from-history FILE|ADDRESS [OPTIONS]",
        description="Measure each WORKLOAD, or your own script, alone on a GPU and write "
        "DIR/NAME.json. A script is started as it is. With --mlflow URI, log the profiles to "
        "MLflow, too.",
        epilog="Exit codes: 0 all measured; 1 some failed; 2 wrong use; 4 no GPU to use.",
    )
    add = parser.add_argument
    add("workloads", nargs="*", metavar="WORKLOAD", help="A name, as `advisor workloads` lists it.")
    add(
        "--device",
        default=DEFAULT_DEVICE,
        metavar="INDEX|UUID",
        help="Use this GPU of the machine, or cpu to try it out.  [default: %(default)s]",
    )
    add("--out", type=new_path, metavar="DIR", help=OUT_HELP)
    add("--gpu", metavar="GPU", help="Refuse any other GPU model than this, e.g. h200-141gb.")
    add(
        "--probe",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="Measure it under "
        "MPS limits, too, which takes most of the time and predicts limits better.  [default: "
        "no-probe]",
    )
    add(
        "--cores",
        metavar="CORES",
        help="Keep the processes to these host cores, e.g. 0-7; default: all.",
    )
    add("--deadline", type=above_0, metavar="SECONDS", help="Start none that would end later.")
    add(
        "--patience",
        type=above_0,
        metavar="SECONDS",
        default=LOAD_S,
        help="End a workload "
        "without a step for this long, e.g. while it loads or compiles.  [default: %(default)g]",
    )
    add("--skip-existing", action="store_true", help="Leave out the profiles that DIR has.")
    add(
        "--data",
        type=Path,
        metavar="DIR",
        help="Read images from this folder, which has a folder "
        "for each class, or CIFAR-10's binary files; default: made-up images.",
    )
    add("--json", action="store_true", help="Print the new profiles as one JSON document.")
    add(
        "--from-numbers",
        action="store_true",
        help="Measure nothing: write the step time, memory "
        "and utilisation that you pass. See `advisor profile --from-numbers -h`.",
    )
    add(
        "--from-history",
        metavar="FILE|ADDRESS",
        help="Measure nothing: write profiles of jobs "
        "that Prometheus or a file has. See `advisor profile --from-history -h`.",
    )
    add = parser.add_argument_group("options of your own script, after --").add_argument
    add("--name", metavar="NAME", help="Name the profile; default: that of the file or module.")
    add(
        "--folder",
        type=Path,
        metavar="DIR",
        help="Run it in this folder; what it writes there is not kept; default: this folder.",
    )
    add(
        "--env",
        type=variable,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="Set this variable for the script, and keep it in the profile; repeatable.",
    )
    add(
        "--measure-env",
        type=variable,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="Set this variable while measuring only, e.g. WANDB_MODE=disabled; repeatable.",
    )
    add(
        "--steps-per-epoch",
        type=int,
        metavar="N",
        help="Count N optimizer steps as an epoch; default: those of the script's loader.",
    )
    add(
        "--throughput",
        metavar="REGEX",
        help="Without PyTorch: read the examples a second from "
        "the output. The one group of REGEX is the number.",
    )
    add(
        "--seconds-per-step",
        metavar="REGEX",
        help="Without PyTorch: read the seconds of a step "
        "from the output; name the group ms for milliseconds: '(?P<ms>[0-9.]+)ms/step'.",
    )
    add = parser.add_argument_group("options of any model of timm").add_argument
    add("--timm", metavar="NAME", help="Measure the model of this name, e.g. resnet18.")
    add("--resolution", type=int, metavar="PIXELS", help="Set the side of an image.")
    add("--classes", type=int, metavar="N", help="Set the outputs of the classifier.")
    add(
        "--batch-size",
        type=int,
        metavar="N",
        help="Set the images of a step; also of a script; default: that of its loader.",
    )
    add(
        "--precision",
        choices=get_args(Precision),
        metavar="PRECISION",
        help=f"Set the precision: {', '.join(get_args(Precision))}.  [default: default]",
    )
    add(
        "--execution",
        choices=get_args(Execution),
        metavar="EXECUTION",
        help=f"Set the execution: {', '.join(get_args(Execution))}.  [default: eager]",
    )
    add(
        "--loader-workers",
        type=int,
        metavar="N",
        help="Set the processes of the data loader; "
        "also of a script; default: 0, or those of the script's loader.",
    )
    add(
        "--examples-per-epoch",
        type=int,
        metavar="N",
        help="Set the images of an epoch, for epoch times.",
    )
    return parser


def run_from_numbers(argv: Sequence[str]) -> int:
    """Write the profile that `argv` describes; return 0."""
    numbers = vars(_numbers_parser().parse_args(argv))
    del numbers["from_numbers"], numbers["json"]  # `advisor profile` itself prints
    out, card = numbers.pop("out"), gpu_meant(numbers.pop("gpu"))
    if numbers["step_s"] is None:
        numbers["batch_size"] = numbers["batch_size"] or 1  # of nominal steps
    if numbers["step_s"] is None is numbers["duration_s"] or numbers["batch_size"] is None:
        raise InvalidInput(
            "expected --step-s with --batch-size, or --duration-s for a job whose step's length "
            "is not known. See `advisor profile --from-numbers -h`."
        )
    under_limit = dict(numbers.pop("step_under_limit"))
    minimal = MinimalProfile(schema=1, gpu=card.key, step_s_under_limit=under_limit, **numbers)
    say(f"  {write_numbers(minimal, card, out)}")
    return 0


def write_numbers(minimal: MinimalProfile, card: Gpu, out: Path | None) -> Path:
    """Write a profile of numbers on the GPU model `card`, and return its path.

    Raises:
        InvalidInput: A number cannot be on that GPU, or a fuller profile has the name.
    """
    check_power(minimal.whole(), card)
    if minimal.memory_mib > card.memory_mib:
        raise InvalidInput(
            f"--memory-mib is {minimal.memory_mib:,.0f}, and {card.key} has {card.memory_mib:,}: "
            "no job held that there. Check the number, or --gpu."
        )
    path, fuller = _places(out, card.key, minimal.workload)
    if fuller:
        raise InvalidInput(
            f"{shown(fuller[0])}: that profile says more than these numbers. Choose another --name."
        )
    write_whole(path, minimal_text(minimal))
    for line in preallocating_profiles([minimal.whole()]):
        say(f"{line}.")
    return path


def _places(out: Path | None, gpu: str, name: str) -> tuple[Path, list[Path]]:
    """Return the file of a new profile, and the whole ones that it would replace or hide."""
    path = (out or user_folder("profiles") / gpu) / f"{name}.json"
    shipped = [] if out else [beside_package("profiles") / gpu / path.name]
    others = [each for each in (path, *shipped) if is_file(each)]
    return path, [each for each in others if not holds_minimal(read_bytes(each))]


def _numbers_parser() -> Parser:
    parser = Parser(
        prog="advisor profile --from-numbers",
        usage="advisor profile --from-numbers [OPTIONS]",
        description="Write DIR/NAME.json from the numbers of a training log and nvidia-smi for a "
        "job alone on a GPU. Answers for it have wider ranges than for a measured one.",
        epilog='The file holds {"schema": 1, "workload": "my-job", "gpu": "a100-40gb", '
        '"batch_size": 64, "step_s": 0.12, "memory_mib": 5300, "power_w": 190, '
        '"gpu_utilization": 0.83, "memory_utilization": 0.41}; the last three may be null, and '
        '"examples_per_epoch" or "duration_s", "sm_active" and the other counters of DCGM, and '
        '"step_s_under_limit": {"50": 0.14} may follow. With "duration_s", "step_s" may be null. '
        "Every command accepts its path as a JOB.",
    )
    add = parser.add_argument
    add("--from-numbers", action="store_true", help=argparse.SUPPRESS)
    add("--name", required=True, dest="workload", metavar="NAME", help="Name the job.  [required]")
    default = os.environ.get("ADVISOR_GPU") or None
    add(
        "--gpu",
        required=default is None,
        default=default,
        metavar="GPU",
        help="GPU model, as `advisor gpus` lists it.  [env var: ADVISOR_GPU; required]",
    )
    add("--batch-size", type=int, metavar="N", help="Examples of a step.  [required with --step-s]")
    seconds, memory, watts, share = map(
        in_units, (units.seconds, units.mebibytes, units.watts, units.share)
    )
    add("--step-s", type=seconds, metavar="SECONDS", help="Length of a training step.")
    add(
        "--duration-s",
        type=seconds,
        metavar="SECONDS",
        help="Length of the whole job alone, e.g. "
        "2h, which counts as an epoch. It is needed without --step-s.",
    )
    add(
        "--memory-mib",
        required=True,
        type=memory,
        metavar="MIB",
        help="Memory that the process holds.  [required]",
    )
    add("--power-w", type=watts, metavar="WATTS", help="Mean power of the whole GPU.")
    add(
        "--gpu-utilization",
        type=share,
        metavar="SHARE",
        help="GPU utilisation of nvidia-smi, 0 to 1, or e.g. 83%%.",
    )
    add(
        "--memory-utilization",
        type=share,
        metavar="SHARE",
        help="Memory utilisation of nvidia-smi, likewise.",
    )
    for name, what in (
        ("sm-active", "SMs with a warp"),
        ("sm-occupancy", "warp slots in use"),
        ("tensor-active", "cycles in which tensor cores work"),
        ("dram-active", "memory bandwidth in use"),
    ):
        add(f"--{name}", type=share, metavar="SHARE", help=f"Share of {what}, by DCGM.")
    add(
        "--step-under-limit",
        type=_limited_step,
        action="append",
        default=[],
        metavar="PERCENT=SECONDS",
        help="Step alone under an MPS limit, e.g. 50=0.14; repeatable.",
    )
    add(
        "--examples-per-epoch", type=int, metavar="N", help="Examples of an epoch, for epoch times."
    )
    add("--out", type=new_path, metavar="DIR", help=OUT_HELP)
    add("--json", action="store_true", help="Print the profile as one JSON document.")
    return parser


def _limited_step(text: str) -> tuple[str, float]:
    percent, equals, seconds = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text}: write PERCENT=SECONDS, e.g. 50=0.14")
    return percent.strip().removesuffix("%").strip(), above_0(seconds)


# Assumed seconds of a workload before the first has been measured.
_FIRST_S, _FIRST_WITH_PROBE_S = 25.0, 60.0


def run_profile(argv: Sequence[str]) -> int:
    """Profile the workloads in `argv`, under a supervisor; 0, or 1 after listing the failures."""
    options, command = _split_command(argv)
    words = _profile_parser().parse_args(options)
    words.workloads += _own_workloads(words, command)
    device = find_device(words.device)
    refuse_other(device, words.gpu)
    writable_folder(words.out or user_folder("profiles") / device.key)
    batch = _Batch(words, device.key)
    if batch.todo:
        cores, line = allowed_cores(words.cores), command_line("profile", argv)
        with bench_on(device, cores, line) as bench:
            batch.measure(bench)
    return batch.verdict()


def idle_power_w(device: Device) -> float | None:
    """Measure the power of a claimed device before anything runs on it; None if not metered."""
    readings_w = power_readings_w(device, 5, 0.1)
    return median(readings_w) if readings_w else None


class _Batch:
    """The workloads still `todo`, each with the file of its profile, and what failed."""

    def __init__(self, words: Namespace, gpu: str) -> None:
        self._words = words
        self._failures: list[tuple[str, AdvisorError]] = []
        self.todo: list[tuple[Workload, Path]] = []
        for name in words.workloads:
            try:
                job = workload(name) if isinstance(name, str) else name
                if words.data is not None:
                    from advisor.zoo.images import find_images

                    job = job.reading(words.data, find_images(words.data).count)
                path, others = _places(words.out, gpu, job.name)
                for other in others:
                    _refuse_to_replace(other, job)
            except InvalidInput as error:
                self._fail(str(name), error)
                continue
            if not (words.skip_existing and path.exists()):
                self.todo.append((job, path))
        for _, path in self.todo:
            writable(path)

    def measure(self, bench: Bench) -> None:
        """Measure and write each, until all are done or the next would pass the deadline."""
        words, began = self._words, monotonic()
        idle_w = idle_power_w(bench.session.device)
        for number, (job, path) in enumerate(self.todo):
            took_s = monotonic() - began
            first_s = _FIRST_WITH_PROBE_S if words.probe else _FIRST_S
            next_s = took_s / number if number else first_s
            if words.deadline is not None and took_s + next_s > words.deadline:
                say(f"{len(self.todo) - number} left at the deadline; --skip-existing does them")
                return
            say(f"{number + 1}/{len(self.todo)} {job.name}")
            try:
                profile = profile_alone(
                    _measured(job, words),
                    bench,
                    idle_w,
                    probe=words.probe,
                    patience_s=words.patience,
                )
                kept = replace(profile.workload, script=job.script)
                profile, lines = _with_moments(path, replace(profile, workload=kept))
                write_whole(path, profile_text(profile))
                for line in (*lines, path):
                    say(f"  {line}")
            except AdvisorError as error:
                self._fail(job.name, error)
                # A client that died can leave an MPS server that accepts no new clients.
                bench.session.close()

    def verdict(self) -> int:
        """Print what failed; return the exit code, or raise the error of the only workload."""
        if not self._failures:
            return 0
        if len(self._words.workloads) == 1:
            raise self._failures[0][1]
        listed = self._failures if self.todo else []  # else these lines are the last ones
        say(f"{len(self._failures)} of {len(self._words.workloads)} failed{':' * bool(listed)}")
        for name, error in listed:
            say(f"  {name}: {error}")
        return AdvisorError.exit_code

    def _fail(self, name: str, error: AdvisorError) -> None:
        if len(self._words.workloads) > 1:  # a single workload's error is printed at the end
            say(f"  {name} failed: {error}")
        self._failures.append((name, error))


def _with_moments(path: Path, profile: Profile) -> tuple[Profile, Sequence[str]]:
    """Return `profile` with the moments of the one that it replaces, and lines about it."""
    try:
        return add_moment(read_profile(path), profile)
    except (InvalidInput, OSError):  # there is none, or a damaged one
        return profile, ()


def _refuse_to_replace(path: Path, job: Workload) -> None:
    """Check that the profile in `path` is of the same command in the same folder as `job`."""
    try:
        there = read_profile(path).workload
    except InvalidInput:  # a damaged file
        return
    if _start_of(there) != _start_of(job):
        remedy = "choose another --out DIR" if job.script is None else "add --name NAME"
        raise InvalidInput(
            f"{shown(path)} is the profile of {_start_of(there)}, and this is {_start_of(job)}. To "
            f"keep both, {remedy}."
        )


def _start_of(job: Workload) -> str:
    """Name the command of a job and its folder, for a message; secrets are hidden."""
    if job.script is None:
        return f"the bundled workload {job.name}"
    return f"`{shlex.join(masked_words(job.script.command))}` in {job.script.folder}"
