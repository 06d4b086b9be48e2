"""What docs/your-own-train-py.md says of scripts that were measured, from committed scores."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import permutations
from statistics import mean, median
from typing import Any

from advisor.sharing import parse_sharing
from advisor.validate.score_tables import MODE_WORDS, markdown, percent
from research.files import BENCHMARKS
from research.script_score import COMMANDS
from research.sections import joined

Scores = Sequence[Mapping[str, Any]]

Ours = Mapping[tuple[str, str], float]
"""MAPE of the advisor's own workloads by mode, and by whether the GPU or the host paces a job."""

_ALONE = (
    "script", "hook, us a step", "share of a step", "step over its own clock",
    "step over the zoo's", "the GPU's part", "memory",
)  # fmt: skip
_TWINS = (
    "script beside the zoo, by turns", "step", "the GPU's part", "memory",
    "steps of its own profiles", "of the zoo's",
)  # fmt: skip
_TURNS = (
    "script beside the zoo, by turns of a second",
    "step",
    "on the fastest tenth of turns",
    "two processes of it",
    "of the zoo's",
)
_TOGETHER = (
    "measured on an H200, or as said", "steps", "MAPE", "median", "in 90 % interval",
    "our workloads alike",
)  # fmt: skip
_MIXES = "mixes of these scripts"
_OF_ZOO = "scripts-z"
_LEARNT = {
    "profiles alone": "these from the profiles alone, host not checked",
    "no waits": "the same, were it not known when scripts wait for the GPU",
    "runs before": "the same once `advisor fit` knows the runs before each",
}
# Folders of the same plans on hosts of H200s, each another.
_HOSTS = (
    "commands-h200", "commands-h200-later", "commands-h200-copies", "commands-h200-turns",
    "commands-h200-replay",
)  # fmt: skip
_SIZES = {"between": "between sizes that were measured", "beyond": "beyond them, up to 4 times"}


def committed(study: str) -> Any:
    """The score of a study, as it lies in `benchmarks/`."""
    return json.loads((BENCHMARKS / study / "score.json").read_text())


def script_tables(ours: Ours) -> str:
    """All tables in Markdown, from the committed scores, beside the errors of `ours`."""
    scripts = committed("scripts")
    rows = [
        *mixes(scripts["together"], _MIXES),
        *mixes(scripts["by_plan"], "the same by `advisor run`, predicted before"),
        *(line for name, found in scripts["by_commands"].items()
          for line in by_commands(found, COMMANDS[name], ours)),
        *another_host([scripts["by_commands"][name]["by_plan"] for name in _HOSTS]),
        *batches(committed("batch-sizes")),
    ]  # fmt: skip
    return joined(
        alone(scripts["alone"]), twins(scripts["twins"]), turns(scripts["turns"]),
        markdown(_TOGETHER, rows),
    )  # fmt: skip


def alone(scripts: Scores) -> str:
    """Each script by itself: what the hook takes, and its profile beside the same work's."""
    rows = [
        (
            each["script"], f"{each['hook_us']:.0f}", f"{100 * each['hook_share']:.2f} %",
            *(_signed(each[name]) for name in ("own_clock", "step", "on_gpu", "memory")),
        )
        for each in scripts
    ]  # fmt: skip
    return markdown(_ALONE, rows)


def twins(scripts: Scores) -> str:
    """Each script beside the zoo's twin, and how far profiles of one job differ on that host."""
    names = ("step", "on_gpu", "memory")
    rows = [
        (each["script"], *(_signed(each[name]) for name in names),
         *(f"{100 * each[name]:.1f} % apart" for name in ("script_repeats", "zoo_repeats")))
        for each in scripts
    ]  # fmt: skip
    return markdown(_TWINS, rows)


def turns(scripts: Scores) -> str:
    """Each script beside the zoo's twin, and how far two processes of one kind differ."""
    rows = [
        (f"{each['script']}, {each['how']}", *(_signed(each[n]) for n in ("step", "undisturbed")),
         *(f"{100 * each[name]:.1f} % apart" for name in ("scripts", "zoos")))
        for each in scripts
    ]  # fmt: skip
    return markdown(_TURNS, rows)


def mixes(
    steps: Scores, words: str, alike: Callable[[Scores], str] = lambda _: "-"
) -> Iterator[tuple[str, ...]]:
    """Mixes of scripts, each way of sharing a line; then those of the zoo that do the same."""
    scripts = [each for each in steps if not each["run"].startswith(_OF_ZOO)]
    modes = [parse_sharing(each["sharing"]).mode for each in scripts]
    for mode in dict.fromkeys(modes):
        those = [each for each, own in zip(scripts, modes, strict=True) if own == mode]
        yield _line(f"{words}, {MODE_WORDS[mode]}", those, _inside(those), alike(those))
    if zoo := [each for each in steps if each["run"].startswith(_OF_ZOO)]:
        yield _line("two of the zoo that do the same as two of them, all ways", zoo, _inside(zoo))


def by_commands(found: Mapping[str, Any], where: str, ours: Ours) -> Iterator[tuple[str, ...]]:
    """Mixes by the commands alone on one host; steady ones of them; and what runs taught.

    Beside them what our own workloads would be off by, were as many of them paced by the GPU.
    """
    steps, unsteady, filling = (found[name] for name in ("by_plan", "unsteady", "gpu_bound"))

    def alike(those: Scores) -> str:
        kinds = [
            (parse_sharing(each["sharing"]).mode, "gpu" if each["script"] in filling else "host")
            for each in those
        ]
        return percent(mean(ours[kind] for kind in kinds))

    yield from mixes(steps, f"drawn mixes by the commands alone, on {where}", alike)
    spoiled = {each["run"] for each in steps if each["script"] in unsteady}
    steady = [each for each in steps if each["run"] not in spoiled]
    if spoiled and steady:
        words = "of these, mixes without a profile marked as unsteady, all ways"
        yield _line(words, steady, _inside(steady))
    for name, words in _LEARNT.items():
        if before := found["by_runs_before"].get(name):
            yield _line(words, before, _inside(before))


def another_host(hosts: Sequence[Scores]) -> Iterator[tuple[str, ...]]:
    """What a real run on each of `hosts` is off by, taken as what each other will do."""
    apart = [
        {"mode": parse_sharing(here["sharing"]).mode,
         "error": there["measured_s"] / here["measured_s"] - 1}
        for first, second in permutations(hosts, 2) for here in first for there in second
        if (here["run"], here["script"]) == (there["run"], there["script"])
    ]  # fmt: skip
    for mode in dict.fromkeys(each["mode"] for each in apart):
        those = [each for each in apart if each["mode"] == mode]
        words = "such mixes on H200s, by a real run on another host instead of a prediction"
        yield _line(f"{words}, {MODE_WORDS[mode]}", those, "-")


def batches(scores: Scores) -> Iterator[tuple[str, ...]]:
    """Steps at batch sizes that were left out."""
    for each in scores:
        if each["source"] == "whole profiles, batch-sizes" and each["number"] == "step":
            figures = (each["mape"], each["median"], each["inside"])
            words = f"other batch sizes, {_SIZES[each['where']]}"
            yield (words, str(each["sizes"]), *map(percent, figures), "-")


def _inside(steps: Scores) -> str:
    return percent(mean(each["inside"] for each in steps))


def _line(words: str, steps: Scores, inside: str, alike: str = "-") -> tuple[str, ...]:
    errors = [abs(each["error"]) for each in steps]
    return (words, str(len(steps)), percent(mean(errors)), percent(median(errors)), inside, alike)


def _signed(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:+.1f} %"
