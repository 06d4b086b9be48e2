"""Converts a profile's kernel trace to arrays for replay, fitted to the measured solo pace."""

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor.hardware.gpus import Gpu
from advisor.hardware.partition import Partition, limit_shares
from advisor.prediction.cache import cached_by_profiles
from advisor.workload.profile import HOST_COPY, KernelTrace, Profile

Floats = NDArray[np.float64]


class WaitingStep(NamedTuple):
    """Kernels of a step, or a round, whose host waits for some; fields are of `ReplayTrace`.

    Such a host does not run ahead: the GPU has nothing to do from the end of a wait until the host
    has launched again, and the host nothing until the GPU is done. So a step takes longer than
    either of them, and grows with both.
    """

    launch_s: Floats
    duration_s: Floats
    waits_s: Floats
    host_s: float
    gap_s: float

    def changed(self, *, host: float = 1.0, gpu: float = 1.0, gap: float = 1.0) -> "WaitingStep":
        """Return the step with host, kernels and gaps that take so many times as long."""
        waits_s = self.waits_s.copy()
        waits_s[np.isfinite(waits_s)] *= host
        return WaitingStep(
            self.launch_s * host,
            self.duration_s * gpu,
            waits_s,
            self.host_s * host,
            self.gap_s * gap,
        )

    def taking(self, step_s: float) -> "WaitingStep":
        """Return the step at a pace such that it takes `step_s`, by the least of these changes.

        The kernels as they are and the gaps if there is time for them; the host slower, or faster
        if there is not; kernels that take longer than a step as long as that.
        """
        busy_s = float(self.duration_s.sum())
        fitting = self.changed(gpu=min(1.0, step_s / busy_s))

        def at(effort: float) -> WaitingStep:
            """Return no host and no gaps (0), the host (1) with gaps (2), or a slower host."""
            host = min(1.0, effort) + max(0.0, effort - 2)
            return fitting.changed(host=host, gap=min(1.0, max(0.0, effort - 1)))

        if at(0.0).seconds() >= step_s:  # but for the last digit, since nothing waits then
            return at(0.0)
        most = 3 + step_s / self.host_s
        return at(_zero(lambda effort: at(effort).seconds() / step_s - 1, 0.0, most))

    def growth(self, *, host: float = 1.0, gpu: float = 1.0, gap: float = 1.0) -> float:
        """Return how many times as long a step takes, changed as by `changed`."""
        return self.changed(host=host, gpu=gpu, gap=gap).seconds() / self.seconds()

    def seconds(self) -> float:
        """Return seconds of a step alone, from the end of its last wait to the next such end."""
        last = int(np.flatnonzero(np.isfinite(self.waits_s))[-1])
        # Kernels from the last wait on; those before it belong to the next step.
        launch_s, waits_s = (
            np.concatenate((column[last + 1 :], column[: last + 1] + self.host_s))
            for column in (self.launch_s, self.waits_s)
        )
        taken_s = np.roll(self.duration_s, -last - 1) + self.gap_s
        before_s = np.cumsum(taken_s) - taken_s
        # Of the kernels up to each wait: how long the last launch that the GPU waits for leaves
        # them, and how long they take.
        waited = np.flatnonzero(np.isfinite(waits_s))
        first = np.append(0, waited[:-1] + 1)
        ready_s = np.maximum.reduceat(launch_s - before_s, first) + before_s[first]
        busy_s = np.add.reduceat(taken_s, first)
        began_s = -float(self.waits_s[last])  # when the host began this step, if it never waited
        free_s = 0.0
        columns = (ready_s.tolist(), busy_s.tolist(), waits_s[waited].tolist())
        for ready, busy, waits in zip(*columns, strict=True):
            free_s = max(free_s, began_s + ready) + busy
            began_s = max(began_s, free_s - self.gap_s - waits)
        return began_s + float(waits_s[-1])


# Of a step; the sum of its kernels' times is as inexact.
_EXACT = 1e-13


