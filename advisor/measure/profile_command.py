"""``advisor profile``: profiles workloads one after another, and writes each file as it is done."""

import argparse
import os
import shlex
from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean, median
from time import monotonic
from typing import TypeVar, get_args

from advisor.errors import AdvisorError, InvalidInput
from advisor.hardware import DEFAULT_DEVICE
from advisor.hardware.gpus import check_power, gpu_meant
from advisor.hardware.machine import allowed_cores
from advisor.measure.device import (
    Device,
    command_line,
    find_device,
    power_readings_w,
    refuse_other,
)
from advisor.measure.mps import Bench, bench_on
from advisor.measure.process import say
from advisor.measure.profile import profile_alone
from advisor.measure.tenant import LOAD_S
from advisor.workload.catalogue import timm_workload, workload
from advisor.workload.launchers import is_launcher
from advisor.workload.minimal_profile import MinimalProfile, holds_minimal, minimal_text
from advisor.workload.reading import beside_package, is_file, read_bytes, shown, user_folder
from advisor.workload.spec import (
    Execution,
    Precision,
    Script,
    Workload,
    is_name,
    masked_words,
)
from advisor.workload.store import parse_profile
from advisor.workload.writing import new_path, profile_text, writable, writable_folder, write_whole

_Number = TypeVar("_Number", int, float)


def option_number(
    kind: type[_Number], fits: Callable[[_Number], bool], what: str
) -> Callable[[str], _Number]:
    """Return a reader of numbers of `kind`; its error is that a number "is not" `what`."""

    def read(text: str) -> _Number:
        value = kind(text)
        if not fits(value):
            raise ArgumentTypeError(f"{text} is not {what}")
        return value

    read.__name__ = kind.__name__  # argparse names it if the text is not a number
    return read


ABOVE_0 = option_number(float, lambda value: 0 < value < float("inf"), "above 0")


