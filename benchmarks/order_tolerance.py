"""What it gives away to choose the simplest of plans that are predicted to be nearly as good.

    python benchmarks/order_tolerance.py

The job sets are those that were measured in several ways; each job is predicted by a model that saw
no run with its family. Of each set the simplest way is chosen of those whose predicted throughput
is within a tolerance of the best, for several tolerances: regret is the share of the best measured
throughput that is given away. Then: how far the predicted ratio of two ways to share is from the
measured one, and what sparing jobs that starve gives away. Nothing here is a test.
"""

from collections.abc import Sequence
from itertools import combinations
from math import log
from pathlib import Path
from statistics import mean, median

from advisor.hardware.catalogue import gpu
from advisor.measure.process.cores import allowed_cores
from advisor.plan.precedence import CLOSE, COMPARED, STARVED, how_simple
from advisor.sharing import Serial
from advisor.validate.evaluate import Evaluation, evaluate
from advisor.validate.panels import Panel, PanelOption
from advisor.validate.predicted_and_measured import sharing_of
from advisor.validate.regret import choices
from research.files import measured

GPU = "h200-141gb"
TOLERANCES = (0.0, CLOSE, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.1, 0.15, 0.2)


def chosen(options: Sequence[PanelOption], tolerance: float) -> PanelOption:
    """The simplest of those that cost no more than `tolerance` more than the best."""
    most = max(option.predicted for option in options)
    near = [option for option in options if option.predicted * (1 + tolerance) >= most]
    return min(near, key=lambda option: (how_simple(option.sharing), -option.predicted))


def starving(found: Evaluation) -> set[tuple[tuple[str, ...], str]]:
    """Job sets and ways to share under which a job is predicted to starve."""
    return {
        (tuple(job.job for job in run.jobs), str(sharing_of(run.run)))
        for run in found.advice
        if max(job.predicted_s.p50 / job.alone_s for job in run.jobs) > STARVED
    }


def spared(
    panel: Panel, starves: set[tuple[tuple[str, ...], str]], tolerance: float
) -> PanelOption:
    """The best under which nobody starves, where it costs no more than `tolerance` more."""
    best = chosen(panel.options, 0.0)
    fair = [each for each in panel.options if (panel.names, str(each.sharing)) not in starves]
    kind = chosen(fair, 0.0) if fair else best
    return kind if kind.predicted * (1 + tolerance) >= best.predicted else best


def told(what: str, panels: Sequence[Panel], picked: Sequence[PanelOption]) -> None:
    lost = [panel.regret_of(each.sharing) for panel, each in zip(panels, picked, strict=True)]
    best = [chosen(panel.options, 0.0) for panel in panels]
    other = sum(one is not two for one, two in zip(picked, best, strict=True))
    print(f"{what:32} {mean(lost):6.2%} {max(lost):6.1%}  {other:2} of {len(panels)} chosen anew")


def main() -> None:
    profiles, runs = measured(Path(__file__).parents[1] / "profiles" / GPU)
    found = evaluate(profiles, runs, gpu(GPU), len(allowed_cores()))
    panels = choices(found)
    for tolerance in TOLERANCES:
        told(
            f"within {tolerance:.2%}", panels, [chosen(each.options, tolerance) for each in panels]
        )
    starves = starving(found)
    for tolerance in (0.0, 0.02, COMPARED, *TOLERANCES[-4:]):
        picked = [spared(panel, starves, tolerance) for panel in panels]
        told(f"nobody starves, within {tolerance:.1%}", panels, picked)
    errors = [
        abs(log(one.predicted / two.predicted) - log(one.measured / two.measured))
        for panel in panels
        for one, two in combinations(panel.options, 2)
        if Serial() not in (one.sharing, two.sharing)
    ]
    print(f"ratio of two ways to share: median error {median(errors):.1%} of {len(errors)}")


if __name__ == "__main__":
    main()
