"""How good answers are by what the reader has: the first table of docs/accuracy.md, targets."""

from collections.abc import Iterator, Mapping, Sequence

from advisor.report.format import percent
from advisor.sharing import Mode
from research.bare import (
    BY_DCGM,
    BY_DRIVER,
    GPUS,
    OF_A_PANEL,
    OF_BOTH,
    OF_THREE,
    ON_ALL,
    Errors,
    FirstPlans,
    matching,
)
from research.figures import Figures
from research.others import ALL_SLICES, ALONE, GPU_BOUND, RTX_3090, V100, Others
from research.programs import PrintedErrors
from research.regret import MODEL
from research.score_tables import MODE_HEADINGS, MODE_WORDS, markdown
from research.steps import joined
from research.targets import Target


def readers_tables(figures: Figures, others: Others) -> str:
    """Return errors and choices for each description of jobs, in Markdown."""
    chosen = figures.scores.chosen.rules
    rules = [percent(chosen[name].mean) for name in (MODEL, "always-mps") if name in chosen]
    rows, choices = [*_full_rows(figures)], [("a full profile", "the zoo on an H200", *rules)]
    for words, known in (
        ("numbers of nvidia-smi or Prometheus", BY_DRIVER),
        ("numbers of nvidia-smi, and DCGM's counters", BY_DCGM),
    ):
        rows += _rows(words, _CUT, matching(figures.bare.errors, known=known, gpu=GPUS[0]))
        first = matching(figures.bare.choices, known=known, gpu=GPUS[0], among=OF_A_PANEL)
        choices += _choice(words, _CUT, first)
    for described in _elsewhere(others):
        rows += _rows(*described)
    choices += _choice(*_ON_V100, matching(others.first, known=BY_DRIVER))
    return joined(
        markdown(("you have", "measured", "sharing", "error", "in 90 % interval", "p95/p05"), rows),
        "Mean regret of a choice:",
        markdown(("you have", "measured", "our first plan", "always MPS"), choices),
    )


_CUT = "the zoo on an H200, with these numbers only"
_ON_V100 = ("numbers of nvidia-smi on a V100", "pairs of jobs (PEACE)")


def _elsewhere(others: Others) -> Iterator[tuple[str, str, Sequence[Errors]]]:
    """Yield a description of jobs, what was measured and its errors, on other GPUs."""
    for where, gpu_key, group in (
        ("jobs alone that fill an H100, from an H200", GPUS[1], GPU_BOUND),
        ("all jobs alone, other host", GPUS[1], ALONE),
        ("networks of timm alone on an RTX 3090", RTX_3090, ALONE),
    ):
        yield "a profile of another GPU", where, matching(others.errors, gpu=gpu_key, group=group)
    slices = matching(others.errors, group=ALL_SLICES, known=BY_DRIVER)
    yield "numbers of nvidia-smi on an A100", "jobs alone on MIG slices (MISO)", slices
    yield *_ON_V100, matching(others.errors, gpu=V100, known=BY_DRIVER)


def _full_rows(figures: Figures) -> Iterator[tuple[str, ...]]:
    for each in figures.programs:
        if each.kind == "programs" and each.mode in MODE_HEADINGS:
            yield "a full profile", "public scripts on an H100", *_cells(each.mode, each)


def _rows(words: str, where: str, errors: Sequence[Errors]) -> Iterator[tuple[str, ...]]:
    """Yield a line for each sharing, or one for jobs alone."""
    alone = [each for each in errors if each.group not in MODE_HEADINGS]
    by_mode = sorted(errors, key=lambda each: [*MODE_HEADINGS, each.group].index(each.group))
    for each in alone or by_mode:
        yield words, where, *_cells(each.group, each)


def _cells(group: str, errors: Errors | PrintedErrors) -> tuple[str, ...]:
    shares = map(percent, (errors.mape, errors.inside))
    return MODE_HEADINGS.get(group, "alone"), *shares, f"{errors.width:.2f}"


def _choice(words: str, where: str, first: Sequence[FirstPlans]) -> Iterator[tuple[str, ...]]:
    for each in first[:1]:
        yield words, where, percent(each.mean), percent(each.always_mps)


