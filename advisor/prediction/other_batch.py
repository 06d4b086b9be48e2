"""Estimates a profile at a batch size that was not measured, from profiles at others.

Three laws bound time and energy: a larger batch costs no less, an example in it costs no more, and
each further example costs at least as much as the one before. They leave a band between sizes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from math import hypot, log, log2, sqrt
from statistics import fmean

import numpy as np

from advisor.errors import InvalidInput
from advisor.files.units import LEAST_STEP_S, MOST_BLOCKS
from advisor.hardware.machine import Counters
from advisor.prediction.cache import cached_by_profiles
from advisor.prediction.host import on_host_checked
from advisor.prediction.other_gpu import START_US
from advisor.prediction.prediction import all_known
from advisor.workload.profile import (
    HostSide,
    KernelTrace,
    LimitedRun,
    Memory,
    MpsProbe,
    OtherBatches,
    Profile,
)
from advisor.workload.profile_checks import longer, stretched
from advisor.workload.spec import batch_name

FARTHEST = 4.0
"""The largest ratio to the nearest measured batch size at which a size is estimated."""

# Standard deviation of the log of a step at a measured size, and for each doubling from the nearest
# one as much again: each size has kernels of its own. And as a share of the band's width. Both
# from the V100 of Zeus (NSDI'23 artifact, ml-energy/zeus, 5 networks); scored on its A40, and on
# the A100 slices of MISO and MIGPerf.
_ALIKE, _OF_BAND = 0.03, 0.4

# The same of memory: tensors grow in proportion, the allocator's cache does so roughly.
_MEMORY_ALIKE = 0.02


@dataclass(frozen=True, slots=True)
class AtBatch:
    """A value expected at a batch size, and the standard deviation of its log."""

    middle: float
    spread: float


def band(costs: Mapping[int, float], batch: int) -> tuple[float, float]:
    """Return the bounds that the three laws allow at `batch`; equal where it was measured.

    `costs` is the cost of a step by batch size. Measurements that contradict the laws are replaced
    by the line between the nearest two.
    """

    def line(one: int, other: int) -> float:
        return costs[one] + (costs[other] - costs[one]) * (batch - one) / (other - one)

    if batch in costs:
        return costs[batch], costs[batch]
    below = sorted((each for each in costs if each < batch), reverse=True)[:2]
    above = sorted(each for each in costs if each > batch)[:2]
    least = [line(*near) for near in (below, above) if len(near) == 2]
    least += [costs[each] for each in below[:1]]
    least += [costs[each] * batch / each for each in above[:1]]
    if below and above:
        most = line(below[0], above[0])
    else:
        most = costs[below[0]] * batch / below[0] if below else costs[above[0]]
    return min(max(least), most), most


def step_at(costs: Mapping[int, float], batch: int) -> AtBatch:
    """Estimate time or energy of a step: the middle of the band, or its lower end beyond the sizes.

    There the line through the nearest two sizes continues as far as the other laws allow.
    """
    low, high = band(costs, batch)
    middle = sqrt(low) * sqrt(high) if min(costs) < batch < max(costs) else low
    width = log(high / low) if low > 0 else 0.0
    return AtBatch(middle, hypot(_away(costs, batch, _ALIKE), _OF_BAND * width))


def memory_at(held_mib: Mapping[int, float], batch: int) -> AtBatch:
    """Estimate memory: on the line through two sizes, because activations grow in proportion.

    Beyond the largest size the line is a lower bound: where activations are few, memory peaks at
    the optimizer's step, and a larger batch moves the peak to the backward pass, where all
    activations count.
    """
    low, high = band(held_mib, batch)
    spread = _away(held_mib, batch, _MEMORY_ALIKE)
    if min(held_mib) < batch < max(held_mib):
        return AtBatch(high, spread)
    above = batch > max(held_mib) and low > 0
    return AtBatch(low, hypot(spread, _OF_BAND * log(high / low)) if above else spread)


def _away(costs: Mapping[int, float], batch: int, spread: float) -> float:
    """Return `spread`, once more for each doubling from the nearest measured size; 0 at one."""
    doublings = min(abs(log2(each / batch)) for each in costs)
    return spread * (1 + doublings) if doublings else 0.0


# Kernels that do as much in every step, whatever its batch.
_OF_WEIGHTS = ("optimizer",)


def trace_at_batch(
    near: Profile, batch: int, host: AtBatch | None, on_gpu: AtBatch | None
) -> KernelTrace | None:
    """Estimate the trace of `near` at another batch size; kernels equal in every step stay."""
    trace = near.trace
    if trace is None or host is None or on_gpu is None or not near.gpu_s or not near.host_s:
        return None
    us, blocks = np.asarray(trace.duration_us), np.asarray(trace.blocks, dtype=np.float64)
    fixed = np.isin(np.array(trace.classes), _OF_WEIGHTS)[list(trace.class_of)]
    stays = np.where(fixed, us, np.minimum(us, START_US))
    total = float(us.sum()) * on_gpu.middle / near.gpu_s
    moving = float((us - stays).sum())
    factor = (total - float(stays.sum())) / moving if moving else 0.0
    scaled = stays + (us - stays) * factor if factor > 0 else us * total / float(us.sum())
    grown = np.clip(np.rint(blocks * (batch / near.workload.batch)), 1, MOST_BLOCKS)
    grown = np.where(fixed | (blocks == 0), blocks, grown)
    return replace(
        trace.launched(host.middle / near.host_s),
        duration_us=tuple(map(float, scaled)),
        blocks=tuple(map(int, grown)),
    )


_COUNTED = tuple(each.name for each in fields(Counters) if each.name not in ("source", "gract"))


@cached_by_profiles
def at_batch(profiles: Sequence[Profile], batch: int) -> Profile:
    """Return the profile of one workload at `batch`: estimated from `profiles`, unless measured.

    Raises:
        InvalidInput: They differ in more than their batch size, or `batch` is too far from theirs.
    """
    measured = {each.workload.batch: each for each in profiles}
    if batch in measured:
        return measured[batch]
    first, *others = profiles
    for other in others:
        like = replace(first.workload, name=other.name, batch=other.workload.batch)
        if other.workload != like or other.gpu != first.gpu:
            raise InvalidInput(f"{other.name} differs from {first.name} in more than its batch")
    least, most = min(measured), max(measured)
    if least == most:
        raise InvalidInput(
            f"{first.name} was measured only at batch {least}, and the cost of an example needs "
            "two batch sizes. Measure it at another one too."
        )
    if not least / FARTHEST <= batch <= most * FARTHEST:
        name = batch_name(first.name)
        side = f"largest, {most}" if batch > most else f"smallest, {least}"
        raise InvalidInput(
            f"{name.work if name else first.name}: batch {batch} is more than {FARTHEST:g} times "
            f"beyond the {side} at which it was measured. Measure it nearer to that."
        )
    near = measured[min(measured, key=lambda each: abs(log(each / batch)))]
    on_host = {key: on_host_checked(each, near.host_check_s) for key, each in measured.items()}
    return _estimate(on_host, near, batch)


class _Sizes:
    """Profiles by batch size; estimates each of their numbers at another size."""

    def __init__(self, measured: dict[int, Profile], batch: int) -> None:
        self.measured, self.batch = measured, batch

    def by_size(self, number: Callable[[Profile], float | None]) -> dict[int, float] | None:
        """Return a number of each profile by batch size; None if a profile lacks it."""
        values = all_known(number(each) for each in self.measured.values())
        return None if values is None else dict(zip(self.measured, values, strict=True))

    def step(self, number: Callable[[Profile], float | None]) -> AtBatch | None:
        """Estimate a number that adds up over a step, such as time."""
        costs = self.by_size(number)
        return None if costs is None else step_at(costs, self.batch)

    def per_step(self, number: Callable[[Profile], float | None], step_s: float) -> float | None:
        """Estimate a rate, from its amount in a step, which takes `step_s`."""

        def in_a_step(each: Profile) -> float | None:
            rate = number(each)
            return None if rate is None else rate * each.step_s

        amount = self.step(in_a_step)
        return None if amount is None else amount.middle / step_s

    def memory(self, number: Callable[[Profile], float | None]) -> AtBatch | None:
        costs = self.by_size(number)
        return None if costs is None else memory_at(costs, self.batch)


def _estimate(measured: dict[int, Profile], near: Profile, batch: int) -> Profile:
    sizes = _Sizes(measured, batch)
    host, on_gpu = _host(sizes, near), sizes.step(lambda each: each.gpu_s)
    step = _step(sizes, near, host, on_gpu)
    memory = _memory(sizes, lambda each: each.memory)
    held = sizes.memory(lambda each: each.memory.reserved_mib or each.memory.device_mib)
    # By the energy above idle, of which a step has a part and an example a part.
    idles_w = sizes.by_size(lambda each: each.idle_power_w)
    idle_w = fmean(idles_w.values()) if idles_w else 0.0
    above_w = sizes.per_step(
        lambda each: None if each.power_w is None else max(0.0, each.power_w - idle_w), step.middle
    )
    power_w = None if above_w is None else idle_w + above_w
    name = batch_name(near.name)

    def of_host(name: str) -> float | None:
        return _middle(sizes.step(lambda each: getattr(each.host, name, None)))

    return replace(
        near,
        workload=replace(near.workload, name=name.at(batch) if name else near.name, batch=batch),
        windows=stretched(near.windows, step.middle / near.step_s),
        host_s=_middle(host),
        gpu_s=_middle(on_gpu),
        host_cpu_share=sizes.per_step(lambda each: each.host_cpu_share, step.middle),
        memory=memory,
        counters=_counters(sizes, near.counters, step.middle),
        power_w=power_w,
        energy_j=power_w and power_w * step.middle,
        mps=_probe(sizes, near),
        trace=near.trace and trace_at_batch(near, batch, host, on_gpu),
        took=None,
        epoch_end=near.epoch_end and near.epoch_end.apart(near.workload.batch / batch),
        host=near.host and HostSide(**{each.name: of_host(each.name) for each in fields(HostSide)}),
        other_batches=OtherBatches(
            tuple(sorted(measured)), step.spread, held.spread if held else step.spread
        ),
    )


def _middle(value: AtBatch | None) -> float | None:
    return None if value is None else value.middle


def _host(sizes: _Sizes, near: Profile) -> AtBatch | None:
    """Estimate the host path: launches, the same beyond the sizes measured; or a loader's."""
    host, costs = sizes.step(lambda each: each.host_s), sizes.by_size(lambda each: each.host_s)
    if host is None or costs is None or near.workload.loader_workers:
        return host
    return AtBatch(min(max(host.middle, min(costs.values())), max(costs.values())), host.spread)


