"""``advisor calibrate``: measures a machine in about a minute and writes its calibration file.

Two processes repeat kernels alone and together: ``1 - sum(alone_s / shared_s)`` is lost to turns.
Gaps between ends of kernels show slices; with two changes a cycle, one costs half of its loss.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from time import perf_counter, time
from typing import Any

import numpy as np

from advisor.errors import AdvisorError, InvalidInput, in_percent, require_extra
from advisor.files.reading import user_folder
from advisor.files.records import parse_record
from advisor.files.writing import record_text, writable, write_whole
from advisor.hardware.live_gpu import live_gpu
from advisor.hardware.machine import Calibration, Contexts, LimitedContext, Switching, allowed_cores
from advisor.measure.bench import Bench, MpsSession, bench_on, receive_all, send_all, tenants_on
from advisor.measure.device import (
    Clocks,
    Meter,
    command_line,
    find_device,
    memory_record,
    power_readings_w,
    refuse_other,
)
from advisor.measure.pace import Schedule, schedule, sleep_until, windows_of
from advisor.measure.planned_runs import Timing
from advisor.measure.process import say
from advisor.measure.tenant import GRACE_S, Tenant, living
from advisor.sharing import Concurrent, Mps, Naive
from advisor.workload.catalogue import workload
from advisor.workload.profile import median_step_s

_REMEDY = ". Calibrate again."


def load_kernel(served: Any, device: str, kernel_s: float) -> dict[str, Any]:
    """Make a step one product of square matrices that takes about `kernel_s`."""
    side = 1024
    call = _product(side, device)
    for _ in range(3):  # time per operation depends on the size
        _timed_s(call, 1, device)
        took_s = _timed_s(call, 20, device) / 20
        if took_s <= 0:
            raise AdvisorError(f"a matrix product took no time here{_REMEDY}")
        # Its work grows with the cube of its side; multiples of 128 are whole tiles of any library.
        side = max(1, round(side * (kernel_s / took_s) ** (1 / 3) / 128)) * 128
        call = _product(side, device)
    # Work of 0.1 s is queued ahead: beyond any slice, within the most launches that a GPU takes.
    ahead = max(2, min(900, round(0.1 / kernel_s)))
    if device != "cuda":
        served.step = call
        return {}
    import torch

    ends: deque[Any] = deque()

    def queued() -> None:
        call()
        end: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
        end.record()
        ends.append(end)
        if len(ends) > ahead:
            ends.popleft().synchronize()

    served.step = queued
    return {}


_TIMING = Timing(settle_s=0.0, window_s=0.4, windows=3, lead_s=0.4)

Timed = tuple[Schedule, Sequence[Sequence[float]]]
"""A schedule, and when the kernels of tenants ended in it, shape (tenants, kernels)."""


def switching(session: MpsSession) -> tuple[tuple[Switching, ...], Clocks, dict[str, str | None]]:
    """Measure the cost of turns for each length of kernel; return clocks and versions, too."""
    session.switch_to(Naive())
    meter, costs = Meter(session.device), []
    clocks_mhz: Clocks = (None, None)
    with session.servers(VERBS_FROM, 2) as tenants:
        # Far below a slice of some milliseconds, and about as long as one.
        for kernel_s in (0.1e-3, 2e-3):
            for tenant in tenants:  # one after another, since each times its kernel
                device = tenant.setup.device
                living(tenant.ask("load_kernel", device=device, kernel_s=kernel_s), _REMEDY)
            alone = [_timed_kernels([tenant], meter)[0] for tenant in tenants]
            together, clocks_mhz = _timed_kernels(tenants, meter)
            costs.append(switching_of(alone, together))
        versions = tenants[0].versions
    return tuple(costs), clocks_mhz, versions


def _timed_kernels(tenants: Sequence[Tenant], meter: Meter) -> tuple[Timed, Clocks]:
    plan = schedule(time() + 0.05, _TIMING, 0.0)
    send_all(tenants, "run", start_at=plan.start_at, stop_at=plan.stop_at)
    sleep_until((plan.begin_at + plan.end_at) / 2)
    clocks_mhz = meter.clocks_mhz()
    answers = [living(answer, _REMEDY) for answer in receive_all(tenants, GRACE_S)]
    return (plan, [each["completed_at"] for each in answers]), clocks_mhz


def switching_of(alone: Sequence[Timed], together: Timed) -> Switching:
    """Compute the cost of turns from two tenants' times, alone and together, in one order."""
    alone_s = [median_step_s(windows_of(plan, ends)) for plan, (ends,) in alone]
    plan, ends_of_each = together
    both = list(zip(ends_of_each, alone_s, strict=True))
    overhead = 1 - sum(lone_s / median_step_s(windows_of(plan, ends)) for ends, lone_s in both)
    turns = [_turns(plan, ends, lone_s) for ends, lone_s in both]
    regular = [each for each in turns if each is not None]
    return Switching(
        kernel_s=mean(alone_s),
        overhead=overhead,
        slice_s=mean(slice_s for slice_s, _ in regular) if regular else None,
        switch_s=overhead * mean(cycle_s for _, cycle_s in regular) / 2 if regular else None,
    )


def _turns(
    plan: Schedule, completed_at: Sequence[float], alone_s: float
) -> tuple[float, float] | None:
    """Median slice and median cycle of one tenant, seconds; None if there is no pattern."""
    ends = np.array([each for each in completed_at if plan.begin_at <= each <= plan.end_at])
    pauses = np.diff(ends)
    gaps = np.flatnonzero(pauses > 2 * alone_s)  # turns of the other's
    if len(gaps) < 20:  # fewer show no pattern
        return None
    cycle_s = float(np.median(np.diff(ends[gaps + 1])))
    away_s = float(np.median(pauses[gaps])) - alone_s
    slice_s = cycle_s - away_s
    # With fewer than 4 kernels in a slice, kernels and not the driver end it.
    return (slice_s, cycle_s) if slice_s >= 4 * alone_s else None


