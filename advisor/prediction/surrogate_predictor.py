"""Estimates by the surrogate model for thousands of sharings of one set of jobs, for searching."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from advisor.hardware.gpus import Gpu
from advisor.hardware.partition import Partition, whole_gpu
from advisor.prediction.memory import edge_for, leaves_free, need, upper_end_mib
from advisor.prediction.model import Model
from advisor.prediction.other_gpu import on_partition
from advisor.prediction.power import PowerLaw
from advisor.prediction.prediction import MixPrediction
from advisor.prediction.residual import brief_steps
from advisor.prediction.surrogate import (
    FIXED,
    MixBatch,
    Summaries,
    SurrogateModel,
    joined,
    summaries,
)
from advisor.prediction.trace import Floats
from advisor.sharing import Arrangement, Concurrent, Mode, Mps
from advisor.sharing.groups import without_idle_limits
from advisor.workload.profile import Profile

_Places = NDArray[np.intp]

_DRAM, _HOST, _STEP = map(FIXED.index, ("dram", "host", "log_step_ms"))


@dataclass(frozen=True, slots=True)
class Tenancy:
    """A partition of the GPU, and how jobs share it.

    Attributes:
        limit: MPS limit of each job, in per cent; None: no limit.
    """

    partition: Partition
    sharing: Concurrent
    limit: float | None = None

    @property
    def mode(self) -> Mode:
        """The mode of jobs that share the whole GPU like this."""
        return self.sharing.mode if self.limit is None else "mps-limits"


@dataclass(frozen=True, slots=True)
class SurrogateAnswers:
    """Estimates by the surrogate model for sets of jobs in any partition."""

    profiles: tuple[Profile, ...]
    gpu: Gpu
    model: Model

    def steps(self, asked: Sequence[tuple[Tenancy, _Places]]) -> list[Floats]:
        """Seconds of a step of each job, each shape (sets, places); NaN where a place is empty.

        Args:
            asked: Tenancies, each with the profile in each place of each set, -1 for none; all of
                one width.
        """
        distilled = self.model.distilled
        assert distilled is not None, "estimates need a surrogate model"
        modes = [each.mode if each.mode in distilled.surrogates else "mps" for each, _ in asked]
        found: dict[int, Floats] = {}
        for mode in dict.fromkeys(modes):
            chosen = [at for at, other in enumerate(modes) if other == mode]
            steps_s = distilled.steps(*self._joined([asked[at] for at in chosen]), mode)
            ends = np.cumsum([len(asked[at][1]) for at in chosen])
            found |= zip(chosen, np.split(steps_s, ends[:-1]), strict=True)
        return [found[at] for at in range(len(asked))]

    def _joined(self, asked: Sequence[tuple[Tenancy, _Places]]) -> tuple[Summaries, MixBatch]:
        """All sets as crowds of jobs that differ from partition to partition."""
        partitions = list(dict.fromkeys(tenancy.partition for tenancy, _ in asked))
        jobs = [self._summaries(each) for each in partitions]
        first = {each: at * len(self.profiles) for at, each in enumerate(partitions)}
        places = [
            np.where(each < 0, each, each + first[tenancy.partition]) for tenancy, each in asked
        ]
        limits = [np.full(each.shape, tenancy.limit or 100.0) for tenancy, each in asked]
        return joined(jobs), MixBatch(np.concatenate(places), np.concatenate(limits))

    def fits(
        self, tenancy: Tenancy, counts: _Places, most_risk: float, margin: float
    ) -> NDArray[np.bool_]:
        """Whether sets of jobs fit in memory, shape (sets,).

        Args:
            tenancy: Partition and sharing.
            counts: Number of jobs of each profile, shape (sets, profiles).
            most_risk: Highest chance of running out that is allowed, 0..1.
            margin: Share of the memory that the jobs' upper ends must leave free.
        """
        under_mps = tenancy.sharing.under_mps
        part = (
            tenancy.partition if tenancy.limit is None else tenancy.partition.limited(tenancy.limit)
        )
        own, taken = self.model.of(self.gpu), self.gpu.sms - part.sms
        needs = [
            need(each, own.context, under_mps=under_mps, sms_taken=taken) for each in self.profiles
        ]
        held_mib = counts @ np.array([each.held_mib for each in needs])
        cache_mib = np.sqrt(counts @ np.array([each.cache_mib**2 for each in needs]))
        capacity_mib = tenancy.partition.memory_mib - own.mps_server_mib * under_mps
        sigma = self.model.memory_sigma
        alone, several = (
            edge_for(own.memory_edges, tenancy.mode, processes, sigma).allows(
                held_mib, cache_mib, capacity_mib, most_risk
            )
            for processes in (1, 2)
        )
        fits = np.where(counts.sum(axis=1) == 1, alone, several)
        upper_mib = upper_end_mib(held_mib, sigma)
        return fits & leaves_free(upper_mib, capacity_mib, margin) if margin else fits

    def added_w(self, tenancy: Tenancy, steps_s: Floats) -> Floats:
        """What a job of each profile adds to an awake GPU's power, shape (sets, profiles).

        Args:
            tenancy: Where and how.
            steps_s: Of a job of each profile, in the same shape.
        """
        whole, power = tenancy.partition.whole, self.model.of(self.gpu).power
        law = power.laws.get(tenancy.mode, PowerLaw()) if whole else PowerLaw()
        speeds = np.array([each.step_s for each in self.profiles]) / steps_s
        return power.added_w(self.profiles, speeds, law)

    def _summaries(self, partition: Partition) -> Summaries:
        physics = self.model.of(self.gpu).physics
        there = [on_partition(each, partition, physics) for each in self.profiles]
        found = summaries(there, partition.as_gpu, physics)
        assert found is not None, "only profiles with traces and counters are estimated"
        return found


@dataclass(frozen=True, slots=True)
class SurrogatePredictor:
    """Estimates by the surrogate model for one set of jobs.

    Attributes:
        answers: Answers about subsets of the jobs, and partitions of the GPU.
    """

    distilled: SurrogateModel
    jobs: Summaries
    answers: SurrogateAnswers

    def knows(self, mode: Mode) -> bool:
        """Whether `mode` has a surrogate and a correction of replay."""
        return mode in self.distilled.surrogates and mode in self.answers.model.corrections

    def fit(self, limit: float, most_risk: float) -> bool:
        """Whether all jobs at once fit in memory, each under `limit`, in per cent.

        Args:
            limit: Of each job.
            most_risk: Highest chance of running out that is allowed, 0..1.
        """
        tenancy = Tenancy(whole_gpu(self.answers.gpu), Mps(), limit)
        everyone = np.ones((1, len(self.answers.profiles)), dtype=np.intp)
        return bool(self.answers.fits(tenancy, everyone, most_risk, 0.0)[0])

    def steps(self, sharings: Sequence[Concurrent]) -> Floats:
        """Seconds of a step of each job under each sharing, shape (sharings, jobs).

        Raises:
            KeyError: There is no surrogate of the mode of one of them.
        """
        degree = len(self.jobs.step_s)
        answers = np.empty((len(sharings), degree))
        modes = [without_idle_limits(each).mode for each in sharings]
        for mode in sorted(set(modes)):
            chosen = [at for at, other in enumerate(modes) if other == mode]
            limits = [sharings[at].limits or (100.0,) * degree for at in chosen]
            answers[chosen] = self.limited(np.array(limits), mode=mode)
        return answers

    def limited(
        self, limits: Floats, running: NDArray[np.bool_] | None = None, mode: Mode = "mps-limits"
    ) -> Floats:
        """Seconds of a step of each job under MPS limits, shape (mixes, jobs).

        Args:
            limits: In per cent, shape (mixes, jobs).
            running: Which jobs have not ended, shape (mixes, jobs); None: all run. NaN for ended
                jobs.
            mode: Of all mixes.
        """
        everyone = np.broadcast_to(np.arange(limits.shape[1]), limits.shape)
        jobs = everyone if running is None else np.where(running, everyone, -1)
        return self.distilled.steps(self.jobs, MixBatch(jobs, limits), mode)

    def replayed(self, sharings: Sequence[Mps]) -> Floats:
        """As `steps` for sharings with limits, by a short replay, which is more accurate."""
        answers = self.answers
        return brief_steps(answers.profiles, sharings, answers.gpu, answers.model)


def surrogate_predictor(
    profiles: Sequence[Profile], gpu: Gpu, model: Model
) -> SurrogatePredictor | None:
    """The surrogate for `profiles`; None without a surrogate model, traces or counters."""
    if model.distilled is None:
        return None
    jobs = summaries(profiles, gpu, model.of(gpu).physics)
    if jobs is None:
        return None
    return SurrogatePredictor(model.distilled, jobs, SurrogateAnswers(tuple(profiles), gpu, model))


class Predicts(Protocol):
    """A predictor of mixes, as `advisor.prediction.predictor.Predictor` is."""

    def predict(self, profiles: Sequence[Profile], sharing: Arrangement) -> MixPrediction: ...

    def surrogate(self, profiles: Sequence[Profile]) -> SurrogatePredictor | None: ...
