"""Predicts for a host whose cores all jobs share."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from advisor.errors import InvalidInput
from advisor.prediction.host_cores import stretch_on
from advisor.prediction.host_transfer import on_host
from advisor.prediction.mix_prediction import JobPrediction, MixPrediction
from advisor.prediction.surrogate_answers import Predicts, SurrogatePredictor
from advisor.sharing import Arrangement
from advisor.sharing.traversal import running_together
from advisor.workload.plausible import MOST_CORES
from advisor.workload.profile import Profile

# Smaller factors on host work are within a host's own fluctuation.
_FELT = 1.001


@dataclass(frozen=True, slots=True)
class SharedCores:
    """Predicts as `predictor` does, on a host with `cores` cores for all jobs.

    Contention for the host's caches and memory bandwidth is not modelled.

    Raises:
        InvalidInput: The number of cores is below 1 or implausibly high.
    """

    predictor: Predicts
    cores: int

    def __post_init__(self) -> None:
        if not 1 <= self.cores <= MOST_CORES:
            raise InvalidInput(f"a host has 1 to {MOST_CORES} cores, got {self.cores}")

    def predict(self, profiles: Sequence[Profile], sharing: Arrangement) -> MixPrediction:
        """The prediction of `predictor`, slowed where jobs at once need more cores than there are.

        A job's slowdown is relative to the job alone on these cores.
        """
        free = self.predictor.predict(profiles, sharing)
        alone = [stretch_on([each], [each.step_s], self.cores) for each in profiles]
        shared = self._stretches(profiles, free, sharing)
        if max(*alone, *shared) < _FELT:
            return free
        slower = [on_host(each, by) for each, by in zip(profiles, shared, strict=True)]
        found = self.predictor.predict(slower, sharing)
        against = [on_host(each, by) for each, by in zip(profiles, alone, strict=True)]
        jobs = tuple(map(_against, found.jobs, slower, against))
        return replace(
            found,
            jobs=jobs,
            weighted_speedup=1.0 if sharing.mode == "serial" else sum(1 / j.slowdown for j in jobs),
            host_stretch=max(shared),
        )

    def _stretches(
        self, profiles: Sequence[Profile], free: MixPrediction, sharing: Arrangement
    ) -> list[float]:
        """Factor by which the host work of each job gets longer."""
        found = [1.0] * len(profiles)
        for run in running_together(sharing, len(profiles)):
            steps_s = [free.jobs[at].step_s.p50 for at in run]
            stretch = stretch_on([profiles[at] for at in run], steps_s, self.cores)
            for at in run:
                found[at] = stretch
        return found

    def surrogate(self, profiles: Sequence[Profile]) -> SurrogatePredictor | None:
        """Surrogate for enough cores; what it finds is predicted again for the cores there are."""
        return self.predictor.surrogate(profiles)


def _against(job: JobPrediction, shared: Profile, alone: Profile) -> JobPrediction:
    return replace(job, slowdown=job.slowdown * shared.step_s / alone.step_s)
