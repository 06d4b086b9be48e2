"""What a user's first runs of jobs that fill the GPU teach of their steps beside others.

    python -m research.own_step_score > benchmarks/own-steps/score.json

The first runs of each family count as a user's own. Later ones are predicted by a model that saw no
run of the family; by one that was fitted to these runs, too; and by that with what `advisor fit`
learns besides of each job.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from statistics import mean
from typing import Any

from advisor.hardware.catalogue import gpu
from advisor.plan.paced_predictor import PacedPredictor
from advisor.prediction.fit.fit_model import fit
from advisor.prediction.fit.observation import MeasuredGpu
from advisor.prediction.fit.own_pace_fit import own_paces
from advisor.prediction.fit.replay_cache import ReplayCache
from advisor.prediction.job_features import is_gpu_bound
from advisor.prediction.model_file import Model
from advisor.prediction.own_pace import step_of
from advisor.prediction.predictor import Predictor
from advisor.sharing import SHARED_MODES, Mode
from advisor.validate.folds import Folds
from advisor.validate.predicted_and_measured import (
    JobComparison,
    compare,
    profiles_of,
    sharing_of,
)
from advisor.validate.score_tables import MODE_WORDS, markdown, percent
from advisor.validate.selection import families_of, select
from advisor.workload.run import Run
from research.files import PROFILES, measured, rounded
from research.script_table import committed

GPU = "h200-141gb"
_OWN = (8, 40)
# Of later runs, spread evenly, so that each family counts about as much.
_LATER = 60
_COLUMNS = ("sharing", "own runs of the family", "steps", "MAPE, family never seen",
            "fitted to these runs", "and with what they taught of each job",
            "inside, never seen", "fitted", "and taught")  # fmt: skip
_WAYS = ("unseen", "fitted", "taught")


@dataclass(frozen=True, slots=True)
class SeenStep:
    """A job that fills the GPU, in a run after those that are a user's own.

    Attributes:
        own: How many runs of its family are the user's own.
        unseen: As predicted by a model that saw none of them.
        fitted: By a model fitted to them.
        taught: By that with what they taught of each job.
    """

    mode: Mode
    own: int
    unseen: JobComparison
    fitted: JobComparison
    taught: JobComparison


@dataclass(frozen=True, slots=True)
class _Family:
    """A family, and a model that saw none of its runs."""

    name: str
    folds: Folds
    unseen: Model

    def steps(self, own: Sequence[Run], later: Sequence[Run]) -> Iterator[SeenStep]:
        """Those of its jobs in `later` of which `own`, the user's runs, taught something."""
        card, profiles, replays = self.folds.gpu, self.folds.profiles, self.folds.playback
        others = [run for run in self.folds.runs if self.name not in families_of([run])]
        model = fit([MeasuredGpu(card, profiles, [*others, *own])], replays)
        # The same surrogate, which a few runs hardly change, so that only these make a difference.
        model = replace(model, distilled=self.unseen.distilled)
        unseen, fitted = (Predictor(card, each, replays.play) for each in (self.unseen, model))
        taught = PacedPredictor(fitted, own_paces(profiles, own, fitted))
        for run in later:
            mode = sharing_of(run).mode
            raw, asked = profiles_of(run, profiles, "raw"), (unseen, fitted, taught)
            found = (compare(run, raw, each, card, {}).jobs for each in asked)
            for profile, *jobs in zip(raw, *found, strict=True):
                known = step_of(profile, taught.paces, mode) is not None
                if known and profile.workload.family == self.name:
                    yield SeenStep(mode, len(own), *jobs)


def steps_of(folds: Folds) -> Iterator[SeenStep]:
    """Each family of `folds` with jobs that fill the GPU in turn, in the runs that are wanted."""
    ordered = sorted(folds.wanted, key=lambda run: run.provenance.date)
    for name in families_of(folds.wanted):
        those = [run for run in ordered if _fills_gpu(run, name, folds)]
        if len(those) > max(_OWN):
            family = _Family(name, folds, folds.model_without(name))
            for own in _OWN:
                yield from family.steps(those[:own], _spread(those[own:]))


def _fills_gpu(run: Run, family: str, folds: Folds) -> bool:
    """Whether a job of `family` in `run` fills the GPU."""
    names = [each.workload.name for each in run.tenants if each.workload.family == family]
    return any(is_gpu_bound(folds.profiles[name]) for name in names)


def _spread(runs: Sequence[Run]) -> Sequence[Run]:
    return runs[:: max(1, len(runs) // _LATER)][:_LATER]


def rows(steps: Iterator[SeenStep]) -> Iterator[dict[str, object]]:
    """Each way of sharing and number of own runs: mean absolute errors, and shares inside."""
    every = list(steps)
    for mode, own in product(SHARED_MODES, _OWN):
        those = [each for each in every if (each.mode, each.own) == (mode, own)]
        if those:
            jobs = {way: [getattr(each, way) for each in those] for way in _WAYS}
            yield {
                "mode": mode, "own": own, "n": len(those),
                "mape": {way: mean(abs(job.error) for job in each) for way, each in jobs.items()},
                "inside": {way: mean(job.inside for job in each) for way, each in jobs.items()},
            }  # fmt: skip


def own_step_table() -> str:
    """The table of docs/accuracy.md."""
    return markdown(_COLUMNS, [_cells(each) for each in committed("own-steps")["rows"]])


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    shares = (row[figure][way] for figure in ("mape", "inside") for way in _WAYS)
    return (MODE_WORDS[row["mode"]], str(row["own"]), str(row["n"]), *map(percent, shares))


def main() -> None:
    profiles, runs = measured(PROFILES / GPU)
    chosen = select(profiles, runs, gpu(GPU))
    wanted = (*chosen.scored, *chosen.advice)
    folds = Folds(profiles, runs, wanted, (), gpu(GPU), ReplayCache())
    print(json.dumps(rounded({"rows": list(rows(steps_of(folds)))}, ".4g"), indent=1))


if __name__ == "__main__":
    main()
