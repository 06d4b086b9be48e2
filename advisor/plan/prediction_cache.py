"""Predictions of parts of a set of jobs, each made once."""

from collections.abc import Sequence
from dataclasses import replace

from advisor.plan.recommendation import Predicts
from advisor.prediction.mix_prediction import MixPrediction
from advisor.prediction.phase_sums import in_phases
from advisor.prediction.surrogate_answers import Quick
from advisor.sharing import Arrangement, Sharing
from advisor.sharing.traversal import check_count, groups, restricted, without_phases
from advisor.workload.job import Job
from advisor.workload.profile import Profile


class Mixes:
    """Asks a predictor about some of `jobs` at a time and remembers its answers."""

    def __init__(self, jobs: Sequence[Job], predictor: Predicts) -> None:
        self.jobs = tuple(jobs)
        self._predictor = predictor
        profiles = [job.profile for job in self.jobs]
        self._kind = [profiles.index(profile) for profile in profiles]  # the same for copies
        self._known: dict[tuple[tuple[int, ...], Arrangement], MixPrediction] = {}

    @property
    def everyone(self) -> tuple[int, ...]:
        return tuple(range(len(self.jobs)))

    def copies(self) -> list[list[int]]:
        """Positions of the jobs, those of the same profile and length together."""
        kinds = [(kind, job.work_steps) for kind, job in zip(self._kind, self.jobs, strict=True)]
        return [[at for at, other in enumerate(kinds) if other == kind]
                for kind in dict.fromkeys(kinds)]  # fmt: skip

    def quick(self) -> Quick | None:
        """Rough answers about all jobs together; None where the predictor has none."""
        return self._predictor.quick([job.profile for job in self.jobs])

    def whole(self, sharing: Sharing) -> MixPrediction:
        """What happens while all jobs run, or all of a group; refuses limits for other jobs."""
        whole = without_phases(sharing)
        if whole is not None:
            return self._ask(self.everyone, whole)
        check_count(sharing, len(self.jobs))
        in_order = [tuple(sorted(job - 1 for job in group.jobs))
                    for group in groups(sharing, len(self.jobs))]  # fmt: skip
        return in_phases(sharing, in_order, [self.part(sharing, group) for group in in_order])

    def part(self, sharing: Sharing, running: tuple[int, ...]) -> MixPrediction:
        """What happens while only the jobs at the positions `running` do.

        Args:
            sharing: Of all jobs; each keeps its limit or instance.
            running: At least one position in `jobs`; of phases, those of one group.
        """
        return self._ask(running, restricted(sharing, running))

    def _ask(self, running: tuple[int, ...], sharing: Arrangement) -> MixPrediction:
        key = tuple(self._kind[job] for job in running), sharing
        if key not in self._known:
            profiles = [self.jobs[job].profile for job in running]
            self._known[key] = self._predictor.predict(profiles, sharing)
        return self._known[key]


class Remembered:
    """Answers as `predictor` does: groups that lose a job become smaller groups.

    Jobs that share a whole GPU are asked about in the order in which they were first: a replay
    differs a little with the order, and a plan is to be reported as it was found.
    """

    def __init__(self, predictor: Predicts) -> None:
        self._predictor = predictor
        # Where each stands by its id; it is held, so that no other takes its id.
        self._profiles: dict[int, tuple[int, Profile]] = {}
        self._known: dict[tuple[tuple[int, ...], Arrangement], MixPrediction] = {}

    def predict(self, profiles: Sequence[Profile], sharing: Arrangement) -> MixPrediction:
        for each in profiles:
            self._profiles.setdefault(id(each), (len(self._profiles), each))
        places = [self._profiles[id(each)][0] for each in profiles]
        order = sorted(range(len(profiles)), key=places.__getitem__)
        if order == list(range(len(profiles))) or sharing.instances:
            return self._asked(profiles, sharing)
        found = self._asked([profiles[at] for at in order], restricted(sharing, order))
        jobs = dict(zip(order, found.jobs, strict=True))
        return replace(found, sharing=sharing, jobs=tuple(jobs[at] for at in sorted(jobs)))

    def quick(self, profiles: Sequence[Profile]) -> Quick | None:
        return self._predictor.quick(profiles)

    def _asked(self, profiles: Sequence[Profile], sharing: Arrangement) -> MixPrediction:
        key = tuple(map(id, profiles)), sharing
        if key not in self._known:
            self._known[key] = self._predictor.predict(profiles, sharing)
        return self._known[key]
