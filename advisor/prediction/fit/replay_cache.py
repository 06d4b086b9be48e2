"""Caches replays of runs, which fitting needs many times."""

from collections.abc import Sequence

import numpy as np

from advisor.hardware.catalogue import Gpu
from advisor.prediction.fit.observation import ObservedRun, Rows, telling_of
from advisor.prediction.mix_features import FEATURES, features
from advisor.prediction.parallel import at_once
from advisor.prediction.physics import (
    Physics,
    Replayed,
    combined_variants,
    replay_mix,
    replay_variants,
)
from advisor.prediction.replay import Effort
from advisor.prediction.trace import Floats
from advisor.sharing import Concurrent
from advisor.workload.profile import Profile

# Constants that suit long replays suit these, too.
_TO_COMPARE = Effort(events=20_000)


class ReplayCache:
    """Replays runs, each once for each GPU and each set of constants that affect it.

    Evaluation fits again and again to parts of the same runs, and replaying takes most of the time.
    """

    def __init__(self) -> None:
        self._replayed: dict[tuple[object, ...], Floats | None] = {}

    def replayed_s(
        self,
        shared: ObservedRun,
        physics: Physics,
        effort: Effort = Effort(),  # noqa: B008 - frozen
    ) -> Floats | None:
        """Steps by replay alone, shape (jobs,); None without traces."""
        return self.play(shared.profiles, shared.sharing, shared.gpu, physics, effort)

    def play(
        self,
        profiles: Sequence[Profile],
        sharing: Concurrent,
        gpu: Gpu,
        physics: Physics,
        effort: Effort,
    ) -> Floats | None:
        """As `physics.replay_mix`."""
        jobs = tuple((each.name, each.step_s, each.host_s) for each in profiles)
        key = (gpu.key, jobs, sharing, effort, *physics.bearing_on(sharing))
        if key not in self._replayed:
            self._replayed[key] = replay_mix(profiles, sharing, gpu, physics, effort)
        return self._replayed[key]

    def replayed(self, shared: ObservedRun, physics: Physics) -> Replayed | None:
        """Replayed in all of its `physics.replay_variants`."""
        return combined_variants(
            [self.replayed_s(shared, *way) for way in replay_variants(shared.sharing, physics)]
        )

    def error(self, runs: Sequence[ObservedRun], physics: Physics) -> float:
        """Mean absolute log error of replay alone over jobs of `runs` that tell of sharing."""
        replays = at_once(lambda shared: self.replayed_s(shared, physics, _TO_COMPARE), runs)
        logs = [
            np.abs(np.log(shared.measured_s / replayed))[shared.telling]
            for shared, replayed in zip(runs, replays, strict=True)
            if replayed is not None
        ]
        return float(np.mean(np.concatenate(logs))) if logs else float("inf")

    def telling_rows(self, runs: Sequence[ObservedRun], physics: Physics) -> Rows:
        """Rows of the jobs that show the effect of sharing, of runs whose profiles have traces."""
        rows = self.rows(runs, physics)
        return rows.chosen(telling_of(rows, runs))

    def rows(self, runs: Sequence[ObservedRun], physics: Physics) -> Rows:
        """All jobs of those `runs` whose profiles have traces; without any, no rows."""
        # Of all runs at once: of one, a long replay keeps a single core busy.
        at_once(lambda way: self.replayed_s(*way), [
            (shared, *way) for shared in runs for way in replay_variants(shared.sharing, physics)
        ])  # fmt: skip
        played = [(index, shared, replayed) for index, shared in enumerate(runs)
                  if (replayed := self.replayed(shared, physics)) is not None]  # fmt: skip
        return Rows(
            of_run=np.array(
                [index for index, shared, _ in played for _ in shared.profiles], dtype=np.intp
            ),
            profiles=tuple(each for _, shared, _ in played for each in shared.profiles),
            x=np.concatenate([np.empty((0, len(FEATURES))), *(
                features(s.profiles, s.sharing, s.gpu, replayed) for _, s, replayed in played
            )]),
            replayed_s=np.concatenate([[], *(replayed.steps_s for _, _, replayed in played)]),
            measured_s=np.concatenate([[], *(shared.measured_s for _, shared, _ in played)]),
        )  # fmt: skip
