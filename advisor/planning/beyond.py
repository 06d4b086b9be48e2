"""Advice from names beyond one set of jobs on one GPU: finds models, then asks the planners."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from advisor.gpu.catalogue import Gpu
from advisor.gpu.catalogue import gpu as known_gpu
from advisor.planning.advice import predictor_of
from advisor.planning.beside import Additions, Limits, Running, additions
from advisor.planning.copies import Copies, copies_that_pay
from advisor.planning.machine import Machine, machine
from advisor.planning.many_jobs import Spread, spread
from advisor.planning.plan import Predicts
from advisor.planning.rules import UNCONDITIONAL, Conditions
from advisor.planning.terms import Terms
from advisor.simulation.energy import Level
from advisor.workload.job import Job
from advisor.workload.staleness import Present


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """What advice on a GPU stands on; fields as the arguments of `recommend`."""

    gpu: str
    models: Path | None = None
    power_cap_w: float | None = None
    calibration: Path | None = None
    present: Present | None = None

    @property
    def card(self) -> Gpu:
        return known_gpu(self.gpu)

    @property
    def machine(self) -> Machine:
        return machine(self.card.key, self.calibration, self.present)

    def predictor(self, here: Machine) -> Predicts:
        """What answers for mixes.

        Raises:
            InvalidInput: No model was fitted for the GPU, or it cannot be set to that cap.
        """
        return predictor_of(self.gpu, self.models, self.power_cap_w, here)


def recommend_spread(jobs: Sequence[Job], sources: Sources, terms: Terms) -> Spread:
    """As `spread`, from a model on file."""
    here = sources.machine
    found = spread(jobs, sources.card, sources.predictor(here), terms)
    return replace(found, standing=here.standing(jobs))


def recommend_copies(
    job: Job, sources: Sources, conditions: Conditions = UNCONDITIONAL, level: Level = "p50"
) -> Copies:
    """As `copies_that_pay`, from a model on file."""
    here = sources.machine
    found = copies_that_pay(job, sources.card, sources.predictor(here), conditions, level)
    return replace(found, standing=here.standing([job]))


def recommend_additions(
    running: Running, offered: Sequence[Job], sources: Sources, limits: Limits
) -> Additions:
    """As `additions`, from a model on file."""
    here = sources.machine
    found = additions(running, offered, sources.card, sources.predictor(here), limits)
    return replace(found, standing=here.standing([*running.jobs, *offered]))
