"""Rough answers for thousands of sharings of one set of jobs, for searching among them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from advisor.gpu.catalogue import Gpu
from advisor.prediction.corrected import brief_steps
from advisor.prediction.distilled import Crowds, Distilled
from advisor.prediction.memory import MPS_SERVER_MIB
from advisor.prediction.model import Model, mode_of
from advisor.prediction.rough import Rough, Tenancy
from advisor.prediction.script import Floats
from advisor.prediction.summary import Summaries, summaries
from advisor.sharing import Mps, Naive
from advisor.workload.profile import Profile


@dataclass(frozen=True, slots=True)
class Quick:
    """The distilled predictor, asked about one set of jobs.

    Attributes:
        rough: Asked about parts of the set, and in parts of the GPU.
    """

    distilled: Distilled
    jobs: Summaries
    rough: Rough

    def knows(self, mode: str) -> bool:
        """Whether runs of `mode` taught the distilled predictor and the correction of replay."""
        return mode in self.distilled.surrogates and mode in self.rough.model.corrections

    def fit(self, limit: float, most_risk: float) -> bool:
        """Whether memory suffices for all jobs at once, each under `limit`, in per cent.

        Args:
            limit: Of each job.
            most_risk: Chance to run out that is allowed, 0..1.
        """
        tenancy = Tenancy(None, float(self.rough.gpu.usable_mib), Mps(), limit)
        everyone = np.ones((1, len(self.rough.profiles)), dtype=np.intp)
        return bool(self.rough.fits(tenancy, everyone, most_risk, 0.0)[0])

    def steps(self, sharings: Sequence[Naive | Mps]) -> Floats:
        """Seconds of a step of each job under each sharing, shape (sharings, jobs).

        Raises:
            KeyError: Nothing was learnt of the mode of one of them.
        """
        degree = len(self.jobs.step_s)
        answers = np.empty((len(sharings), degree))
        modes = [mode_of(each) for each in sharings]
        for mode in sorted(set(modes)):
            chosen = [at for at, other in enumerate(modes) if other == mode]
            limits = [getattr(sharings[at], "limits", ()) or (100.0,) * degree for at in chosen]
            answers[chosen] = self.limited(np.array(limits), mode=mode)
        return answers

    def limited(
        self, limits: Floats, running: NDArray[np.bool_] | None = None, mode: str = "mps-limits"
    ) -> Floats:
        """Seconds of a step of each job under MPS limits, shape (mixes, jobs).

        Args:
            limits: In per cent, shape (mixes, jobs).
            running: Which jobs have not ended, likewise; None: none has. NaN answers the others.
            mode: Of all mixes.
        """
        everyone = np.broadcast_to(np.arange(limits.shape[1]), limits.shape)
        jobs = everyone if running is None else np.where(running, everyone, -1)
        return self.distilled.steps(self.jobs, Crowds(jobs, limits), mode)

    def replayed(self, sharings: Sequence[Mps]) -> Floats:
        """As `steps` of sharings with limits, by a short replay: nearer to what is predicted."""
        rough = self.rough
        return brief_steps(rough.profiles, sharings, rough.gpu, rough.model)


def quick(profiles: Sequence[Profile], gpu: Gpu, model: Model) -> Quick | None:
    """Rough answers for `profiles`; None without a distilled predictor, traces or counters."""
    if model.distilled is None:
        return None
    jobs = summaries(profiles, gpu, model.physics)
    return (
        None
        if jobs is None
        else Quick(model.distilled, jobs, Rough(tuple(profiles), gpu, model, MPS_SERVER_MIB))
    )