def _zero(function: Callable[[float], float], low: float, high: float) -> float:
    """Return where a `function`, negative at `low` and not at `high`, is 0 (Illinois method)."""
    at_low, at_high, before = function(low), function(high), 0.0
    while True:
        middle = high - at_high * (high - low) / (at_high - at_low)
        at = function(middle)
        if abs(at) <= _EXACT or not low < middle < high:  # or no number lies between
            return middle
        stays = 0.5 if at * before > 0 else 1.0
        if at > 0:
            high, at_high, at_low = middle, at, at_low * stays
        else:
            low, at_low, at_high = middle, at, at_high * stays
        before = at


def waits_for(launch_s: Floats, waits_s: Floats, host_s: float) -> Floats:
    """Return `ReplayTrace.waits_s` of a host that waits at `waits_s`, shape (waits,), of each step.

    A wait before a step's first launch is for the last kernel of the step before. Of several for
    the same kernel the first one holds the host.
    """
    by_kernel = np.full(len(launch_s), np.inf)
    before = np.searchsorted(launch_s, waits_s, side="right") - 1
    np.minimum.at(by_kernel, before, np.where(before < 0, waits_s + host_s, waits_s))
    return by_kernel


# A CUDA stream queues about this many launches before the host has to wait.
LAUNCH_QUEUE = 1024

# Processors differ in the last digit of a power, after which a replay would diverge: so powers are
# rounded to this many decimals.
DECIMALS = 9

# Once kernels queue up, this much still passes between two of them: GPM's share of time in which
# the engine was active, less the kernels' own time, is 1.1 us a kernel over 71 profiles.
QUEUED_GAP_S = 1e-6

# Kernels that overlap by less than this are one stream's, timed a little long.
_STREAMS = 1.05


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReplayTrace:
    """One tenant's round for replay, which repeats it; equal to itself alone.

    A round is one step, or more. Arrays have the shape (kernels,).

    Attributes:
        launch_s: Time when the host launches a kernel, from the round's start.
        duration_s: Time that it runs alone on the whole GPU.
        demand: SMs that it can use, as a share of the GPU's in 0..1; 0 for copies.
        waves: Its blocks over those that fit on the GPU at once, at least 0; 0 for copies.
        host_s: Seconds between the starts of two rounds on a host that never waits.
        gap_s: Seconds that pass on the GPU between a kernel's end and the next one's start.
        lead_s: Time by which the host can run ahead of the GPU.
        waits_s: Host time from the round's start at which the host waits for the kernel's end;
            infinite where it does not.
        in_turns: 1 for a kernel that needs a time slice, 0 for one on a copy engine; 1 for at
            least one.
        place: Index in the profile's trace of the kernel, or the first of those merged to it.
        steps: Training steps of a round; not whole if it is only a part of a long one.
    """

    launch_s: Floats
    duration_s: Floats
    demand: Floats
    waves: Floats
    host_s: float
    gap_s: float
    lead_s: float
    waits_s: Floats
    in_turns: Floats
    place: NDArray[np.intp]
    steps: float = 1.0

    @property
    def waiting(self) -> WaitingStep | None:
        """Return the round if its host waits for the GPU; else None."""
        if not np.isfinite(self.waits_s).any():
            return None
        return WaitingStep(self.launch_s, self.duration_s, self.waits_s, self.host_s, self.gap_s)

    def alone_s(self, step_s: float, kernels_s: float) -> float:
        """Return seconds of a step alone, measured as `step_s`, if a round's kernels take that."""
        if (waiting := self.waiting) is None:
            return max(step_s, (kernels_s + self.gap_s * len(self.duration_s)) / self.steps)
        return step_s * waiting.growth(gpu=kernels_s / float(self.duration_s.sum()))


def demand(trace: KernelTrace, sms: int, packing: float) -> Floats:
    """Return the share of a GPU with `sms` SMs that each kernel can use, 0..1, shape (kernels,).

    With a `packing` of 0 a block keeps an SM to itself, with 1 as many blocks share one as fit;
    between them it is a geometric mean.
    """
    spread = np.minimum(1, np.asarray(trace.blocks) / sms)
    packed = np.minimum(1, waves(trace, sms))
    return np.asarray(np.round(spread ** (1 - packing) * packed**packing, DECIMALS))


