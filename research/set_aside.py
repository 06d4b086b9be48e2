"""What was measured, set aside and measured again, and what was said by it.

The files are in ``profiles/<gpu>/set-aside``, whose README says why each was set aside.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from advisor.english import counted
from advisor.prediction.surrogate_answers import Predicts
from advisor.sharing import SHARED_MODES
from advisor.validate.score_tables import MODE_WORDS, percent
from advisor.workload.files import profile_files
from advisor.workload.profile import Profile
from research.completion import CompletionComparison, compared_completions
from research.completion_score import RECOMMENDED, finished, recommended_runs, regrets
from research.files import runs_in

_FOLDER = "set-aside"
_SLOW_HOST = "slow-host-completion"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAside:
    """Counts of what lies in the folder, and errors of whole jobs by it.

    Attributes:
        profiles: Measured again since the code of their workloads changed.
        runs: Runs in which these took part, likewise.
        panels: Runs of plans to choose from, on a host on which the others of their sets were not.
        whole: Runs of whole jobs, on a host slower than that of `again`.
        cut_short: Runs of whole jobs of a set that was not measured to its end.
        makespan: By mode: mean absolute error of when the last job ends, in `whole`.
        makespan_again: The same of the runs that were made instead.
        regret: Mean share of the best speed that the plans recommended beforehand gave away, in
            `whole`; None without.
        regret_again: The same of the runs that were made instead.
    """

    profiles: int
    runs: int
    panels: int
    whole: int
    cut_short: int
    makespan: Mapping[str, float]
    makespan_again: Mapping[str, float]
    regret: float | None
    regret_again: float | None


def set_aside(
    folder: Path,
    again: Sequence[CompletionComparison],
    profiles: Mapping[str, Profile],
    predictor: Predicts,
) -> SetAside | None:
    """What lies below the GPU's `folder`; None if nothing was set aside.

    Args:
        folder: With profiles, and runs below it.
        again: The runs of whole jobs that were made instead.
        profiles: Solo profiles by name.
        predictor: That of `again`.
    """
    there = folder / _FOLDER
    if not there.is_dir():
        return None
    before = compared_completions(runs_in(there, _SLOW_HOST), profiles, predictor)
    return SetAside(
        profiles=len(profile_files(there)),
        runs=len(runs_in(there, "third-before")),
        panels=len(runs_in(there, "panels")),
        whole=len(before),
        cut_short=len(runs_in(there, "cut-short")),
        makespan=_makespans(before),
        makespan_again=_makespans(again),
        regret=_regret(before, profiles),
        regret_again=_regret(again, profiles),
    )


def said(found: SetAside | None) -> list[str]:
    """What docs/accuracy.md says of it: one paragraph, or nothing."""
    if found is None:
        return []
    pairs = [
        f"{percent(found.makespan[mode])} under {MODE_WORDS[mode]} (now "
        f"{percent(found.makespan_again[mode])})"
        for mode in SHARED_MODES
        if {mode} <= found.makespan.keys() & found.makespan_again.keys()
    ]
    lost = ""
    if None not in (found.regret, found.regret_again):
        lost = (
            f"; the plans recommended beforehand gave away {percent(found.regret)} in the mean, "
            f"now {percent(found.regret_again)}"
        )
    return [
        f"Set aside and measured again: {counted(found.profiles, 'profile')} and "
        f"{counted(found.runs, 'run')} of workloads whose code changed meanwhile; "
        f"{counted(found.panels, 'run')} of plans that had run on another host than the plans they "
        f"were to be compared with; {counted(found.whole, 'run')} of whole jobs on a host slower "
        f"than the one on which they were repeated; and {found.cut_short} of a job set that was "
        f"cut short. By those whole jobs the simulator was further off: makespans by "
        f"{', '.join(pairs)}{lost}. All of it is in `profiles/*/set-aside`, with the reasons."
    ]


def _makespans(runs: Sequence[CompletionComparison]) -> dict[str, float]:
    found = {mode: finished(runs, mode).makespan for mode in SHARED_MODES}
    return {mode: error for mode, error in found.items() if error is not None}


def _regret(runs: Sequence[CompletionComparison], profiles: Mapping[str, Profile]) -> float | None:
    lost = regrets(runs, profiles, recommended_runs())[RECOMMENDED]
    return mean(lost) if lost else None
