"""The host path of a step: what the host needs to issue it when the GPU is never in its way."""

from collections.abc import Sequence

from advisor.profiling.traced import QUEUE_FREE_LAUNCHES, Phase


def phases_without_waits(
    measured_s: Sequence[float], profiled: Sequence[Phase]
) -> tuple[float, ...]:
    """Seconds that an unprofiled host needs for each phase of a step, the GPU out of its way.

    Each phase was timed with an empty launch queue, so one with few launches was timed rightly. One
    with many may have waited for the GPU. The profile tells such waits apart, but slows the host;
    so where that gives less, its time, waits left out, counts at the pace of the other phases.

    Args:
        measured_s: Seconds the host took for each phase, unprofiled, shape (phases,).
        profiled: The same phases in the profiler.
    """
    pairs = list(zip(measured_s, profiled, strict=True))
    free = [(seconds, phase) for seconds, phase in pairs if phase.launches <= QUEUE_FREE_LAUNCHES]
    profiled_s = sum(phase.host_us for _, phase in free) * 1e-6
    pace = min(1.0, sum(seconds for seconds, _ in free) / profiled_s) if profiled_s else 1.0
    return tuple(
        seconds
        if phase.launches <= QUEUE_FREE_LAUNCHES
        else min(seconds, phase.host_us * 1e-6 * pace)
        for seconds, phase in pairs
    )
