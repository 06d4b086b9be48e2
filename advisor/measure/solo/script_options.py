"""The options of ``advisor profile`` about a script of the user's, and what was found of it."""

import argparse
import re
import shlex
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from advisor.errors import InvalidInput
from advisor.workload.spec import Script, Workload, is_name

# What a command begins with; no workload is called so.
_STARTS = re.compile(r"(.*/)?(python[0-9.]*|torchrun|accelerate|deepspeed|bash|sh)|.*\.(py|sh)")


def split_command(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words before the first ``--``, and the command after it.

    Raises:
        InvalidInput: There is no ``--``, and a command among the words.
    """
    words = list(argv)
    if "--" not in words:
        _refuse_command(words)
        return words, []
    at = words.index("--")
    return words[:at], words[at + 1 :]


def _refuse_command(words: Sequence[str]) -> None:
    at = next((at for at, word in enumerate(words) if _STARTS.fullmatch(word)), None)
    if at is None:
        return
    started = [] if not words[at].endswith(".py") else ["python"]
    asked = shlex.join(["advisor", "profile", *words[:at], "--", *started, *words[at:]])
    raise InvalidInput(f"put -- before a command of your own: `{asked}`")


def add_script_options(group: "argparse._ArgumentGroup") -> None:
    """Add what describes a script to the words of a command line."""
    add = group.add_argument
    add("--name", help="what its profile is called [its file's]")
    add("--folder", type=Path, metavar="DIR", help="where it runs [here]; it sees a copy, in which "
        "what it writes by relative paths is not kept")  # fmt: skip
    add("--env", action="append", default=[], metavar="NAME=VALUE", help="set for it, and kept in "
        "its profile")  # fmt: skip
    add("--steps-per-epoch", type=int, metavar="N", help="optimizer steps of a pass [its loader's]")
    add("--throughput", metavar="REGEX", help="for what is not PyTorch: finds, as its one group, "
        "the examples a second that it prints")  # fmt: skip


_OF_SCRIPTS = ("name", "folder", "env", "steps_per_epoch", "throughput")


def script_workload(asked: Namespace, command: Sequence[str]) -> list[Workload]:
    """The script that the words describe, if there is a `command`.

    Raises:
        InvalidInput: They contradict each other, or it cannot be started so.
    """
    if not command:
        _refuse_script_options(asked)
        return []
    if asked.workloads or asked.timm is not None:
        raise InvalidInput("a script is profiled by itself: name no workload before the --")
    script = Script(
        command=tuple(command),
        folder=str((asked.folder or Path()).resolve()),
        environment=dict(map(_variable, asked.env)),
        throughput=asked.throughput,
    )
    name = _name_of_file(script) if asked.name is None else asked.name
    batch = 1 if asked.batch is None else asked.batch
    steps = asked.steps_per_epoch
    return [
        Workload(
            name=name, source="script", model=name, family=name, batch=batch, script=script,
            loader_workers=asked.loader_workers or 0,
            examples_per_epoch=None if steps is None else steps * batch,
        )
    ]  # fmt: skip


def _refuse_script_options(asked: Namespace) -> None:
    given = [name for name in _OF_SCRIPTS if _is_said(getattr(asked, name))]
    if given:
        flag = "--" + given[0].replace("_", "-")
        raise InvalidInput(
            f"{flag} describes a script: give its command after --, e.g. -- python train.py"
        )


def _name_of_file(script: Script) -> str:
    found = Path(script.file or script.command[0]).stem
    if not is_name(found):
        raise InvalidInput(f"{found!r} cannot be what its profile is called: say --name NAME")
    return found


def _is_said(value: object) -> bool:
    """Whether an option was given, also where it says nothing, as an empty word or 0."""
    return value is not None and value != []


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise InvalidInput(f"--env {text}: write NAME=VALUE")
    return name, value


def training_text(workload: Workload) -> str:
    """What a script was found to train on, in words, or how to say it where nothing tells."""
    examples = (
        f"{workload.batch:,} examples" if workload.batch > 1 else "no loader's batch: --batch N"
    )
    steps = workload.steps_per_epoch
    epoch = "of unknown length: --steps-per-epoch N" if steps is None else f"{steps:,} steps"
    return f"a step has {examples}; an epoch, {epoch}; loader workers: {workload.loader_workers}"


def described(workload: Workload, found: Mapping[str, Any] | None) -> Workload:
    """`workload` with what was `found` of a script where the user did not say it.

    Args:
        workload: Of a batch of 1 and without loader workers where these were not said.
        found: As the hook of a script answers; None: there is none.
    """
    if found is None:
        return workload
    batch = workload.batch if workload.batch > 1 else found["batch"] or 1
    steps = workload.steps_per_epoch or found["steps_per_epoch"]
    return replace(
        workload,
        batch=batch,
        examples_per_epoch=None if steps is None else steps * batch,
        loader_workers=workload.loader_workers or found["loader_workers"],
        precision=found["precision"],
        execution=found["execution"],
    )
