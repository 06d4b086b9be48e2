"""How far the simulator is off for whole jobs, and what choosing by it gives away."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from statistics import mean, median

import numpy as np

from advisor.collocation.plans import FullRun
from advisor.english import counted, is_or_are
from advisor.prediction.model import is_gpu_bound
from advisor.sharing import Group, Mps, Naive
from advisor.simulation.repartition import repartition_s
from advisor.validation.choosers import CHOOSERS, Offer
from advisor.validation.completion import CompletionComparison, panels
from advisor.validation.findings import Findings
from advisor.validation.regret import HEADINGS as REGRET_HEADINGS
from advisor.validation.words import MODE_WORDS, RULE_WORDS, markdown, percent
from advisor.workload.profile import Profile

RECOMMENDED, SIMULATED = "recommended", "simulated"
MODES = ("serial", "naive", "mps", "mps-limits", "phases")
HEADINGS = (
    "sharing", "runs", "jobs", "makespan, mean error", "worst", "completion times, mean error",
    "P90", "in 90 % interval", "makespan, family unseen", "completion times, family unseen",
)  # fmt: skip

_WORDS = {
    **MODE_WORDS,
    **RULE_WORDS,
    "serial": "one after another",
    "phases": "in phases",
    RECOMMENDED: "recommended beforehand",
    SIMULATED: "shortest simulated of those run",
}
_BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@dataclass(frozen=True, slots=True)
class Finished:
    """Errors over the runs of one mode, as shares; None where there is no run."""

    runs: Sequence[CompletionComparison]

    @property
    def makespan(self) -> float | None:
        return mean(self._makespans) if self.runs else None

    @property
    def worst_makespan(self) -> float | None:
        return max(self._makespans, default=None)

    @property
    def completion(self) -> float | None:
        return mean(self._ends) if self.runs else None

    @property
    def p90(self) -> float | None:
        return float(np.quantile(self._ends, 0.9)) if self.runs else None

    @property
    def inside(self) -> float | None:
        return sum(run.inside for run in self.runs) / len(self._ends) if self.runs else None

    @property
    def jobs(self) -> int:
        return len(self._ends)

    @property
    def _makespans(self) -> list[float]:
        return [abs(run.makespan_error) for run in self.runs]

    @property
    def _ends(self) -> list[float]:
        return [abs(error) for run in self.runs for error in run.errors]


def finished(runs: Iterable[CompletionComparison], mode: str) -> Finished:
    """The runs of `mode` among `runs`."""
    return Finished([run for run in runs if run.mode == mode])


def section(found: Findings, folder: Path = _BENCHMARKS) -> str:
    """Of profiles/REPORT.md; empty where no whole jobs were run."""
    if not found.completions:
        return ""
    return "\n\n".join([
        "## Whole jobs, from the first step to the last",
        "Each job had its own number of steps to do and left when it was done; what is compared is "
        "when. The simulator was given the jobs' profiles and steps, and no time that was measured "
        "of them together. That processes start and load is in neither. No model was fitted to "
        "these runs; for the last two columns none saw any run with the job's family.",
        markdown(HEADINGS, finish_rows(found.completions, found.unseen_completions)),
        *_hosts(found),
        *_pauses(found.completions),
        *_chosen(found, folder),
        *_mixes(found.completions),
    ])  # fmt: skip


def finish_rows(
    runs: Sequence[CompletionComparison], unseen: Sequence[CompletionComparison] = ()
) -> list[tuple[str, ...]]:
    """A line under `HEADINGS` for each mode in which whole jobs ran."""
    rows = []
    for mode in MODES:
        of_mode, strange = finished(runs, mode), finished(unseen, mode)
        shares = (
            of_mode.makespan, of_mode.worst_makespan, of_mode.completion, of_mode.p90,
            of_mode.inside, strange.makespan, strange.completion,
        )  # fmt: skip
        if of_mode.runs:
            counts = (_WORDS[mode], str(len(of_mode.runs)), str(of_mode.jobs))
            rows.append((*counts, *map(percent, shares)))
    return rows


def _mixes(runs: Sequence[CompletionComparison]) -> Iterator[str]:
    """The errors of the mixes that ran to be simulated, and not to be chosen from."""
    chosen_from = {id(run) for panel in panels(runs) for run in panel}
    mixes = [run for run in runs if id(run) not in chosen_from]
    errors = [
        f"{_WORDS[mode]} {percent(done.makespan)} and {percent(done.completion)}"
        for mode in MODES
        if (done := finished(mixes, mode)).runs
    ]
    if errors and chosen_from:
        yield (
            f"In the {counted(len(mixes), 'run')} that {is_or_are(len(mixes))} of no such set, "
            f"makespan and completion times are off by: {', '.join(errors)}."
        )


def _hosts(found: Findings) -> Iterator[str]:
    """How much of the error is of jobs that wait for their hosts, and how slow these were."""
    off: dict[bool, list[float]] = {True: [], False: []}
    slower = []
    for run in found.completions:
        for tenant, error in zip(run.run.tenants, run.errors, strict=True):
            profile = found.profiles[tenant.workload.name]
            off[is_gpu_bound(profile)].append(abs(error))
            if tenant.host_check_s and profile.host_check_s:
                slower.append(tenant.host_check_s / profile.host_check_s)
    if off[True] and off[False] and slower:
        low, middle, high = np.quantile(slower, (0.05, 0.5, 0.95))
        yield (
            f"Jobs that fill the GPU alone ended {percent(mean(off[True]))} off in the mean, those "
            f"that wait for their hosts {percent(mean(off[False]))}: cores took {middle:.1f} times "
            f"as long for the same work as when jobs were profiled, and between {low:.1f} and "
            f"{high:.1f} times as long in nine of ten."
        )


def _pauses(runs: Iterable[CompletionComparison]) -> Iterator[str]:
    """What it took to start or stop MPS between groups, beside what the simulator takes for it."""
    took_s = [each for run in runs for each in _changes_s(run)]
    if took_s:
        said_s = repartition_s(Group((1,), Naive()), Group((2,), Mps()))
        yield (
            f"Between groups MPS was started or stopped {len(took_s)} times, which took "
            f"{median(took_s):.2f} s in the median; the simulator takes {said_s:.2f} s for it."
        )


def _changes_s(run: CompletionComparison) -> list[float]:
    """Seconds of each pause of `run` in which MPS was started or stopped."""
    workloads = tuple(tenant.workload for tenant in run.run.tenants)
    full = FullRun(id=run.run.id, sharing=run.sharing, purpose=run.run.purpose,
                   workloads=workloads, steps=run.done.steps)  # fmt: skip
    with_mps = [isinstance(heat.mix.sharing, Mps) for heat in full.heats]
    return [
        pause_s
        for pause_s, (before, after) in zip(run.done.pauses_s, pairwise(with_mps), strict=True)
        if before != after
    ]


def regret_rows(
    runs: Iterable[CompletionComparison],
    profiles: Mapping[str, Profile],
    recommended: Collection[str] = (),
) -> list[tuple[str, ...]]:
    """A line under `REGRET_HEADINGS` for each way to choose, best first.

    Args:
        runs: Of whole jobs.
        profiles: Solo profiles by name.
        recommended: Ids of the runs that were recommended before anything of their sets was run.
    """
    rows = []
    for name, lost in regrets(runs, profiles, recommended).items():
        if lost:
            best = sum(each <= 0 for each in lost)
            cells = (str(len(lost)), percent(mean(lost)), percent(max(lost)))
            rows.append((mean(lost), (_WORDS[name], *cells, f"{best} of {len(lost)}")))
    return [cells for _, cells in sorted(rows, key=itemgetter(0))]


def regrets(
    runs: Iterable[CompletionComparison],
    profiles: Mapping[str, Profile],
    recommended: Collection[str] = (),
) -> dict[str, list[float]]:
    """Of each way to choose, the share of the best speed that it gives away, set by set."""
    lost: dict[str, list[float]] = {
        RECOMMENDED: [],
        SIMULATED: [],
        **{name: [] for name in CHOOSERS},
    }
    for panel in panels(runs):
        best_s = min(run.done.makespan_s for run in panel)
        for name, given_away in lost.items():
            chosen = _choice(name, panel, profiles, recommended)
            if chosen is not None:
                given_away.append(1 - best_s / chosen.done.makespan_s)
    return lost


def _choice(
    name: str,
    panel: Sequence[CompletionComparison],
    profiles: Mapping[str, Profile],
    recommended: Collection[str],
) -> CompletionComparison | None:
    """The run of `panel` that the rule `name` chooses; None where it was not run."""
    if name == RECOMMENDED:
        return next((run for run in panel if run.run.id in recommended), None)
    if name == SIMULATED:
        return min(panel, key=lambda run: run.makespan_s.p50)
    alone = tuple(profiles[each] for each, _ in panel[0].work)
    picked = CHOOSERS[name](Offer(alone, tuple(run.sharing for run in panel)))
    return next((run for run in panel if run.sharing == picked), None)


def recommended_runs(folder: Path = _BENCHMARKS) -> frozenset[str]:
    """Ids of the runs that ``benchmarks/recommend_panels.py`` wrote down for sets of whole jobs."""
    documents = [json.loads(f.read_text()) for f in folder.glob("completion-*/recommended.json")]
    return frozenset(each["run"] for document in documents for each in document["sets"])


def _chosen(found: Findings, folder: Path) -> Iterator[str]:
    sets = panels(found.completions)
    if sets:
        yield (
            f"{len(sets)} job sets of {min(map(_jobs, sets))} to {max(map(_jobs, sets))} jobs ran "
            "in several ways that were fixed before anything was predicted. Regret is the share "
            "of the speed of the fastest that a choice gives away."
        )
        rows = regret_rows(found.completions, found.profiles, recommended_runs(folder))
        yield markdown(REGRET_HEADINGS, rows)


def _jobs(panel: Sequence[CompletionComparison]) -> int:
    return len(panel[0].work)
