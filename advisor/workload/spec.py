"""Descriptions of work: a workload, the script that starts it, and the program in its command."""

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import Literal, NamedTuple, get_args

from advisor.errors import InvalidInput, check_choice
from advisor.files.units import MOST_COUNT, MOST_LOADER_WORKERS, MOST_MIB, check_number

Precision = Literal["default", "tf32", "amp", "fp16"]
Execution = Literal["eager", "compiled", "graph"]
Source = Literal["timm", "plain", "script", "numbers", "duration"]

# Least and most of each number of a workload.
_BOUNDS: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("batch", "resolution", "classes"), (1, MOST_COUNT)),
    **dict.fromkeys(("sequence_length", "examples_per_epoch"), (1, MOST_COUNT)),
    "table_mib": (1, MOST_MIB),
    "loader_workers": (0, MOST_LOADER_WORKERS),
}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,119}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")

# Set by whatever starts the script, which chooses the GPU and the share of it.
_SET_BY_US = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "CUDA_MPS_")

# Linux refuses a single word beyond 128 KiB (MAX_ARG_STRLEN, execve(2)).
_LONGEST_WORD, _MOST_WORDS = 2**17 - 1, 10_000


def is_name(name: str) -> bool:
    """Return whether a workload can have that `name`, which is also that of its profile's file."""
    return _NAME.fullmatch(name) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """The command that starts a training job of the user's.

    Attributes:
        command: Its words, the program first, e.g. ``("python", "train.py", "--lr", "0.1")``.
        folder: Absolute path of the folder in which it runs.
        environment: Variables that the user gave, by name; added to those inherited.
        throughput: Without torch: a regular expression that finds the examples a second in its
            output, as its only group; None: its steps are counted.
        seconds_per_step: Likewise the seconds of a step; milliseconds of a group called ``ms``.
    """

    command: tuple[str, ...]
    folder: str
    environment: dict[str, str] = field(default_factory=dict)
    throughput: str | None = None
    seconds_per_step: str | None = None

    def __post_init__(self) -> None:
        if not self.command or not self.command[0]:
            raise InvalidInput("a script has a command: a list of words, the program first")
        if len(self.command) > _MOST_WORDS:
            raise InvalidInput(f"a command has {_MOST_WORDS:,} words at most")
        for word in (*self.command, self.folder, *self.environment.values()):
            try:
                possible = "\0" not in word and len(os.fsencode(word)) <= _LONGEST_WORD
            except UnicodeEncodeError:  # half of a character
                possible = False
            if not possible:
                raise InvalidInput(f"the word {word[:40]!r}... cannot be passed to a program")
        if not Path(self.folder).is_absolute():
            raise InvalidInput(f"a script's folder is an absolute path, got {self.folder!r}")
        for name in self.environment:
            if not _VARIABLE.fullmatch(name):
                raise InvalidInput(f"{name!r} is not the name of an environment variable")
            if name.startswith(_SET_BY_US):
                raise InvalidInput(
                    f"{name} is set by the program that starts the job, for its GPU. Leave it out"
                )
        _check_pattern(self.throughput, "the throughput, e.g. '([0-9.]+) images/s'")
        _check_pattern(self.seconds_per_step, "the seconds of a step, e.g. '([0-9.]+)s/it'")

    @property
    def by_steps(self) -> bool:
        """True if its optimizer steps are counted from inside the process."""
        return self.throughput is None and self.seconds_per_step is None

    @property
    def file(self) -> str | None:
        """The file, module or program that its command names; None if that is only code."""
        return program_of(self.command)


