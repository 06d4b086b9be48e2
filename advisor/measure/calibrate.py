"""``advisor calibrate``: measures a machine in about a minute and writes its calibration file."""

import argparse
from collections.abc import Sequence
from dataclasses import replace

from advisor.errors import AdvisorError, InvalidInput
from advisor.hardware import DEFAULT_DEVICE
from advisor.hardware.live_gpu import live_gpu
from advisor.hardware.machine import allowed_cores
from advisor.measure.device import (
    Device,
    Meter,
    command_line,
    find_device,
    memory_record,
    power_readings_w,
    refuse_other,
)
from advisor.measure.gpu_side import (
    OPERATORS,
    PRECISIONS,
    REMEDY,
    VERBS_FROM,
    sweep,
    switching,
)
from advisor.measure.mps import MpsSession, bench_on
from advisor.measure.process import say
from advisor.measure.tenant import living
from advisor.measure.tenants import tenants_on
from advisor.sharing import Concurrent, Mps, Naive
from advisor.workload.calibration import Calibration, Contexts, GpuSide, LimitedContext
from advisor.workload.catalogue import workload
from advisor.workload.reading import user_folder
from advisor.workload.writing import calibration_text, new_path, writable, write_whole

# Small, and loads the matrix library as all training does.
_WORKLOAD = "mlp-toy-bs128"

_LIMITS_PCT = (50.0, 10.0)


def contexts(session: MpsSession) -> Contexts:
    """Measure the sizes of contexts on the claimed GPU of `session`, on which no tenant lives."""
    session.switch_to(Naive())
    driver_mib = live_gpu(session.device.uuid or "").memory_used_mib
    plain_mib, _, _ = _context_mib(session, Naive())
    sizes = Contexts(
        driver_mib=driver_mib, plain_mib=plain_mib, mps_mib=None, sms=None, limited=(),
        mps_server_mib=None,
    )  # fmt: skip
    try:
        session.switch_to(Mps())
        mps_mib, sms, server_mib = _context_mib(session, Mps())
        limited = [(limit, *_context_mib(session, Mps((limit,)))) for limit in _LIMITS_PCT]
    except AdvisorError as error:
        say(f"  no contexts under MPS: {error}")
        return sizes
    return replace(
        sizes, mps_mib=mps_mib, sms=sms, mps_server_mib=None if mps_mib is None else server_mib,
        limited=tuple(LimitedContext(limit, its_sms, mib) for limit, mib, its_sms, _ in limited
                      if mib is not None and its_sms is not None),
    )  # fmt: skip


def _context_mib(
    session: MpsSession, sharing: Concurrent
) -> tuple[float | None, int | None, float]:
    """Size of one tenant's context, its SMs, and the size of all other processes."""
    setups = session.setups(sharing, [workload(_WORKLOAD)])
    with tenants_on(setups, session.folder) as (tenant,):
        answer = living(tenant.ask("load"), REMEDY)
        session.proved_clients(sharing, [tenant.pid])
        held_mib = Meter(session.device).memory_mib()
    # In a container the driver may list it under another pid; but the server holds less.
    own_mib = held_mib.get(tenant.pid, max(held_mib.values(), default=None))
    memory = memory_record(answer["memory"], own_mib)
    others_mib = sum(held_mib.values()) - (own_mib or 0.0)
    return (None if memory is None else memory.context_mib), answer["sms"], others_mib


# Reads of the power meter, over some seconds: power falls slowly after earlier work.
_POWER_READS, _POWER_PAUSE_S = 16, 0.25


def run_calibrate(argv: Sequence[str]) -> int:
    """Calibrate by the words `argv` of a command line, under a supervisor; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="advisor calibrate",
        description="Measures in about a minute what depends on this machine and not on a "
        "workload: sizes of CUDA contexts, the cost of taking turns, idle power. Advice for this "
        "GPU then accounts for this machine.",
        epilog="Exit codes: 0 measured, 1 failed, 2 wrong use, 4 no GPU to use.",
    )
    add = parser.add_argument
    add("--device", default=DEFAULT_DEVICE, help="GPU index or UUID [%(default)s]")
    add("--out", type=new_path, metavar="FILE", help="[your own, read by advisor]")
    add("--gpu-side", action="store_true", help="time operators too: the GPU's own rates")
    add("--gpu", metavar="KEY", help="refuse any other GPU model than this, e.g. h200-141gb")
    add("--cores", help="host cores for the processes, e.g. 0-7 [all]")
    words = parser.parse_args(argv)
    device = find_device(words.device)
    refuse_other(device, words.gpu)
    cores = allowed_cores(words.cores)
    if device.kind == "cpu":
        raise InvalidInput("a calibration is of a GPU: choose another --device than cpu")
    if len(cores) < 2:
        raise InvalidInput("two processes take turns: allow 2 --cores")
    path = words.out or user_folder("calibrations") / f"{device.key}.json"
    writable(path)
    command = command_line("calibrate", argv)
    calibration = _calibration(device, cores, command, gpu_side=words.gpu_side)
    write_whole(path, calibration_text(calibration))
    say(f"  {path}")
    return 0


def _calibration(
    device: Device, cores: tuple[int, ...], command: str, *, gpu_side: bool
) -> Calibration:
    with bench_on(device, cores, command) as bench:
        session = bench.session
        readings_w = power_readings_w(device, _POWER_READS, _POWER_PAUSE_S)
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
                f"  turns with kernels of {1e3 * cost.kernel_s:.2f} ms: {cost.overhead:.1%} lost; "
                f"ms a slice {_shown(slice_ms)}, a change {_shown(switch_ms)}"
            )
        side = _gpu_side(session) if gpu_side else None
    return Calibration(
        gpu=device.key, contexts=sizes, switching=turns,
        idle_power_w=min(readings_w, default=None), gpu_side=side,
        provenance=bench.origin.provenance(versions, clocks_mhz),
    )  # fmt: skip


def _gpu_side(session: MpsSession) -> GpuSide:
    session.switch_to(Naive())
    with session.servers(VERBS_FROM) as (tenant,):
        side = sweep(tenant, Meter(session.device), OPERATORS)
    rates = (f"{each} {_shown(side.tflops(each))}" for each in PRECISIONS)
    moved = (side.bandwidth_gb_s, side.l2_bandwidth_gb_s, side.launch_us, side.empty_kernel_us)
    say(
        f"  attained: TFLOP/s {', '.join(rates)}; "
        "GB/s of memory {}, inside L2 {}; us of an empty kernel {} with its launch, {} queued; SM "
        "clock {} MHz".format(*map(_shown, moved), side.sm_clock_mhz)
    )
    return side


def _shown(figure: float | None) -> str:
    return "unknown" if figure is None else f"{figure:.4g}"