def waves(trace: KernelTrace, sms: int) -> Floats:
    """Return each kernel's blocks over the block slots of `sms` SMs, shape (kernels,)."""
    resident = np.maximum(np.asarray(trace.resident_blocks, dtype=np.float64), 1)
    return np.asarray(np.asarray(trace.blocks, dtype=np.float64) / (sms * resident))


def waiting_step(profile: Profile) -> WaitingStep | None:
    """Return the round of a job whose host waits for the GPU; None for others or if untraced."""
    if profile.trace is None or not profile.trace.waits_us:
        return None
    played = replay_trace(profile, 1, 0.0)  # the number of SMs makes no difference here
    return None if played is None else played.waiting


@cached_by_profiles
def replay_trace(profile: Profile, sms: int, packing: float) -> ReplayTrace | None:
    """Return the trace of `profile` for replay; alone it takes the step time measured alone.

    If the host is the slower side, its launches are stretched over the measured step; if the GPU
    is, the rest of the step is spread as gaps between the kernels. Kernels of a host-bound job
    queue up while others hold it back, and then follow each other as closely as the GPU starts
    them; so do those of a job whose host waits for the GPU, and the rest of the step is the host's.
    In a CUDA graph no time passes between kernels: the rest of its step comes before the next
    graph, and not where graphs queue up. None without a trace.
    """
    trace = profile.trace
    if trace is None or profile.host_s is None:
        return None
    times_us = np.array([trace.launch_us, trace.duration_us])
    of_host = np.array([kind == HOST_COPY for kind in trace.classes])[list(trace.class_of)]
    in_turns = np.where(of_host & ~of_host.all(), 0.0, 1.0)
    places = np.arange(len(of_host), dtype=np.float64)
    columns = np.stack(
        [*(1e-6 * times_us), demand(trace, sms, packing), waves(trace, sms), in_turns, places]
    )
    columns = _one_by_one(columns, (profile.gpu_s or 0.0) * trace.steps, trace)
    host_s, steps = profile.host_s * trace.steps, float(trace.steps)
    waits_s = waits_for(columns[0], 1e-6 * np.array(trace.waits_us or ()), host_s)
    if trace.steps > 1 and len(waits_s) > MOST_KERNELS:
        columns, waits_s, share = _part(columns, waits_s, host_s)
        host_s, steps = host_s * share, steps * share
    launch_s, duration_s, demanded, waved, in_turns, places = columns
    kernels, busy_s, round_s = len(duration_s), float(duration_s.sum()), profile.step_s * steps
    # It may run ahead by a step at least.
    lead, host_bound = max(1 / steps, LAUNCH_QUEUE / kernels), host_s >= busy_s
    if trace.waits_us:
        waiting = WaitingStep(launch_s, duration_s, waits_s, host_s, QUEUED_GAP_S)
        launch_s, duration_s, waits_s, host_s, gap_s = waiting.taking(round_s)
    elif profile.workload.execution == "graph" and not host_bound:
        # One launch a step starts all kernels.
        launch_s, duration_s = np.zeros_like(launch_s), duration_s * min(1.0, round_s / busy_s)
        host_s, gap_s, lead = round_s, 0.0, LAUNCH_QUEUE
    else:
        stretch = round_s / host_s if host_bound else min(1.0, round_s / host_s)
        host_s = host_s * stretch
        launch_s = np.minimum(launch_s * stretch, host_s)
        duration_s = duration_s * min(1.0, round_s / busy_s)
        gap_s = max(0.0, (round_s - busy_s) / kernels)
        gap_s = min(QUEUED_GAP_S, gap_s) if host_bound else gap_s
    return ReplayTrace(
        launch_s=launch_s,
        duration_s=duration_s,
        demand=demanded,
        waves=waved,
        host_s=host_s,
        gap_s=gap_s,
        lead_s=host_s * lead,
        waits_s=waits_s,
        in_turns=in_turns,
        place=places.astype(np.intp),
        steps=steps,
    )


MOST_KERNELS = 16_000
"""Most kernels of a round of several steps; of one with more, a part is replayed."""
# Places of a round from each of which a stretch of kernels is replayed.
_STRETCHES = 24