def _check_pattern(pattern: str | None, what: str) -> None:
    if pattern is None:
        return
    groups = 0
    with suppress(re.error):
        groups = re.compile(pattern).groups
    if groups != 1:
        raise InvalidInput(f"{pattern!r}: write a regular expression with one group for {what}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One training job.

    Attributes:
        name: Stem of the profile's file, e.g. ``"resnet50-imagenet64-bs128"``; no slash.
        source: ``"timm"``: `model` is timm's name; ``"plain"``: one of `advisor.zoo`; of the user's
            ``"script"``, ``"numbers"`` (no more is known) or ``"duration"`` (a nominal step).
        model: Which model, e.g. ``"resnet50"`` or ``"gpt2-small"``.
        family: One architecture in several sizes, e.g. ``"resnet"``, which evaluation leaves out.
        batch: Examples a step.
        precision: ``"default"`` as torch does, ``"tf32"`` with both switches on, ``"amp"`` under
            bf16 autocast, ``"fp16"`` under fp16 autocast with scaled gradients.
        execution: ``"eager"``, ``"compiled"`` by `torch.compile`, or ``"graph"``: the whole step
            captured once as a CUDA graph, then replayed.
        loader_workers: Processes of a `DataLoader`; 0: the input is already on the GPU.
        resolution: Pixels of an image's side; None if the input is not an image.
        sequence_length: Tokens or frames an example; None if the input is not a sequence.
        table_mib: Size of the embedding tables; None if there are none.
        data: Absolute path of the folder of images that it reads; None: its input is made up.
        shared_loader: Whether its batches come from one data loader, together with those of the
            other jobs that read the same data.
        script: What is started, also instead of a workload of the zoo; None: nothing of the user's.
            Two workloads are equal whatever starts them: other arguments train as fast.
    """

    name: str
    source: Source
    model: str
    family: str
    batch: int
    precision: Precision = "default"
    execution: Execution = "eager"
    loader_workers: int = 0
    resolution: int | None = None
    classes: int | None = None
    sequence_length: int | None = None
    table_mib: int | None = None
    examples_per_epoch: int | None = None
    data: str | None = None
    shared_loader: bool = False
    script: Script | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if not is_name(self.name):
            raise InvalidInput(
                f"{self.name!r} is not a name of a workload: use up to 120 of a-z, A-Z, 0-9 and "
                "._+-, with a letter or digit first"
            )
        for name, allowed in (("precision", Precision), ("execution", Execution)):
            check_choice(f"{self.name}: {name}", getattr(self, name), get_args(allowed))
        if self.source == "script" and self.script is None:
            raise InvalidInput(f"{self.name}: a script of the user's has a command")
        if self.data is not None and not Path(self.data).is_absolute():
            raise InvalidInput(f"{self.name}: its data lies at an absolute path, not {self.data!r}")
        for name, (least, most) in _BOUNDS.items():
            if (count := getattr(self, name)) is not None:
                check_number(f"{self.name}: {name}", count, most, least)

    def reading(self, folder: Path, images: int) -> "Workload":
        """Return the same on the `images` that lie in `folder`, under a name that says so."""
        if self.resolution is None:
            raise InvalidInput(
                f"{self.name}: its input is not an image, so it cannot read a folder of images"
            )
        if self.loader_workers == 0:
            raise InvalidInput(
                f"{self.name}: reading files needs a data loader. Add -loader4 to the name, or "
                "pass --loader-workers 4."
            )
        return replace(
            self, name=f"{self.name}-files", data=str(folder.resolve()), examples_per_epoch=images
        )

    @property
    def is_bare(self) -> bool:
        """Whether only numbers of it are known, not what it trains."""
        return self.source in ("numbers", "duration")

    def check_startable(self) -> None:
        """Check that something here can start and watch it: that not only numbers are known."""
        if self.is_bare and self.script is None:
            raise InvalidInput(
                f"{self.name}: its profile is bare numbers without a command. Set the command in "
                "a job file, leave the job out, or run it yourself: `advisor export JOB...`"
            )
        if self.source == "duration":
            raise InvalidInput(
                f"{self.name}: its profile has no step time for a comparison. Pass --step-s, or "
                "start the job yourself, e.g. by `advisor export`"
            )

    @property
    def steps_per_epoch(self) -> int | None:
        """Training steps of one pass, the last batch included; None if its length is unknown."""
        if self.examples_per_epoch is None:
            return None
        return -(-self.examples_per_epoch // self.batch)

    @property
    def cores(self) -> int:
        """Host cores that it keeps busy: one for the step, one for each loader worker."""
        return 1 + self.loader_workers


# As `advisor.workload.catalogue` writes them, and as users' own profiles may be called.
_NAMED = re.compile(r"(?P<head>.+)-bs(?P<batch>[1-9]\d{0,5})(?P<tail>(?:-.*)?)")


class BatchName(NamedTuple):
    """A name that says its batch size; `stem` is what all sizes have in common."""

    stem: str
    batch: int
    tail: str

    def at(self, batch: int) -> str:
        """Return the name at another batch size."""
        return f"{self.stem}-bs{batch}{self.tail}"

    @property
    def work(self) -> str:
        """The name without any size."""
        return f"{self.stem}{self.tail}"


def batch_name(name: str) -> BatchName | None:
    """Return `name` in its parts; None if it does not say a batch size."""
    match = _NAMED.fullmatch(name)
    return None if match is None else BatchName(match["head"], int(match["batch"]), match["tail"])


_PYTHON = r"python[0-9.]*t?|pypy[0-9.]*"
_SHELL = r"bash|dash|ksh|zsh|sh"
# Programs that do what a file says under a name, by which it is called.
_RUNNER = r"make|gmake|just|task|tox|nox|inv|invoke"
_WITH_VALUE = ("-C", "-f", "-j", "-e", "-s")  # options of these that a value follows
# Programs that start the one that is meant: no profile is called after them.
_LAUNCHER = re.compile(
    rf"{_PYTHON}|{_SHELL}|env|nohup|time|nice|ionice|setsid|exec|timeout|stdbuf|taskset|numactl|"
    r"sudo|xvfb-run|torchrun|accelerate|deepspeed|colossalai|composer|horovodrun|mpirun|mpiexec|"
    r"srun|uv|uvx|conda|mamba|micromamba|pixi|poetry|pipenv|pdm|hatch|rye|apptainer|singularity|"
    rf"docker|podman|{_RUNNER}"
)
_SETTING = re.compile(r"-.*|[A-Za-z_]\w*=.*", re.DOTALL)  # an option, or a variable of env
_MODULE = re.compile(r"[A-Za-z_][\w.]*")
# Launchers that start a program by the Python that its command names, or that is next to them.
_AS_NAMED = "env|nohup|time|nice|ionice|setsid|timeout|stdbuf|taskset|numactl"
_NEXT_TO = "torchrun|accelerate|deepspeed"
# Modules that run the program that follows them.
_LAUNCHING_MODULES = (
    "torch.distributed.run",
    "torch.distributed.launch",
    "accelerate.commands.launch",
    "cProfile",
    "profile",
    "pdb",
    "trace",
    "coverage",
    "debugpy",
    "kernprof",
)


def is_launcher(word: str) -> bool:
    """Return whether `word` is a program that starts the one that is meant, e.g. ``python3``."""
    return _LAUNCHER.fullmatch(PurePath(word).name) is not None


def is_shell(word: str) -> bool:
    """Return whether `word` is a shell, e.g. ``/bin/bash``."""
    return re.fullmatch(_SHELL, PurePath(word).name) is not None


def program_of(command: Sequence[str]) -> str | None:
    """Return the file, module or program that a command trains by; None if it names only code."""
    launcher = before = ""
    for word in command:
        if is_launcher(word):
            launcher = PurePath(word).name
        elif launcher and before in ("-m", "--module") and _MODULE.fullmatch(word):
            if word not in _LAUNCHING_MODULES:
                return word
        elif before == "-c" and is_shell(launcher):
            try:  # e.g. ``cd here && python train.py``
                return program_of(["sh", *shlex.split(word, comments=True)])
            except ValueError:  # a quote that is not closed
                return None
        elif before == "-c" and re.fullmatch(_PYTHON, launcher):
            return None
        elif _is_program(launcher, before, word):
            return word
        before = word
    return None if is_launcher(command[0]) else command[0]


def python_of(command: Sequence[str]) -> str | None:
    """Return the Python that a command names; None if it names none, or uv or a shell chooses."""
    program = program_of(command)
    for word in command:
        name = PurePath(word).name
        if re.fullmatch(_PYTHON, name):
            return word
        if re.fullmatch(_NEXT_TO, name):
            return str(PurePath(word).with_name("python"))
        if word == program or (is_launcher(word) and not re.fullmatch(_AS_NAMED, name)):
            return None
    return None


def _is_program(launcher: str, before: str, word: str) -> bool:
    """Whether `word`, after the word `before`, is the file or the target that `launcher` starts."""
    if _SETTING.fullmatch(word):
        return False
    if re.fullmatch(_RUNNER, launcher):
        return before not in _WITH_VALUE
    return bool(launcher) and word.endswith((".py", ".sh"))


_SECRET = re.compile("KEY|TOKEN|SECRET|PASSW|CREDENTIAL", re.IGNORECASE)
# Whole words of an option: --max-tokens and --tokenizer are of every language model.
_SECRET_OPTION = re.compile(
    "--?([^=]*[-_])?(api)?(key|token|secret|passw[a-z]*|credentials?)(=.*)?", re.IGNORECASE
)


def is_secret(name: str) -> bool:
    """Return whether the name of a variable says that its value is secret."""
    return _SECRET.search(name) is not None


def secret_options(command: Sequence[str]) -> tuple[str, ...]:
    """Return the options in `command` whose names say that their values are secret."""
    words = (word for word in command if _SECRET_OPTION.fullmatch(word))
    return tuple(dict.fromkeys(word.partition("=")[0] for word in words))


def masked_words(command: Sequence[str]) -> Iterator[str]:
    """Yield `command` for others to see: values of options that are secret by name are hidden."""
    hides_next = False
    for word in command:
        secret = _SECRET_OPTION.fullmatch(word) is not None
        if secret and "=" in word:
            yield f"{word.partition('=')[0]}=***"
        else:
            yield "***" if hides_next and not word.startswith("-") else word
        hides_next = secret and "=" not in word


def secrets_held(
    workloads: Iterable[Workload], *, variables: bool, text: str | None = None
) -> Iterator[str]:
    """Yield a line to warn with if a plan of `workloads` holds secrets.

    Without `variables`, the plan leaves these to its user. `text` is that of the plan if not
    every form of it holds the jobs' commands.
    """
    names: list[str] = []
    for script in filter(None, (workload.script for workload in workloads)):
        options = secret_options(script.command)
        names += [name for name in options if text is None or name in text]
        names += filter(is_secret, script.environment) if variables else ()
    if names:
        yield (
            f"the plan contains the values of {', '.join(dict.fromkeys(names))}. Keep the file "
            "private, or remove them from the job file and set the variables where the plan runs: "
            "jobs inherit them."
        )
