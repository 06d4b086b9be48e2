"""Estimates a profile at a batch size that was not measured, from profiles at others.

Both paths of a step, memory, energy and activity each follow `batch_law`. The kernel trace is that
of the nearest size, with more or fewer blocks, and scaled as the GPU's path is.
"""

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from math import log
from statistics import fmean

from advisor.errors import InvalidInput
from advisor.prediction.batch_law import AtBatch, check_near, memory_at, step_at
from advisor.prediction.batch_trace import trace_at_batch
from advisor.prediction.cache import once_a_mix
from advisor.prediction.host_transfer import on_host_checked
from advisor.prediction.stretched_profile import stretched
from advisor.workload.host_side import HostSide
from advisor.workload.measured import Counters, Memory
from advisor.workload.other_batches import OtherBatches, batch_name
from advisor.workload.plausible import LEAST_STEP_S
from advisor.workload.profile import LimitedRun, MpsProbe, Profile
from advisor.workload.spec import Workload

_COUNTED = tuple(each.name for each in fields(Counters) if each.name not in ("source", "gract"))


@once_a_mix
def at_batch(profiles: Sequence[Profile], batch: int) -> Profile:
    """The profile of the workload of `profiles` at `batch`: estimated, unless measured.

    Args:
        profiles: Profiles of one workload on one GPU at different batch sizes, at least two.
        batch: Examples a step.

    Raises:
        InvalidInput: They differ in more than their batch size, are fewer than two, or `batch` is
            too far from all of theirs.
    """
    measured = {each.workload.batch: each for each in profiles}
    if batch in measured:
        return measured[batch]
    check_alike(profiles)
    said = batch_name(profiles[0].name)
    check_near(said.work if said else profiles[0].name, measured, batch)
    near = measured[min(measured, key=lambda each: abs(log(each / batch)))]
    alike = {key: on_host_checked(each, near.host_check_s) for key, each in measured.items()}
    return _estimate(alike, near, batch)


def check_alike(profiles: Sequence[Profile]) -> None:
    """Check that `profiles` differ in batch size, and in nothing else of their workloads.

    Raises:
        InvalidInput: They do not.
    """
    first, *others = profiles
    for each in others:
        own = replace(first.workload, name=each.name, batch=each.workload.batch)
        if each.workload != own or each.gpu != first.gpu:
            raise InvalidInput(f"{each.name} differs from {first.name} in more than its batch")
    if len({each.workload.batch for each in profiles}) < 2:
        raise InvalidInput(
            f"{first.name} was measured at batch {first.workload.batch} only, and what an example "
            f"adds to a step takes two sizes. Measure it at another one too."
        )


class _Sizes:
    """Profiles by batch size; estimates each of their numbers at another size."""

    def __init__(self, measured: dict[int, Profile], batch: int) -> None:
        self.measured, self.batch = measured, batch

    def known(self, number: Callable[[Profile], float | None]) -> dict[int, float] | None:
        """A number of each profile by batch size; None if a profile lacks it."""
        found = {size: number(each) for size, each in self.measured.items()}
        known = {size: value for size, value in found.items() if value is not None}
        return known if len(known) == len(found) else None

    def step(self, number: Callable[[Profile], float | None]) -> AtBatch | None:
        """A number that adds up over a step, such as time."""
        known = self.known(number)
        return None if known is None else step_at(known, self.batch)

    def per_step(self, number: Callable[[Profile], float | None], step_s: float) -> float | None:
        """A rate, from its amount in a step, which takes `step_s`."""

        def in_a_step(each: Profile) -> float | None:
            rate = number(each)
            return None if rate is None else rate * each.step_s

        found = self.step(in_a_step)
        return None if found is None else found.middle / step_s

    def memory(self, number: Callable[[Profile], float | None]) -> AtBatch | None:
        known = self.known(number)
        return None if known is None else memory_at(known, self.batch)


def _estimate(measured: dict[int, Profile], near: Profile, batch: int) -> Profile:
    sizes = _Sizes(measured, batch)
    host, on_gpu = _host(sizes, near), sizes.step(lambda each: each.gpu_s)
    step = _step(sizes, near, host, on_gpu)
    memory = _memory(sizes, lambda each: each.memory)
    held = sizes.memory(lambda each: each.memory.reserved_mib or each.memory.device_mib)
    power_w = _power_w(sizes, step.middle)
    return replace(
        near,
        workload=_workload(near.workload, batch),
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
        host=_host_side(sizes, near.host),
        other_batches=OtherBatches(
            tuple(sorted(measured)), step.spread, held.spread if held else step.spread
        ),
    )


