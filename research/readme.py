"""README's generated blocks: the walk of a script, an A100, a comparison, and the accuracy."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from advisor.report.format import percent
from advisor.sharing import SHARED_MODES
from research.figures import Figures
from research.files import ROOT
from research.headline import pooled_zoo
from research.programs import PrintedErrors
from research.regret import MODEL, Choices
from research.score_tables import MODE_WORDS, markdown
from research.scoreboard import Scores
from research.scripts import ScriptErrors
from research.steps import joined
from research.terminal_output import terminal_output

_OTHER_GPU = "a100-40gb"
# A line of what each command printed, and how README puts it.
_PRINTED = {
    "profile": (r"^ *(\S+ ms) a step$", r"a step takes \1 alone"),
    "recommend": (r"^(Use .*)\.$", r"\1"),
    "compare": (r"^> (\S+) .*? (\S+x \([^)]*\)(?: tie)?)", r"\1: gain over time-slicing \2"),
    "validate": (r"^(mps\S*) +(\S+x) +(\S+x) ", r"\1: gain \2 predicted, \3 measured"),
    "export": (r"^(\S+): written.*", r"\1"),
    "run": (r"^ *(\d+) \S+: done, (\S+) steps\Z", r"\1 jobs ended, each after \2 steps"),
}
# What people would do otherwise, each with the rule that chooses so.
_OTHERWISE = {
    "**`advisor`**": (MODEL, "a profile of each job"),
    "fair share: each job has its part of the GPU": ("fair-share", "the GPU time of each job"),
    "MISO's rule, as we read it": ("miso", "steps of each job under MPS limits"),
    "KACE's regression, as we read it": ("kace", "counters of each job, and measured mixes"),
    "always MPS": ("always-mps", "nothing"),
    "add up the utilization of `nvidia-smi`": ("summed-utilisation", "it for each job"),
    "start all at once: time-slicing": ("always-naive", "nothing"),
    "one after another": ("always-serial", "nothing"),
}


def readme_blocks(figures: Figures) -> Mapping[str, str]:
    """Return README's marked blocks but for those that other documents have too."""
    record = json.loads((ROOT / "benchmarks" / "own-environment.json").read_text())
    return {
        "ranges": ranges_sentence(figures.programs),
        "walk": walk_text(record),
        "other-gpu": other_gpu_text(record["profile"]),
        "comparison": comparison_table(figures.scores.chosen),
        "accuracy": accuracy_in_short(figures.programs, figures.scripts, figures.scores),
    }


def walk_text(record: Mapping[str, Any]) -> str:
    """Return the time of each command for a script, and a line of its output, in Markdown.

    Args:
        record: What `benchmarks/own_environment.py` wrote.
    """
    rows = []
    for step in record["steps"]:
        name, _, words = step["command"].partition(" ")
        verb = words.partition(" ")[0]
        if name == "advisor" and verb in _PRINTED:
            pattern, words = _PRINTED[verb]
            line = re.search(pattern, "\n".join(step["printed"]), re.MULTILINE)
            assert line is not None, f"no line of `{verb}` is as expected"
            rows.append((f"`{verb}`", f"{step['seconds']:.0f} s", line.expand(words)))
    sentence = (
        f"Measured on an {record['device']}, with Python {record['python']} and torch "
        f"{record['torch']}:"
    )
    return joined(sentence, markdown(("command", "took", "result"), rows))


def other_gpu_text(profile: str) -> str:
    """Return what `recommend` prints for three copies of a job on a GPU that we do not have.

    Args:
        profile: File of its profile on another GPU, below the root of the project.
    """
    measured = json.loads((ROOT / profile).read_text())
    command = " ".join(measured["workload"]["script"]["command"])
    lines = terminal_output(["recommend", f"{profile}:3", "--gpu", _OTHER_GPU], 100)
    table = next(at for at, line in enumerate(lines) if line[2:].startswith("one after"))
    shown = [line for line in lines[: table + 5] if not line.startswith("warning")]
    sentence = (
        f"We have no A100. For `{command}`, profiled on an {measured['provenance']['device']}, "
        f"`recommend --gpu {_OTHER_GPU}` estimates:"
    )
    return "\n".join([sentence, "", "```", *shown, "```"])


def comparison_table(judged: Choices) -> str:
    """Return the throughput that ways to choose a plan give away, in Markdown."""
    ours = judged.rules[MODEL]
    rows = [
        (words, percent(rule.mean), percent(rule.worst), lacks)
        for words, (name, lacks) in _OTHERWISE.items()
        if (rule := judged.rules[name]).n
    ]
    return joined(
        f"We ran {ours.n} job sets in several ways. `recommend` put the fastest first for "
        f"{ours.best} of them. Each choice gave away so much of the best measured throughput:",
        markdown(("choice by", "mean", "worst", "needs"), rows),
    )


def accuracy_in_short(
    programs: Iterable[PrintedErrors], scripts: Iterable[ScriptErrors], scores: Scores
) -> str:
    """Return a line for each kind of steps in Markdown: public programs, scripts, then the zoo."""
    rows = []
    alone = {}
    of_scripts = {row.name: row for row in scripts}
    for kind, words in (("programs", "**public training scripts**"), ("zoo", "zoo, same hosts")):
        by_mode = {row.mode: row for row in programs if row.kind == kind}
        rows.append(_short_row(words, by_mode, by_mode["all"]))
        alone[kind] = by_mode["all"].alone
    rows.insert(1, _short_row("example scripts", of_scripts, of_scripts["all"]))
    for line in pooled_zoo(scores):
        errors = (line.pooled(lambda row: row.mape, mode) for mode in SHARED_MODES)
        inside = line.pooled(lambda row: row.coverage90)
        rows.append(("zoo, all runs", str(line.n()), *map(percent, (*errors, inside))))
    headings = ("jobs", "steps", "time-slicing", "MPS", "SM limits", "in 90 % interval")
    return joined(
        markdown(headings, rows),
        f"A step alone changes within minutes on the same host: by {percent(alone['programs'])} "
        f"(public scripts) and {percent(alone['zoo'])} (zoo). No prediction foresees that.",
    )


def _short_row(
    words: str,
    by_mode: Mapping[str, PrintedErrors | ScriptErrors],
    of_all: PrintedErrors | ScriptErrors,
) -> tuple[str, ...]:
    rows = (by_mode.get(MODE_WORDS[mode]) for mode in SHARED_MODES)
    errors = [row.mape if row else None for row in rows]
    return (words, str(of_all.steps), *map(percent, (*errors, of_all.inside)))


def ranges_sentence(programs: Iterable[PrintedErrors]) -> str:
    """Return how many steps of public scripts lie inside their ranges, in all and time-sliced."""
    inside = {row.mode: row.inside for row in programs if row.kind == "programs"}
    return (
        f"Parentheses give the 90 % interval. Of the measured steps of public training scripts, "
        f"{percent(inside['all'])} lie inside; time-sliced, {percent(inside[MODE_WORDS['naive']])}."
    )