def _split_command(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words before the first ``--``, and the command after it."""
    words = list(argv)
    if "--" in words:
        at = words.index("--")
        return words[:at], words[at + 1 :]
    starts = (
        at for at, word in enumerate(words) if is_launcher(word) or word.endswith((".py", ".sh"))
    )  # no workload is called so
    at = next(starts, len(words))
    if at < len(words):
        started = ["python"] if words[at].endswith(".py") else []
        line = shlex.join(["advisor", "profile", *words[:at], "--", *started, *words[at:]])
        raise InvalidInput(f"put -- before a command of your own: `{line}`")
    return words, []


_OF_SCRIPTS = (
    "name", "folder", "env", "measure_env", "steps_per_epoch", "throughput", "seconds_per_step"
)  # fmt: skip


def _script_workload(words: Namespace, command: Sequence[str]) -> list[Workload]:
    """The script that `words` describe, if there is a `command`."""
    if not command:
        for name in _OF_SCRIPTS:
            if getattr(words, name) not in (None, []):  # an empty word or 0 counts, too
                raise InvalidInput(
                    f"--{name.replace('_', '-')} describes a script: give its command after --, "
                    f"e.g. -- python train.py"
                )
        return []
    if words.workloads or words.timm is not None:
        raise InvalidInput("a script is profiled by itself: name no workload before the --")
    script = Script(
        command=tuple(command),
        folder=str((words.folder or Path()).resolve()),
        environment=_variables("--env", words.env),
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
    batch = 1 if words.batch is None else words.batch
    steps = words.steps_per_epoch
    job = Workload(
        name=name, source="script", model=name, family=name, batch=batch, script=script,
        loader_workers=words.loader_workers or 0,
        examples_per_epoch=None if steps is None else steps * batch,
    )  # fmt: skip
    _measured(job, words)  # refuses wrong variables before anything starts
    return [job]


def _measured(job: Workload, words: Namespace) -> Workload:
    """`job` with the variables that are set only while it is measured."""
    if job.script is None:
        return job
    more = _variables("--measure-env", words.measure_env)
    return replace(job, script=replace(job.script, environment=job.script.environment | more))


def _variables(option: str, texts: Sequence[str]) -> dict[str, str]:
    """Variables by name, each given as NAME=VALUE."""
    for text in texts:
        if "=" not in text:
            raise InvalidInput(f"{option} {text}: write NAME=VALUE")
    return {name: value for name, _, value in (text.partition("=") for text in texts)}


_OF_TIMM = (
    "resolution", "classes", "batch", "precision", "execution", "loader_workers", "examples"
)  # fmt: skip


def _timm_workloads(words: Namespace) -> list[Workload]:
    """The model of timm that the words describe, if any."""
    given = {name: getattr(words, name) for name in _OF_TIMM if getattr(words, name) is not None}
    if words.timm is None:
        if given:
            flag = "--" + next(iter(given)).replace("_", "-")
            raise InvalidInput(f"{flag} describes a model of timm: give --timm NAME too.")
        if not words.workloads:
            raise InvalidInput("name a workload, or a model with --timm. `advisor workloads` lists")
        return []
    if lacking := [name for name in ("resolution", "classes", "batch") if name not in given]:
        raise InvalidInput(f"--timm {words.timm} also needs --{' and --'.join(lacking)}.")
    examples = given.pop("examples", None)
    return [timm_workload(words.timm, examples_per_epoch=examples, **given)]


def _profile_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="advisor profile",
        usage="advisor profile [-h] [options] WORKLOAD...\n"
        "       advisor profile [-h] [options] -- python train.py [arguments]",
        description="Measures each workload alone on a GPU and writes DIR/NAME.json: workloads by "
        "name, or a script of your own, started as it is. --mlflow URI logs to MLflow what is "
        "measured.",
        epilog="Exit codes: 0 all measured, 1 some failed, 2 wrong use, 4 no GPU to use.",
    )
    add = parser.add_argument
    add("workloads", nargs="*", metavar="WORKLOAD", help="names; `advisor workloads` lists them")
    add(
        "--device",
        default=DEFAULT_DEVICE,
        help="GPU index or UUID, or cpu to try out [%(default)s]",
    )
    add("--out", type=new_path, metavar="DIR", help="folder of profiles [your own, read by "
        "advisor]")  # fmt: skip
    add("--gpu", metavar="KEY", help="refuse any other GPU model than this, e.g. h200-141gb")
    add(
        "--probe",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="measure it under "
        "MPS limits too, which takes most of the time and predicts limits better [no probe]",
    )
    add("--cores", help="host cores for the processes, e.g. 0-7 [all]")
    add("--deadline", type=ABOVE_0, metavar="S", help="start none that would end later than this")
    add("--patience", type=ABOVE_0, metavar="S", default=LOAD_S, help="end what takes no step "
        "for so long, e.g. while it loads or compiles [300]")  # fmt: skip
    add("--skip-existing", action="store_true", help="leave out what DIR has already")
    add("--data", type=Path, metavar="DIR", help="images that loaders read: a folder for each "
        "class, or CIFAR-10's binary files [made up]")  # fmt: skip
    add("--from-numbers", action="store_true", help="measure nothing; write the numbers "
        "that you have: step time, memory, utilisation; more by --from-numbers --help")  # fmt: skip
    add = parser.add_argument_group("a script of your own, after --").add_argument
    add("--name", help="what its profile is called [its file's or module's]")
    add("--folder", type=Path, metavar="DIR", help="where it runs [here]; it sees a copy, in which "
        "what it writes by relative paths is not kept")  # fmt: skip
    add("--env", action="append", default=[], metavar="NAME=VALUE", help="set for it, and kept in "
        "its profile")  # fmt: skip
    add("--measure-env", action="append", default=[], metavar="NAME=VALUE", help="set for it while "
        "it is measured only, e.g. WANDB_MODE=disabled")  # fmt: skip
    add("--steps-per-epoch", type=int, metavar="N", help="optimizer steps of a pass [its loader's]")
    add("--throughput", metavar="REGEX", help="for what is not PyTorch: finds, as its one group, "
        "the examples a second that it prints")  # fmt: skip
    add("--seconds-per-step", metavar="REGEX", help="the same for the seconds that a step takes; "
        "name the group for milliseconds: '(?P<ms>[0-9.]+)ms/step'")  # fmt: skip
    add = parser.add_argument_group("any model of timm").add_argument
    add("--timm", metavar="NAME", help="its name there, e.g. resnet18")
    add("--resolution", type=int, metavar="PX", help="pixels of an image's side")
    add("--classes", type=int, help="outputs of the classifier")
    add("--batch", type=int, help="images a step; also of a script [its loader's]")
    add("--precision", choices=get_args(Precision), help="[default]")
    add("--execution", choices=get_args(Execution), help="[eager]")
    add("--loader-workers", type=int, metavar="N", help="processes of a data loader [0]; also of "
        "a script [its loader's]")  # fmt: skip
    add("--examples", type=int, metavar="N", help="images of one pass, for epoch times")
    return parser


def run_from_numbers(argv: Sequence[str]) -> int:
    """Write the profile that `argv` describes; return 0.

    Raises:
        InvalidInput: The numbers are impossible, or a profile with more in it is there already.
        SystemExit: The words ask for help (0), or cannot be parsed (2).
    """
    words = _numbers_parser().parse_args(argv)
    card = gpu_meant(words.gpu)
    minimal = MinimalProfile(
        schema=1, workload=words.name, gpu=card.key, batch_size=words.batch_size,
        step_s=words.step_s, memory_mib=words.memory_mib, power_w=words.power_w,
        gpu_utilization=words.gpu_utilization, memory_utilization=words.memory_utilization,
        examples_per_epoch=words.examples_per_epoch,
    )  # fmt: skip
    check_power(minimal.whole(), card)
    if minimal.memory_mib > card.memory_mib:
        raise InvalidInput(
            f"--memory-mib is {minimal.memory_mib:,.0f}, and {card.key} has {card.memory_mib:,}: "
            "no job held that there. Check the number, or --gpu."
        )
    file = f"{minimal.workload}.json"
    path = (words.out or user_folder("profiles") / card.key) / file
    # The user's own profile would hide the one beside the package.
    hidden = [] if words.out else [beside_package("profiles") / card.key / file]
    for fuller in (path, *hidden):
        if is_file(fuller) and not holds_minimal(read_bytes(fuller)):
            raise InvalidInput(
                f"{shown(fuller)}: that profile says more than these numbers. Choose another "
                f"--name."
            )
    write_whole(path, minimal_text(minimal))
    say(f"  {path}")
    return 0


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text[:40]!r} is not a number: write it alone, in the unit that the option names"
        ) from None


def _numbers_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="advisor profile --from-numbers",
        description="Writes DIR/NAME.json from what a training log and nvidia-smi showed of a job "
        "alone on a GPU. Answers for it have wider ranges than for one that was measured.",
        epilog='The file holds {"schema": 1, "workload": "my-job", "gpu": "a100-40gb", '
        '"batch_size": 64, "step_s": 0.12, "memory_mib": 5300, "power_w": 190, '
        '"gpu_utilization": 0.83, "memory_utilization": 0.41}; the last three may be null, and '
        '"examples_per_epoch" may follow. Every command takes its path as a JOB.',
    )
    add = parser.add_argument
    add("--from-numbers", action="store_true", help=argparse.SUPPRESS)
    add("--name", required=True, help="what the job is called")
    default = os.environ.get("ADVISOR_GPU") or None
    add(
        "--gpu", required=default is None, default=default, metavar="KEY",
        help="a GPU that `advisor gpus` lists [env var: ADVISOR_GPU]",
    )  # fmt: skip
    add("--batch-size", required=True, type=int, metavar="N", help="examples a step")
    add("--step-s", required=True, type=_number, metavar="S", help="seconds of a training step")
    add("--memory-mib", required=True, type=_number, metavar="MIB", help="what its process holds")
    add("--power-w", type=_number, metavar="W", help="mean power of the whole GPU")
    add("--gpu-utilization", type=_number, metavar="SHARE", help="nvidia-smi's, 0 to 1")
    add("--memory-utilization", type=_number, metavar="SHARE", help="nvidia-smi's, 0 to 1")
    add("--examples-per-epoch", type=int, metavar="N", help="for epoch times")
    add("--out", type=new_path, metavar="DIR", help="folder of profiles [your own, read by "
        "advisor]")  # fmt: skip
    return parser


# Assumed seconds of a workload before the first has been measured.
_FIRST_S, _FIRST_WITH_PROBE_S = 25.0, 60.0


def run_profile(argv: Sequence[str]) -> int:
    """Profile the workloads in `argv`, under a supervisor; 0, or 1 after listing the failures.

    Raises:
        GpuUnavailable: There is no such GPU, or another process uses it.
        InvalidInput: The request is invalid as a whole, or its only workload is.
        SystemExit: The words ask for help (0), or cannot be parsed (2).
    """
    options, command = _split_command(argv)
    words = _profile_parser().parse_args(options)
    words.workloads += _script_workload(words, command) or _timm_workloads(words)
    device = find_device(words.device)
    refuse_other(device, words.gpu)
    batch = _Batch(words, writable_folder(words.out or user_folder("profiles") / device.key))
    if not batch.todo:
        return batch.verdict()
    cores, line = allowed_cores(words.cores), command_line("profile", argv)
    with bench_on(device, cores, line) as bench:
        batch.measure(bench)
    return batch.verdict()


def idle_power_w(device: Device) -> float | None:
    """Measure the power of a claimed device before anything runs on it; None if not metered."""
    readings_w = power_readings_w(device, 5, 0.1)
    return median(readings_w) if readings_w else None


class _Batch:
    """The workloads still to profile, and the errors of those that failed.

    Attributes:
        todo: Those to measure, in order.
    """

    def __init__(self, words: Namespace, out: Path) -> None:
        self._words = words
        self._out = out
        self._failures: list[tuple[str, AdvisorError]] = []
        self._seconds: list[float] = []
        skip = words.skip_existing
        self.todo = [each for each in self._valid() if not (skip and self._path(each).exists())]
        for job in self.todo:
            writable(self._path(job))

    def _valid(self) -> Iterator[Workload]:
        for name in self._words.workloads:
            try:
                job = workload(name) if isinstance(name, str) else name
                if self._words.data is not None:
                    from advisor.zoo.images import find_images

                    job = job.reading(self._words.data, find_images(self._words.data).count)
                file = self._path(job)
                for path in (file, *self._hidden(file)):
                    _refuse_to_replace(path, job)
                yield job
            except InvalidInput as error:
                self._fail(str(name), error)

    def measure(self, bench: Bench) -> None:
        """Measure and write each, until all are done or the next would pass the deadline."""
        words, began = self._words, monotonic()
        idle_w = idle_power_w(bench.session.device)
        for number, job in enumerate(self.todo):
            next_s = mean(self._seconds or [_FIRST_WITH_PROBE_S if words.probe else _FIRST_S])
            if words.deadline is not None and monotonic() - began + next_s > words.deadline:
                say(f"{len(self.todo) - number} left at the deadline; --skip-existing does them")
                return
            say(f"{number + 1}/{len(self.todo)} {job.name}")
            job_began = monotonic()
            try:
                profile = profile_alone(
                    _measured(job, words), bench, idle_w, probe=words.probe,
                    patience_s=words.patience,
                )  # fmt: skip
                kept = replace(profile.workload, script=job.script)
                profile = replace(profile, workload=kept)
                write_whole(self._path(job), profile_text(profile))
                say(f"  {self._path(job)}")
            except AdvisorError as error:
                self._fail(job.name, error)
                # A client that died can leave an MPS server that accepts no new clients.
                bench.session.close()
            self._seconds.append(monotonic() - job_began)

    def verdict(self) -> int:
        """Print what failed; return the exit code.

        Raises:
            AdvisorError: That of the only workload.
        """
        if not self._failures:
            return 0
        if len(self._words.workloads) == 1:
            raise self._failures[0][1]
        listed = self._failures if self._seconds else []  # else these lines are the last ones
        say(f"{len(self._failures)} of {len(self._words.workloads)} failed{':' * bool(listed)}")
        for name, error in listed:
            say(f"  {name}: {error}")
        return AdvisorError.exit_code

    def _fail(self, name: str, error: AdvisorError) -> None:
        if len(self._words.workloads) > 1:  # a single workload's error is printed at the end
            say(f"  {name} failed: {error}")
        self._failures.append((name, error))

    def _path(self, job: Workload) -> Path:
        return self._out / f"{job.name}.json"

    def _hidden(self, file: Path) -> list[Path]:
        """The shipped profile that the user's own `file` would hide."""
        return (
            [] if self._words.out else [beside_package("profiles") / file.parent.name / file.name]
        )


def _refuse_to_replace(path: Path, job: Workload) -> None:
    """Check that `path` has no profile of another command, or of one in another folder."""
    if not is_file(path) or holds_minimal(content := read_bytes(path)):
        return
    try:
        there = parse_profile(content, shown(path)).workload
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
