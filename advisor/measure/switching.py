"""Measures what taking turns on a GPU costs: two processes of endless kernels, alone and together.

Alone, each does a kernel every `alone` seconds; together every `shared` seconds. If turns were
free, ``alone / shared`` of both would add up to 1: the difference from 1 is the overhead.

With kernels far shorter than a slice, the moments at which one tenant's kernels end show slices:
close together while it has the GPU, then a gap while the other has it. A cycle reaches from the
end of one gap to the end of the next. Without its own kernel a gap is the time away, and the rest
of the cycle is the slice. There are two changes of owner a cycle, so one costs
``overhead * cycle / 2``; that contains what refilling caches costs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from time import perf_counter, time
from typing import Any, cast

import numpy as np

from advisor.errors import AdvisorError
from advisor.measure.process.claimed_device import Meter
from advisor.measure.process.mps_session import MpsSession
from advisor.measure.process.tenant_handle import TenantHandle, living
from advisor.measure.process.tenant_verbs import GpuQueue, synchronise, training_verbs
from advisor.measure.process.tenants import GRACE_S, ask_all, tenants_on
from advisor.measure.process.trainable import Trainable
from advisor.measure.process.windows import Schedule, Timing, schedule, sleep_until, windows_of
from advisor.measure.process.worker import TenantState, Verb
from advisor.sharing import Naive
from advisor.workload.machine_calibration import Switching
from advisor.workload.measured import median_step_s

_REMEDY = ". Calibrate again."

# Square matrices of this side to begin with, and in multiples of it: whole tiles of any library.
_TILE, _FIRST_SIDE = 128, 1024

# Time per operation depends on the size, so the size is adjusted several times.
_TRIES, _TIMED = 3, 20

# Work that is queued ahead, in seconds: beyond any slice; and most launches a GPU takes.
_AHEAD_S, _MOST_AHEAD = 0.1, 900


def calibration_verbs() -> Mapping[str, Verb]:
    """The training verbs and `load_kernel`."""
    return {**training_verbs(), "load_kernel": load_kernel}


def load_kernel(state: TenantState, kernel_s: float) -> dict[str, Any]:
    """Make a step one product of square matrices that takes about `kernel_s`.

    Returns:
        ``kernel_s``: what it takes, roughly.

    Raises:
        AdvisorError: No product takes time on this device.
    """
    side, took_s = _FIRST_SIDE, _took_s(state, _Repeated(state.device, _FIRST_SIDE, _MOST_AHEAD))
    for _ in range(_TRIES):
        if took_s <= 0:
            raise AdvisorError("a matrix product took no time here. Calibrate again.")
        # Its work grows with the cube of its side.
        side = max(1, round(side * (kernel_s / took_s) ** (1 / 3) / _TILE)) * _TILE
        ahead = max(2, min(_MOST_AHEAD, round(_AHEAD_S / kernel_s)))
        kernel = _Repeated(state.device, side, ahead)
        took_s = _took_s(state, kernel)
    state.trainable = cast("Trainable", kernel)  # `run` only calls it
    return {"kernel_s": took_s}


def _took_s(state: TenantState, kernel: "_Repeated") -> float:
    kernel()
    synchronise(state)
    began = perf_counter()
    for _ in range(_TIMED):
        kernel()
    synchronise(state)
    return (perf_counter() - began) / _TIMED


class _Repeated:
    """Enqueues one matrix product a call; waits if more than `ahead` are queued."""

    def __init__(self, device: str, side: int, ahead: int) -> None:
        import torch

        self._multiply = torch.mm
        self._factor = torch.ones(side, side, device=device)
        self._product = torch.empty_like(self._factor)
        self._queue = GpuQueue(ahead)

    def __call__(self) -> None:
        self._multiply(self._factor, self._factor, out=self._product)
        if self._factor.is_cuda:
            self._queue.mark()


def all_answers(
    tenants: Sequence[TenantHandle], verb: str, **arguments: Any
) -> list[dict[str, Any]]:
    """Send all `tenants` the same request at once; their answers, in their order.

    Raises:
        AdvisorError: One ran out of memory or died.
    """
    return [living(each, _REMEDY) for each in ask_all(tenants, verb, [arguments] * len(tenants))]


# Far below a slice of some milliseconds, and about as long as one.
_KERNELS_S = (0.1e-3, 2e-3)

_TIMING = Timing(settle_s=0.0, window_s=0.4, windows=3, lead_s=0.4)
_NOTICE_S = 0.05

# From this many kernels alone on, a pause between two ends is a turn of the other's.
_GAP = 2.0

# Fewer gaps show no pattern; with fewer kernels in a slice, kernels and not the driver end it.
_FEWEST_GAPS, _FEWEST_KERNELS = 20, 4

Clocks = tuple[int | None, int | None]


@dataclass(frozen=True, slots=True)
class TimedKernels:
    """When the kernels of tenants ended in one schedule, shape (tenants, kernels)."""

    plan: Schedule
    completed_at: tuple[tuple[float, ...], ...]

    @property
    def step_s(self) -> tuple[float, ...]:
        """Seconds of a kernel of each tenant, shape (tenants,)."""
        return tuple(median_step_s(windows_of(self.plan, each)) for each in self.completed_at)


def switching(session: MpsSession, cores: Sequence[int]) -> tuple[tuple[Switching, ...], Clocks]:
    """The cost of turns for each length of kernel, and the GPU's clocks during that work.

    Raises:
        AdvisorError: A tenant ran out of memory or died.
    """
    session.switch_to(Naive())
    setups = session.setups(Naive(), [(core,) for core in cores])
    meter, found = Meter(session.device), []
    clocks_mhz: Clocks = (None, None)
    with tenants_on(setups, session.folder, calibration_verbs) as tenants:
        for kernel_s in _KERNELS_S:
            for tenant in tenants:  # one after another, since each times its kernel
                all_answers([tenant], "load_kernel", kernel_s=kernel_s)
            alone = [_timed_kernels([tenant], meter)[0] for tenant in tenants]
            together, clocks_mhz = _timed_kernels(tenants, meter)
            found.append(switching_of(alone, together))
    return tuple(found), clocks_mhz


def _timed_kernels(tenants: Sequence[TenantHandle], meter: Meter) -> tuple[TimedKernels, Clocks]:
    plan = schedule(time() + _NOTICE_S, _TIMING, 0.0)
    for tenant in tenants:
        tenant.send("run", start_at=plan.start_at, stop_at=plan.stop_at)
    sleep_until((plan.begin_at + plan.end_at) / 2)
    clocks_mhz = meter.clocks_mhz()
    answer = [living(tenant.receive(GRACE_S), _REMEDY) for tenant in tenants]
    return TimedKernels(plan, tuple(tuple(each["completed_at"]) for each in answer)), clocks_mhz


def switching_of(alone: Sequence[TimedKernels], together: TimedKernels) -> Switching:
    """The cost of turns, from two tenants' times, each alone and both together in one order."""
    alone_s = [each.step_s[0] for each in alone]
    speeds = [lone_s / shared_s for lone_s, shared_s in zip(alone_s, together.step_s, strict=True)]
    overhead = 1 - sum(speeds)
    turns = [
        _turns(together.plan, ends, lone_s)
        for ends, lone_s in zip(together.completed_at, alone_s, strict=True)
    ]
    known = [each for each in turns if each is not None]
    return Switching(
        kernel_s=mean(alone_s),
        overhead=overhead,
        slice_s=mean(slice_s for slice_s, _ in known) if known else None,
        switch_s=overhead * mean(cycle_s for _, cycle_s in known) / 2 if known else None,
    )


def _turns(
    plan: Schedule, completed_at: Sequence[float], alone_s: float
) -> tuple[float, float] | None:
    """Median slice and median cycle of one tenant, seconds; None if there is no pattern."""
    ends = np.array([each for each in completed_at if plan.begin_at <= each <= plan.end_at])
    pauses = np.diff(ends)
    gaps = np.flatnonzero(pauses > _GAP * alone_s)
    if len(gaps) < _FEWEST_GAPS:
        return None
    cycle_s = float(np.median(np.diff(ends[gaps + 1])))
    away_s = float(np.median(pauses[gaps])) - alone_s
    slice_s = cycle_s - away_s
    return (slice_s, cycle_s) if slice_s >= _FEWEST_KERNELS * alone_s else None
