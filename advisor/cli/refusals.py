"""Answers to wrong words: one sentence, with the corrected command if one alone can be meant."""

import re
import shlex
import sys
import traceback
from collections.abc import Mapping, Sequence
from itertools import pairwise, takewhile
from typing import Any, NoReturn

from advisor.cli.output import aside
from advisor.errors import AdvisorError, InvalidInput, OutsideInterval, UnknownName

# Typer's messages about a word that is not a number, and ours.
_PLAINER = {
    "Input should be a valid number, unable to parse string as a number": (
        "expected a number without a unit, such as 3"
    ),
    "Input should be a valid integer, unable to parse string as an integer": (
        "expected a whole number without a unit, such as 4"
    ),
    "Input should be a valid boolean, unable to interpret input": "write 1 or 0",
    "Input should be greater than or equal to": "expected at least",
    "Input should be less than or equal to": "expected at most",
    "Invalid value for '(.*?)': ": r"\1: ",
    "Missing argument '(.*)'": r"expected \1",
    "Option '(.*)' requires an argument": r"\1 needs a value after it",
}

_ASK_PREDICT = "Use --objective energy; `advisor predict` prints the joules of a step."
_OBJECTIVES = {
    "energy-epoch": _ASK_PREDICT,
    "energy-example": _ASK_PREDICT,
    "fairness": "Use --objective throughput; `advisor recommend --protect JOB` keeps a job fast.",
}

_BATCH_OPTIONS = "Use `advisor predict JOB-bsN --sharing mig=1g.18gb` for the pace at a batch size."

REMOVED: Mapping[str, str] = {
    **{
        f"{command} --objective {objective}": instead
        for command in ("recommend", "compare", "export", "validate")
        for objective, instead in _OBJECTIVES.items()
    },
    "batch --batches": _BATCH_OPTIONS,
    "batch --details": _BATCH_OPTIONS,
    "confirm": "Run your own jobs and compare them with predictions: advisor validate JOB.",
    "explain": "Use `advisor compare PLAN PLAN JOB`, of two plans or more.",
    "status": "Use `advisor run --list`, or `advisor run RUN` to watch a run.",
    "restore": "Use `advisor doctor --undo`.",
    "run --resume": "Use `advisor run RUN`.",
    "estimate-memory": "Profile the workload for a minute instead: advisor profile WORKLOAD.",
    "profile --from-mlflow": "Describe the job by the numbers that its log and nvidia-smi show: "
    "advisor profile --from-numbers.",
    "profile --to-end": "Let the program print its pace: advisor profile --throughput REGEX.",
    "recommend --time-limit": "A search ends by its work, so that the same question has the same "
    "answer: --effort 4 searches four times as long.",
    "reproduce": "notebooks/the_studies_reproduced.ipynb shows every row of the studies.",
    "translate": "Any command translates a profile of another GPU by itself: name the profile or "
    "its file, and the GPU: advisor predict JOB --gpu GPU.",
    "watch": "Read its memory and power from nvidia-smi and its step from its log: "
    "advisor profile --from-numbers.",
}
"""Remedies by a removed command, or a removed option of one (``"profile --to-end"``)."""


def check_words(words: Sequence[str]) -> None:
    """Refuse a command line with what was removed, or with spaces in the notation of a sharing.

    Raises:
        InvalidInput: It has a removed command, option, or value of an option; or such spaces.
    """
    command, *rest = words or [""]
    options = [word for word in rest if word.startswith("--")]
    named = [option.partition("=")[0] for option in options]
    values = [*map(" ".join, pairwise(rest)), *(each.replace("=", " ", 1) for each in options)]
    for key in (command, *(f"{command} {option}" for option in (*named, *values))):
        if key in REMOVED:
            raise InvalidInput(f"`advisor {key}` is no longer there. {REMOVED[key]}")
    for at, word in enumerate(rest, start=1):
        if (beginning := _CUT_UP.fullmatch(word)) is None:
            continue
        parts = list(takewhile(_PART.fullmatch, words[at + 1 :]))
        if parts and ("=" in word or "=" in parts[0] or len(parts) > 1):
            limits = re.findall(r"[^\s=,]+", " ".join([beginning["limits"], *parts]))
            whole = f"{beginning['way']}={','.join(limits)}"
            right = [*words[:at], whole, *words[at + 1 + len(parts) :]]
            raise InvalidInput(
                f"{' '.join([word, *parts])}: a sharing has no spaces. Write `{_line(right)}`."
            )