def _part(columns: Floats, waits_s: Floats, host_s: float) -> tuple[Floats, Floats, float]:
    """Return part of a long round, joined from stretches of it, and its share of the whole."""
    # Each stretch is one in so many by kernels, their time, host time and waits together: so few of
    # many equal updates remain, and as small a part of a rollout.
    launch_s, duration_s = columns[0], columns[1]
    kernels, every = len(waits_s), ceil(len(waits_s) / MOST_KERNELS)
    waits = np.isfinite(waits_s)
    host = np.diff(launch_s, append=max(host_s, launch_s[-1]))
    amounts = [np.ones(kernels), duration_s, host, waits]
    along = sum(np.cumsum(each) / max(each.sum(), 1e-9) for each in amounts)
    number = np.minimum(along / along[-1] * every * _STRETCHES, every * _STRETCHES - 1).astype(int)
    kept = number % every == number // every % every
    # Host time that passes with the stretches that are left out moves what follows them.
    left_out_s = np.cumsum(np.where(kept, 0.0, host))
    busy_share = float(duration_s[kept].sum() / duration_s.sum())
    share = float(waits[kept].sum() / waits.sum()) if waits[kept].any() else busy_share
    stretch = host_s * share / max(host_s - float(left_out_s[-1]), 1e-9)
    columns = columns[:, kept]
    columns[0] = (columns[0] - left_out_s[kept]) * stretch
    columns[1] *= share / busy_share
    return columns, (waits_s[kept] - left_out_s[kept]) * stretch, share


def _one_by_one(columns: Floats, gpu_s: float, trace: KernelTrace) -> Floats:
    """Return launch, duration, demand, waves, turns, places of kernels in turn, (6, kernels)."""
    # If kernels add up to more than the time in which any ran, neighbours on different streams are
    # merged, with all the SMs and slots that they used: they wait for other jobs at the same time.
    # If streams are unknown, as many are merged as ran at once on average.
    launch_s, duration_s, demanded, waved, in_turns, places = columns
    at_once = float(duration_s.sum()) / gpu_s if gpu_s else 1.0
    if at_once < _STREAMS:
        return columns
    if trace.stream_of is None:
        group = np.floor(np.arange(len(duration_s)) / at_once).astype(int)
    else:
        numbers, busy = [], set[int]()
        for stream in trace.stream_of:
            numbers.append(stream in busy)  # a new group begins
            busy = {stream} if stream in busy else busy | {stream}
        group = np.cumsum(numbers)
    together_s = np.maximum(np.bincount(group, duration_s) / at_once, 1e-9)
    used, held = (
        np.minimum(1.0, np.bincount(group, duration_s * share) / together_s)
        for share in (demanded, np.minimum(1.0, waved))
    )
    first = np.searchsorted(group, np.arange(group[-1] + 1))
    turns = np.minimum(1.0, np.bincount(group, in_turns))
    return np.stack([launch_s[first], together_s, used, held, turns, places[first]])


# Exponents are those of a kernel that has a quarter of the SMs that it could use. What it is spared
# dies away with this power of the SMs that are left. With it and the constants below, limits left
# out of the probes of an H200 and an H100 are 4.0 % and 5.5 % off, 6.6 % and 9.5 % with an exponent
# that is the same for all limits; without any one family, the same constants are the best.
_QUARTER, _POWER = 4.0, 2 / 3
# With less, kernels would be faster on fewer SMs.
_LEAST = 0.35
_EXPONENTS = np.linspace(_LEAST, 1.2, 35).round(3)
# Of a job without a probe, and how firmly a probe's is taken to be near that: exponents differ by
# about 0.1, and logs of its steps by 0.03 from what they should be.
_USUAL_EXPONENT, _FIRMNESS = 0.8, 0.1
# As fitted on both; see `advisor.prediction.replay.Physics`.
_PACKING = 0.45


def sm_pace(demand: Floats, share: float, exponent: float) -> Floats:
    """Return the pace of kernels on a share of the SMs over that on all, (0, 1], by `demand`.

    `demand` is the share of the SMs that each can use, `exponent` that of `limit_exponent`.
    """
    lack = np.maximum(demand, share) / share
    return np.asarray(np.round(_spared(lack, exponent) / lack, DECIMALS))