def _host_side(sizes: _Sizes, near: HostSide | None) -> HostSide | None:
    """Each part by the laws of a step: a loader's has little that every batch takes alike."""
    if near is None:
        return None
    names = [each.name for each in fields(HostSide)]
    return HostSide(**{name: _middle(sizes.step(_part_of_host(name))) for name in names})


def _part_of_host(name: str) -> Callable[[Profile], float | None]:
    return lambda each: getattr(each.host, name, None)


def _middle(found: AtBatch | None) -> float | None:
    return None if found is None else found.middle


def _host(sizes: _Sizes, near: Profile) -> AtBatch | None:
    """The host path: launches, which beyond the sizes measured stay as they are; or a loader's."""
    found, known = sizes.step(lambda each: each.host_s), sizes.known(lambda each: each.host_s)
    if found is None or known is None or near.workload.loader_workers:
        return found
    within = min(max(found.middle, min(known.values())), max(known.values()))
    return AtBatch(within, found.spread)


def _step(sizes: _Sizes, near: Profile, host: AtBatch | None, on_gpu: AtBatch | None) -> AtBatch:
    """The slower path sets the pace; without both, the step itself is expected by the laws."""
    if host is None or on_gpu is None:
        return step_at({size: each.step_s for size, each in sizes.measured.items()}, sizes.batch)
    near_host_s, near_gpu_s = near.host_s or 0.0, near.gpu_s or 0.0
    # Of the step what is neither, as gaps between kernels; and a host's pace since then, which
    # makes nothing that the GPU does longer or shorter.
    over = near.step_s / max(near_host_s, near_gpu_s, LEAST_STEP_S)
    of_host, of_gpu = (over, 1.0) if near_host_s >= near_gpu_s else (1.0, over)
    paths = (
        AtBatch(host.middle * of_host, host.spread),
        AtBatch(on_gpu.middle * of_gpu, on_gpu.spread),
    )
    slower = max(paths, key=lambda each: each.middle)
    return AtBatch(max(LEAST_STEP_S, slower.middle), slower.spread)


def _workload(near: Workload, batch: int) -> Workload:
    said = batch_name(near.name)
    return replace(near, name=said.at(batch) if said else near.name, batch=batch)


def _memory(sizes: _Sizes, of: Callable[[Profile], Memory]) -> Memory:
    """Each part by the law, none above the one that holds it."""
    allocated = _middle(sizes.memory(lambda each: of(each).allocated_mib))
    reserved = _middle(sizes.memory(lambda each: of(each).reserved_mib))
    device = _middle(sizes.memory(lambda each: of(each).device_mib))
    if allocated is None or reserved is None:
        return Memory(allocated_mib=None, reserved_mib=None, device_mib=device)
    reserved = max(allocated, reserved)
    return Memory(
        allocated_mib=allocated,
        reserved_mib=reserved,
        device_mib=None if device is None else max(reserved, device),
    )


def _power_w(sizes: _Sizes, step_s: float) -> float | None:
    """By the energy above idle, of which a step has a part and an example a part."""
    idle_w = sizes.known(lambda each: each.idle_power_w)
    idle = 0.0 if idle_w is None else fmean(idle_w.values())
    above = sizes.per_step(
        lambda each: None if each.power_w is None else max(0.0, each.power_w - idle), step_s
    )
    return None if above is None else idle + above


def _counters(sizes: _Sizes, near: Counters | None, step_s: float) -> Counters | None:
    gract = _counted(sizes, "gract", step_s)
    if near is None or gract is None:
        return None
    others = {name: _counted(sizes, name, step_s) for name in _COUNTED}
    return Counters(source=near.source, gract=gract, **others)


def _counted(sizes: _Sizes, name: str, step_s: float) -> float | None:
    found = sizes.per_step(lambda each: getattr(each.counters, name, None), step_s)
    most = float("inf") if name.endswith("_mib_s") else 1.0
    return None if found is None else min(most, found)


def _probe(sizes: _Sizes, near: Profile) -> MpsProbe | None:
    probe = near.mps
    if probe is None:
        return None

    def moved(run: LimitedRun) -> LimitedRun | None:
        there = sizes.step(lambda each: _probed_s(each, run.limit_pct))
        if there is None:
            return None
        return replace(run, windows=stretched(run.windows, there.middle / run.step_s))

    unlimited, *limited = map(moved, (probe.unlimited, *probe.limited))
    if unlimited is None:
        return None
    memory = _memory(sizes, lambda each: each.mps.memory if each.mps else each.memory)
    return MpsProbe(unlimited, tuple(each for each in limited if each), memory)


def _probed_s(profile: Profile, limit_pct: float) -> float | None:
    """Seconds of a step of `profile` alone under that limit; None if it was not probed."""
    runs = () if profile.mps is None else (*profile.mps.limited, profile.mps.unlimited)
    return next((each.step_s for each in runs if each.limit_pct == limit_pct), None)