def _timed_s(call: Callable[[], object], count: int, device: str) -> float:
    """Seconds of `count` calls, by a GPU's own clock if it has one."""
    import torch

    if device != "cuda":
        began_s = perf_counter()
        for _ in range(count):
            call()
        return perf_counter() - began_s
    cuda: Any = torch.cuda
    began, ended = (cuda.Event(enable_timing=True) for _ in range(2))
    began.record()
    for _ in range(count):
        call()
    ended.record()
    ended.synchronize()
    return float(began.elapsed_time(ended) / 1e3)


def _product(side: int, device: str) -> Callable[[], Any]:
    """Return a call that enqueues one product of square matrices in FP32."""
    import torch

    left, right = (torch.randn(side, side, device=device) for _ in range(2))
    return lambda: torch.nn.functional.linear(left, right)


CALIBRATION_VERBS = {"load_kernel": load_kernel}
"""The requests of a program that calibrates."""

VERBS_FROM = "advisor.measure.calibrate:CALIBRATION_VERBS"


def contexts(session: MpsSession) -> Contexts:
    """Measure the sizes of contexts on the claimed GPU of `session`, on which no tenant lives."""
    session.switch_to(Naive())
    driver_mib = live_gpu(session.device.uuid or "").memory_used_mib
    plain_mib, _, _ = _context_mib(session, Naive())
    sizes = Contexts(
        driver_mib=driver_mib,
        plain_mib=plain_mib,
        mps_mib=None,
        sms=None,
        limited=(),
        mps_server_mib=None,
    )
    try:
        session.switch_to(Mps())
        mps_mib, sms, server_mib = _context_mib(session, Mps())
        limited = [(limit, *_context_mib(session, Mps((limit,)))) for limit in (50.0, 10.0)]
    except AdvisorError as error:
        say(f"  no contexts under MPS: {error}")
        return sizes
    return replace(
        sizes,
        mps_mib=mps_mib,
        sms=sms,
        mps_server_mib=None if mps_mib is None else server_mib,
        limited=tuple(
            LimitedContext(limit, its_sms, mib)
            for limit, mib, its_sms, _ in limited
            if mib is not None and its_sms is not None
        ),
    )


def _context_mib(
    session: MpsSession, sharing: Concurrent
) -> tuple[float | None, int | None, float]:
    """Size of one tenant's context, its SMs, and the size of all other processes."""
    # Small, and loads the matrix library as all training does.
    setups = session.setups(sharing, [workload("mlp-toy-bs128")])
    with tenants_on(setups, session.folder) as (tenant,):
        answer = living(tenant.ask("load"), _REMEDY)
        session.proved_clients(sharing, [tenant.pid])
        held_mib = Meter(session.device).memory_mib()
    # In a container the driver may list it under another pid; but the server holds less.
    own_mib = held_mib.get(tenant.pid, max(held_mib.values(), default=None))
    memory = memory_record(answer["memory"], own_mib)
    others_mib = sum(held_mib.values()) - (own_mib or 0.0)
    return (None if memory is None else memory.context_mib), answer["sms"], others_mib


@dataclass(frozen=True, slots=True, kw_only=True)
class _CalibrationOptions:
    words: tuple[str, ...]
    device: str
    out: Path | None
    gpu: str | None
    cores: str | None


def run_calibrate(document: str) -> int:
    """Calibrate by the JSON `document` of options, under a supervisor; return the exit code."""
    words = parse_record(_CalibrationOptions, document, "the command")
    device = find_device(words.device)
    refuse_other(device, words.gpu)
    cores = allowed_cores(words.cores)
    if device.kind == "cpu":
        raise InvalidInput("a calibration needs a GPU. Choose another --device than cpu")
    require_extra("`advisor calibrate`", "profile", "torch")
    if len(cores) < 2:
        raise InvalidInput("two processes take turns. Allow 2 --cores")
    path = words.out or user_folder("calibrations") / f"{device.key}.json"
    writable(path)
    with bench_on(device, cores, command_line("calibrate", words.words)) as bench:
        calibration = _calibrate(bench)
    write_whole(path, record_text(calibration))
    say(f"  {path}")
    return 0


def _calibrate(bench: Bench) -> Calibration:
    session = bench.session
    readings_w = power_readings_w(session.device, 16, 0.25)  # power falls slowly after earlier work
    sizes = contexts(session)
    held_mib = (sizes.driver_mib, sizes.plain_mib, sizes.mps_mib, sizes.per_sm_mib)
    say(
        "  MiB of the driver {}, a context {}, an MPS client's {}, of it each SM {}, the MPS "
        "server {}".format(*map(_shown, (*held_mib, sizes.mps_server_mib)))
    )
    turns, clocks_mhz, versions = switching(session)
    for cost in turns:
        slice_ms, switch_ms = (each and 1e3 * each for each in (cost.slice_s, cost.switch_s))
        say(
            f"  turns with kernels of {1e3 * cost.kernel_s:.2f} ms: "
            f"{in_percent(cost.overhead, 1)} lost; ms a slice {_shown(slice_ms)}, a change "
            f"{_shown(switch_ms)}"
        )
    return Calibration(
        gpu=session.device.key,
        contexts=sizes,
        switching=turns,
        idle_power_w=min(readings_w, default=None),
        provenance=bench.origin.provenance(versions, clocks_mhz),
    )


def _shown(figure: float | None) -> str:
    return "unknown" if figure is None else f"{figure:.4g}"
