"""``advisor calibrate``: measures a machine in about a minute and writes its calibration file."""

import argparse
from collections.abc import Callable, Sequence
from math import inf
from statistics import mean, median
from time import monotonic

from advisor.errors import InvalidInput
from advisor.hardware.catalogue import catalogue
from advisor.measure.context_sizes import contexts
from advisor.measure.gpu_side_sweep import lines_of, operators, sweep, sweep_verbs
from advisor.measure.process.claimed_device import (
    Device,
    Meter,
    claimed,
    device_at_hand,
    power_readings_w,
    refuse_other,
)
from advisor.measure.process.cores import allowed_cores, leave_to_tenants
from advisor.measure.process.mps_session import MpsSession, mps_session_on
from advisor.measure.process.provenance import Origin, command_line
from advisor.measure.process.scratch_folders import scratch_folder
from advisor.measure.process.supervisor import say
from advisor.measure.process.tenant_handle import TenantHandle
from advisor.measure.process.tenants import tenants_on, warm_up
from advisor.measure.process.worker import TenantSetup
from advisor.measure.switching import Clocks, all_answers, switching
from advisor.sharing import Naive
from advisor.workload.files import user_folder
from advisor.workload.gpu_side import GpuSide
from advisor.workload.machine_calibration import Calibration, Contexts, HostCheck, Switching
from advisor.workload.writing import calibration_text, new_path, writable, write_whole

# Reads of the power meter, over some seconds: power falls slowly after earlier work.
_POWER_READS, _POWER_PAUSE_S = 16, 0.25


def run(argv: Sequence[str]) -> int:
    """Calibrate as the command line `argv` asks; the exit code. Runs under a supervisor.

    Raises:
        InvalidInput: The words are invalid, or name another GPU than the device.
        GpuUnavailable: There is no such GPU, or another process uses it.
        AdvisorError: A process that was started died.
    """
    asked = _parser().parse_args(argv)
    device = device_at_hand(asked.device)
    refuse_other(device, asked.gpu)
    cores = allowed_cores(asked.cores)
    if device.kind == "cuda" and len(cores) < 2:
        raise InvalidInput("two processes take turns, each on its own core: allow 2 --cores")
    path = asked.out or user_folder("calibrations") / f"{device.key}.json"
    writable(path)
    if asked.gpu_side and device.kind == "cpu":
        raise InvalidInput("--gpu-side times operators on a GPU: choose another --device than cpu")
    command = command_line("advisor.calibration", argv)
    calibration = calibrated(device, cores, command, gpu_side=asked.gpu_side)
    write_whole(path, calibration_text(calibration))
    say(f"  {path}")
    return 0


def calibrated(
    device: Device, cores: Sequence[int], command: str, *, gpu_side: bool = False
) -> Calibration:
    """Measure `device` and the host cores `cores`; with `gpu_side` the GPU's rates too.

    Raises:
        GpuUnavailable: Another process uses it.
        AdvisorError: A process that was started died.
    """
    ours = allowed_cores()
    taken = cores[: max(CORES_AT_ONCE)]
    with claimed(device, command), scratch_folder() as folder:
        readings_w = power_readings_w(device, _POWER_READS, _POWER_PAUSE_S)
        leave_to_tenants([tuple(taken)], ours)
        warm_up(folder)
        with mps_session_on(device, folder) as session:
            checks, versions = _host(session, taken)
            sizes, turns, clocks_mhz = _gpu(session, taken)
            side = _gpu_side(session, taken[0]) if gpu_side else None
    origin = Origin(device, command, len(ours))
    return Calibration(
        gpu=device.key,
        host=checks,
        contexts=sizes,
        switching=turns,
        idle_power_w=min(readings_w, default=None),
        provenance=origin.provenance(versions, clocks_mhz),
        gpu_side=side,
    )


def _host(
    session: MpsSession, cores: Sequence[int]
) -> tuple[tuple[HostCheck, ...], dict[str, str | None]]:
    session.switch_to(Naive())
    setups = [TenantSetup("cpu", (core,), {}) for core in cores]
    with tenants_on(setups, session.folder) as tenants:
        checks = host_checks(tenants)
        versions = tenants[0].versions
    for each in checks:
        say(f"  host check, {each.cores} at once: {each.check_s * 1e3:.3f} ms")
    return checks, versions


