"""The single kernels of a replayed mix, for inspection."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from advisor.errors import InvalidInput
from advisor.hardware.catalogue import Gpu
from advisor.prediction.physics import Physics, replay_mix
from advisor.prediction.replay import Effort
from advisor.prediction.trace import replay_trace
from advisor.sharing import Arrangement
from advisor.sharing.traversal import together
from advisor.workload.kernel_trace import KernelTrace
from advisor.workload.named_workloads import how_to_measure
from advisor.workload.profile import Profile

# Some tenths of a second of most mixes, and a file of about a megabyte.
_KERNELS = 8_000


@dataclass(frozen=True, slots=True)
class ReplayedKernel:
    """A kernel or copy that ran without being interrupted; under time slices, a part of one.

    Attributes:
        job: Position in the mix.
        kind: Its class, e.g. ``"conv"``; of several that ran at once, the first one's.
        start_s: From the replay's beginning.
    """

    job: int
    kind: str
    start_s: float
    end_s: float


def recorded(
    profiles: Sequence[Profile], sharing: Arrangement, gpu: Gpu, physics: Physics
) -> tuple[ReplayedKernel, ...]:
    """The first kernels that run when `profiles` share `gpu`, by replay, in the order of the ends.

    Raises:
        InvalidInput: `sharing` is neither naive nor MPS, or a profile has no kernel trace.
    """
    shared = together(sharing)
    if shared is None:
        raise InvalidInput(f"kernels are replayed under naive and MPS, not under {sharing}")
    log = np.full((_KERNELS, 4), -1.0)
    if replay_mix(profiles, shared, gpu, physics, Effort(events=_KERNELS), log=log) is None:
        bare = sorted({each.name for each in profiles if each.trace is None})
        raise InvalidInput(
            f"no kernel trace of {', '.join(bare)}. Measure it again: {how_to_measure(bare)}."
        )
    kinds = [_kinds(each, gpu, physics) for each in profiles]
    return tuple(
        ReplayedKernel(int(job), kinds[int(job)][int(kernel)], float(start_s), float(end_s))
        for job, kernel, start_s, end_s in log[log[:, 0] >= 0]
    )


def _kinds(profile: Profile, gpu: Gpu, physics: Physics) -> list[str]:
    """The class of each kernel of the job's script."""
    trace, played = profile.trace, replay_trace(profile, gpu.sms, physics.packing)
    assert isinstance(trace, KernelTrace)
    assert played is not None
    in_trace, in_script = len(trace.class_of), len(played.duration_s)
    # A script takes kernels of several streams together, evenly all along.
    return [trace.classes[trace.class_of[at * in_trace // in_script]] for at in range(in_script)]