def _spared(lack: Floats, exponent: float) -> Floats:
    """Return the pace of kernels that could use `lack` times as many SMs, times `lack`."""
    # Kernels that move data lose little with the first SMs that are taken.
    died_away = (1 - lack**-_POWER) / (1 - _QUARTER**-_POWER)
    return np.asarray(_QUARTER ** ((1 - max(_LEAST, exponent)) * died_away))


def limit_exponent(profile: Profile, gpu: Gpu, bandwidth: float) -> float:
    """Return the exponent of the law by which a limit slows the job's kernels; 1: in proportion.

    On a quarter of the SMs that they could use, they run at ``0.25 ** exponent`` of their pace;
    `bandwidth` is that of `advisor.prediction.replay.Physics`.
    """
    return bandwidth * exponent_alone(profile, gpu) + (1 - bandwidth)


def exponent_alone(profile: Profile, gpu: Gpu) -> float:
    """Return `limit_exponent` of a job that keeps its bandwidth; the usual one without a probe."""
    measured = measured_exponent(profile, gpu)
    return _USUAL_EXPONENT if measured is None else measured


@cached_by_profiles
def measured_exponent(profile: Profile, gpu: Gpu) -> float | None:
    """Fit the exponent to the probe of `profile`, on any GPU; None without a probe.

    Steps that hide in the host's path only bound it. A probe disturbed by its host moves it little,
    because few exponents are far from the usual one.
    """
    if profile.sm_exponent is not None or profile.mps is None:
        return profile.sm_exponent
    if (played := replay_trace(profile, gpu.sms, _PACKING)) is None:
        return None
    off = _FIRMNESS * (_EXPONENTS - _USUAL_EXPONENT) ** 2
    demanded, kind = np.unique(played.demand, return_inverse=True)  # most kernels are like others
    kind_s = np.bincount(kind, played.duration_s)
    for run in profile.mps.limited:
        share = run.sms / gpu.sms if run.sms else limit_shares([run.limit_pct], gpu.sms)[0]
        kernels_s = [(kind_s / sm_pace(demanded, share, each)).sum() for each in _EXPONENTS]
        slowdown = np.array([played.alone_s(profile.step_s, each) for each in kernels_s])
        slowdown /= profile.step_s
        off += np.log(slowdown / max(1.0, run.step_s / profile.mps.unlimited.step_s)) ** 2
    return float(_EXPONENTS[int(np.argmin(off))])


def slowdowns(demand: Floats, profile: Profile, partition: Partition, exponent: float) -> Floats:
    """Return slowdowns of kernels with that `demand` on a partition, at least 1, in its shape.

    With all of the bandwidth they are those under a limit that leaves as many SMs. Where bandwidth
    and L2 are cut too, a share of everything works at that share of the pace: kernels that slow
    less than in proportion to SMs do so for the bandwidth that a limit leaves them. A job that uses
    more of the GPU's bandwidth while busy than the partition has slows by that at least.
    """
    sms = np.maximum(1.0, demand / partition.sm_share)
    bandwidth = np.maximum(1.0, demand / partition.bandwidth_share)
    moving = min(1.0, exponent)  # kernels that slow by more do not do so for bandwidth
    richer = _spared(np.maximum(1.0, sms / bandwidth), moving)
    poorer = _spared(np.maximum(1.0, bandwidth / sms), moving)
    by_both = sms / _spared(sms, max(1.0, exponent)) / richer * poorer
    busy_s = (profile.busy_share or 0.0) * profile.step_s
    dram_share = min(1.0, moving_s(profile) / busy_s) if busy_s else 0.0  # while it is busy
    return np.asarray(np.maximum(by_both, dram_share / partition.bandwidth_share))


def moving_s(profile: Profile) -> float:
    """Return seconds in which the GPU's full bandwidth moves a step's data; 0 where unknown."""
    return (getattr(profile.counters, "dram_active", None) or 0.0) * profile.step_s