# Largest errors of steps of the zoo by what is known of jobs, and of pairs on a V100.
_BARE: Mapping[str, Mapping[Mode, float]] = {
    BY_DRIVER: {"naive": 0.038, "mps": 0.23, "mps-limits": 0.17},
    BY_DCGM: {"mps": 0.20, "mps-limits": 0.16},
}
_PAIRS: Mapping[Mode, float] = {"naive": 0.065, "mps": 0.11, "mps-limits": 0.08}
_SLICES, _RTX_3090 = 0.07, 0.17
_COVERAGE, _INSIDE = (0.87, 0.93), (0.85, 1.0)
_BARE_WIDTH, _SLICE_WIDTH = 2.8, 1.6
# Largest regrets of first plans; those of full profiles are half a point above 2.0, 1.2 and 0.9 %.
_OF_BOTH, _SLICING_FIRST, _OF_THREE, _OF_PAIRS = 0.007, 0.5, 0.025, 0.025
_IN_FULL = {"sets to choose for": 0.025, "drawn sets": 0.017, "sets on an H100": 0.014}


def readers_targets(figures: Figures, others: Others) -> Iterator[Target]:
    """Yield the targets by what a reader has; those of which nothing was measured are missing."""
    bare = figures.bare
    for known, bounds in _BARE.items():
        for mode, most in bounds.items():
            group = MODE_WORDS[mode]
            for row in matching(bare.errors, known=known, gpu=GPUS[0], group=group):
                name = f"zoo by {known}, {group}"
                yield Target(f"{name}, MAPE", 0.0, most, row.mape)
                yield Target(f"{name}, coverage", *_COVERAGE, row.inside)
                if mode == "mps":
                    yield Target(f"{name}, p95/p05", 0.0, _BARE_WIDTH, row.width)
    for among, most in ((OF_BOTH, _OF_BOTH), (OF_THREE, _OF_THREE)):
        for first in matching(bare.choices, known=BY_DRIVER, among=among, gpu=ON_ALL):
            name = f"first plan by {BY_DRIVER}, {first.sets} sets, {among}"
            yield Target(f"{name}, regret", 0.0, most, first.mean)
            if among == OF_BOTH and first.slicing_best:
                name = f"time-slicing first, of {first.slicing_best} sets where best by over 3 %"
                share = first.slicing_first / first.slicing_best
                yield Target(name, _SLICING_FIRST, 1.0, share)
    judged = (
        figures.scores.chosen,
        figures.scores.drawn,
        *(e.scores.chosen for e in figures.left_out if (e.learnt_on, e.scores.gpu) == GPUS),
    )
    for sets, (words, most) in zip(judged, _IN_FULL.items(), strict=False):
        if sets.sets:
            name = f"first plan by full profiles, {sets.sets} {words}, regret"
            yield Target(name, 0.0, most, sets.rules[MODEL].mean)
    yield from _of_others(others)


def _of_others(others: Others) -> Iterator[Target]:
    for first in matching(others.first, known=BY_DRIVER):
        yield Target("pairs on a V100, first plan, regret", 0.0, _OF_PAIRS, first.mean)
    for mode, most in _PAIRS.items():
        for row in matching(others.errors, gpu=V100, known=BY_DRIVER, group=MODE_WORDS[mode]):
            yield Target(f"pairs on a V100, {row.group}, MAPE", 0.0, most, row.mape)
            if mode == "naive":
                yield Target(f"pairs on a V100, {row.group}, coverage", *_INSIDE, row.inside)
    for row in matching(others.errors, group=ALL_SLICES, known=BY_DRIVER):
        yield Target("slices of an A100, MAPE", 0.0, _SLICES, row.mape)
        yield Target("slices of an A100, coverage", *_INSIDE, row.inside)
        yield Target("slices of an A100, p95/p05", 0.0, _SLICE_WIDTH, row.width)
    for row in matching(others.errors, gpu=RTX_3090):
        yield Target("networks on an RTX 3090, MAPE", 0.0, _RTX_3090, row.mape)
        yield Target("networks on an RTX 3090, coverage", *_INSIDE, row.inside)