def _step(sizes: _Sizes, near: Profile, host: AtBatch | None, on_gpu: AtBatch | None) -> AtBatch:
    """Estimate the step by its slower path; without both, by the laws."""
    if host is None or on_gpu is None:
        return step_at({size: each.step_s for size, each in sizes.measured.items()}, sizes.batch)
    near_host_s, near_gpu_s = near.host_s or 0.0, near.gpu_s or 0.0
    # The rest of the step, such as gaps between kernels; and a host's pace since then, which does
    # not change the GPU's work.
    over = near.step_s / max(near_host_s, near_gpu_s, LEAST_STEP_S)
    of_host, of_gpu = (over, 1.0) if near_host_s >= near_gpu_s else (1.0, over)
    host_s, gpu_s = host.middle * of_host, on_gpu.middle * of_gpu
    return AtBatch(max(LEAST_STEP_S, host_s, gpu_s), (host if host_s >= gpu_s else on_gpu).spread)


def _memory(sizes: _Sizes, of: Callable[[Profile], Memory]) -> Memory:
    """Estimate each part by the law, none above the one that contains it."""
    allocated = _middle(sizes.memory(lambda each: of(each).allocated_mib))
    reserved = _middle(sizes.memory(lambda each: of(each).reserved_mib))
    device = _middle(sizes.memory(lambda each: of(each).device_mib))
    if allocated is None or reserved is None:
        return Memory(allocated_mib=None, reserved_mib=None, device_mib=device)
    reserved = max(allocated, reserved)
    device = None if device is None else max(reserved, device)
    return Memory(allocated_mib=allocated, reserved_mib=reserved, device_mib=device)