# A sharing that was cut up at its spaces: how it begins, and its other parts.
_CUT_UP = re.compile(r"(?P<way>(?:--sharing=)?(?:mps|mig))(?P<limits>=?[\d.,%gb@]*)")
_PART = re.compile(r"[=,]*(?:\d+(?:\.\d+)?%?|\dg(?:\.\d+gb)?(?:@\d)?)?[,%]*")

# Of typer: words where a command has no argument, and a word that is none of several.
_EXTRA = re.compile(r"Got unexpected extra arguments?(?:\(s\))? \((.+)\)")
_CHOICE = re.compile(r"Invalid value for '?(?P<of>.+?)'?: '(?P<word>.*)' is not one of (?P<all>.*)")
# Words that people use for a choice.
_MEANT = {
    "time": "makespan", "total-time": "makespan", "speed": "makespan", "latency": "mean-completion",
    "jct": "mean-completion", "power": "energy", "joules": "energy", "fair": "throughput",
    **dict.fromkeys(("bash", "sh", "shell", "script"), "commands"),
    **dict.fromkeys(("k8s", "kube", "kubectl"), "kubernetes"), "dra": "kubernetes-dra",
    "sbatch": "slurm", "fifo": "first-come", "fcfs": "first-come", "sjf": "shortest-first",
}  # fmt: skip


def usage_error(error: Exception, words: Sequence[str]) -> AdvisorError:
    """Return what typer found wrong with `words` in plain words; another exception is raised."""
    if (message := getattr(error, "format_message", None)) is None:
        raise error
    text = message().replace("Value error, ", "").rstrip().removesuffix(".")
    context = getattr(error, "ctx", None)
    help_of = context.command_path if context is not None else "advisor"
    see = f"See `{help_of} -h`."
    if choice := _CHOICE.fullmatch(text):
        known = re.findall(r"'([^']*)'", choice["all"])
        kind = choice["of"].lstrip("-").lower()
        return UnknownName(kind, choice["word"], known, f"Use {', '.join(known)}.", _MEANT)
    if context is not None and (unknown := re.match(r"No such command '(.*?)'", text)):
        return UnknownName("command", unknown[1], context.command.commands, see)
    if context is not None and (option := getattr(error, "option_name", None)) and "such" in text:
        return _unknown_option(option, context, words)
    if context is not None and (extra := _EXTRA.fullmatch(text)):
        named = any("--gpu" in each.opts for each in context.command.params)
        text = f"`{help_of}` accepts no argument {extra[1]!r}"
        text += f"; name a GPU by --gpu {extra[1].split()[0]}" if named else ""
    for theirs, ours in _PLAINER.items():
        text = re.sub(theirs, ours, text)
    return InvalidInput(f"{text}{'' if text.endswith('?') else '.'} {see}")


def _unknown_option(option: str, context: Any, words: Sequence[str]) -> AdvisorError:
    """Return the error for an option that the command of `context` lacks."""
    kind, see = f"option of `{context.command_path}`", f"See `{context.command_path} -h`."
    script = next((word for word in words if word.endswith(".py")), None)
    if script is not None:
        see = f"For options of {script}, run `advisor profile -- python {script} ...`. {see}"
    commands = getattr(getattr(context.parent, "command", None), "commands", {})
    having = [
        f"`advisor {name}`" for name, each in commands.items()
        if any(option in param.opts for param in each.params)
    ]  # fmt: skip
    if having:
        return InvalidInput(f"{option} is not an {kind}, but of {', '.join(having)}. {see}")
    own = {name for param in context.command.params for name in param.opts if "--" in name}
    return UnknownName(kind, option, own, see)


def fail(error: AdvisorError, words: Sequence[str], *, debug: bool) -> NoReturn:
    """Print an error, and the corrected `words` if one name alone can be meant; exit."""
    if debug:
        aside(traceback.format_exc(), keep="\n")
    text = str(error)
    if isinstance(error, UnknownName) and error.meant is not None:
        # The name may stand before copies or after an option.
        wrong = re.compile(rf"^(--[\w-]+=)?{re.escape(error.name)}(?=[:@=]|$)")
        meant = error.meant
        right = [wrong.sub(lambda match: f"{match[1] or ''}{meant}", word) for word in words]
        if right != list(words):
            text = f"{error.problem}. Did you mean `{_line(right)}`?"
    # Steps outside their intervals are listed, one a line.
    aside(f"error: {text}", keep="\n" if isinstance(error, OutsideInterval) else "")
    sys.exit(error.exit_code)


def _line(words: Sequence[str]) -> str:
    return f"advisor {shlex.join(words)}"