def _gpu(
    session: MpsSession, cores: Sequence[int]
) -> tuple[Contexts | None, tuple[Switching, ...], Clocks]:
    if session.device.kind == "cpu":
        return None, (), (None, None)
    sizes = contexts(session, cores[0])
    say(f"  MiB held by {_listed(sizes)}")
    turns, clocks_mhz = switching(session, cores[:2])
    for each in turns:
        say(f"  taking turns, kernels of {each.kernel_s * 1e3:.2f} ms: {_switching_text(each)}")
    return sizes, turns, clocks_mhz


def _gpu_side(session: MpsSession, core: int) -> GpuSide:
    session.switch_to(Naive())
    setups = session.setups(Naive(), [(core,)])
    with tenants_on(setups, session.folder, sweep_verbs) as (tenant,):
        side = sweep(tenant, Meter(session.device), operators())
    known = catalogue().get(session.device.key)
    for line in lines_of(side, None if known is None else known.rates):
        say(f"  {line}")
    return side


def _listed(sizes: Contexts) -> str:
    held = {
        "the driver": sizes.driver_mib,
        "a context": sizes.plain_mib,
        "an MPS client's": sizes.mps_mib,
        "each of its SMs": sizes.per_sm_mib,
        "the MPS server": sizes.mps_server_mib,
    }
    return ", ".join(
        f"{what}: {'unknown' if mib is None else f'{mib:.1f}'}" for what, mib in held.items()
    )


def _switching_text(turns: Switching) -> str:
    lost = f"{100 * turns.overhead:.1f} % lost"
    if turns.slice_s is None or turns.switch_s is None:
        return lost
    return f"{lost}, slices of {turns.slice_s * 1e3:.2f} ms, {turns.switch_s * 1e3:.2f} ms a change"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="advisor calibrate",
        description="Measures in about a minute what depends on this machine and not on a "
        "workload: host cores, sizes of CUDA contexts, the cost of taking turns, idle power. "
        "Advice for this GPU then accounts for this machine. Also starts as "
        "`python -m advisor.calibration`, which "
        "needs torch, timm and nvidia-ml-py only.",
        epilog="Exit codes: 0 measured, 1 failed, 2 wrong use, 4 no GPU to use.",
    )
    add = parser.add_argument
    add("--device", default="0", help="GPU index or UUID, or cpu for the host alone [0]")
    add("--out", type=new_path, metavar="FILE", help="[your own, read by advisor]")
    add("--gpu-side", action="store_true", help="time operators too: the GPU's own rates [1 min]")
    add("--gpu", metavar="KEY", help="refuse any other GPU model than this, e.g. h200-141gb")
    add("--cores", help="host cores for the processes, e.g. 0-7 [all]")
    return parser


# As many cores at once as jobs that share a GPU have.
CORES_AT_ONCE = (1, 2, 4, 8)

# Spread over some seconds, since a virtual core can be slow for one.
_ROUNDS = 12


def host_checks(
    tenants: Sequence[TenantHandle],
    longest_s: float = inf,
    clock: Callable[[], float] = monotonic,
) -> tuple[HostCheck, ...]:
    """The host check on one core, then on 2, 4 and 8 at once as far as `tenants` have cores.

    Every round measures each count, on other cores each time: the figure is the median over
    rounds of the mean over the cores at work.

    Args:
        tenants: Each on a core of its own.
        longest_s: After the first round, none begins that would end later than this.
        clock: Seconds.
    """
    counts = [count for count in CORES_AT_ONCE if count <= len(tenants)]
    began_s = clock()
    all_answers(tenants, "check_host")  # the first check is slower
    seen: dict[int, list[float]] = {count: [] for count in counts}
    for turn in range(_ROUNDS):
        passed_s = clock() - began_s
        if turn and passed_s * (turn + 1) / turn > longest_s:
            break
        for count in counts:
            chosen = [tenants[(turn * count + i) % len(tenants)] for i in range(count)]
            answer = all_answers(chosen, "check_host")
            seen[count].append(mean(each["check_s"] for each in answer))
    return tuple(HostCheck(count, median(checks)) for count, checks in seen.items())