def _counters(sizes: _Sizes, near: Counters | None, step_s: float) -> Counters | None:

    def counted(name: str) -> float | None:
        rate = sizes.per_step(lambda each: getattr(each.counters, name, None), step_s)
        most = float("inf") if name.endswith("_mib_s") else 1.0
        return None if rate is None else min(most, rate)

    gract = counted("gract")
    if near is None or gract is None:
        return None
    return Counters(source=near.source, gract=gract, **{name: counted(name) for name in _COUNTED})


def _probe(sizes: _Sizes, near: Profile) -> MpsProbe | None:
    probe = near.mps
    if probe is None:
        return None

    def moved(run: LimitedRun) -> LimitedRun | None:
        def probed_s(each: Profile) -> float | None:
            runs = (*each.mps.limited, each.mps.unlimited) if each.mps else ()
            return next((one.step_s for one in runs if one.limit_pct == run.limit_pct), None)

        step = sizes.step(probed_s)
        return None if step is None else longer(run, step.middle / run.step_s)

    unlimited, *limited = map(moved, (probe.unlimited, *probe.limited))
    if unlimited is None:
        return None
    memory = _memory(sizes, lambda each: each.mps.memory if each.mps else each.memory)
    return MpsProbe(unlimited, tuple(each for each in limited if each), memory)
