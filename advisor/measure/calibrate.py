"""``advisor calibrate``: measures a machine in about a minute and writes its calibration file."""

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, replace
from math import inf
from pathlib import Path
from statistics import mean, median
from time import monotonic

from advisor.errors import AdvisorError, InvalidInput
from advisor.hardware.gpus import catalogue
from advisor.hardware.host_cores import allowed_cores, leave_to_tenants
from advisor.measure.device import (
    Device,
    Meter,
    Origin,
    claimed,
    command_line,
    find_device,
    host_cpu,
    memory_record,
    power_readings_w,
    refuse_other,
)
from advisor.measure.gpu_side import (
    Clocks,
    all_answers,
    lines_of,
    operators,
    sweep,
    sweep_verbs,
    switching,
)
from advisor.measure.mps import MpsSession, mps_session_on
from advisor.measure.process import INTERRUPTED, say, scratch_folder, supervise
from advisor.measure.tenants import tenants_on, warm_up
from advisor.measure.worker import TenantHandle, TenantSetup, installed_version
from advisor.sharing import Concurrent, Mps, Naive
from advisor.workload.calibration import (
    Calibration,
    Contexts,
    GpuSide,
    HostCheck,
    LimitedContext,
    Switching,
)
from advisor.workload.catalogue import workload
from advisor.workload.reading import user_folder
from advisor.workload.writing import calibration_text, new_path, writable, write_whole

# Small, and loads the matrix library as all training does.
_WORKLOAD = "mlp-toy-bs128"

_LIMITS_PCT = (50.0, 10.0)


@dataclass(frozen=True, slots=True)
class _Seen:
    """One tenant's context, the SMs it may use, and what other processes hold; None: unknown."""

    context_mib: float | None
    sms: int | None
    others_mib: float


def contexts(session: MpsSession, core: int) -> Contexts:
    """Sizes of contexts on the claimed GPU of `session`, on which no tenant lives.

    Raises:
        AdvisorError: A process without MPS cannot train.
    """
    from advisor.hardware.live_gpu import live_gpu

    session.switch_to(Naive())
    driver_mib = live_gpu(session.device.uuid or "").memory_used_mib
    plain = Contexts(
        driver_mib=driver_mib, plain_mib=_seen(session, core, Naive()).context_mib, mps_mib=None,
        sms=None, limited=(), mps_server_mib=None,
    )  # fmt: skip
    try:
        return _with_mps(plain, session, core)
    except AdvisorError as error:
        say(f"  no contexts under MPS: {error}")
        return plain


def _with_mps(plain: Contexts, session: MpsSession, core: int) -> Contexts:
    session.switch_to(Mps())
    client = _seen(session, core, Mps())
    limited = {limit: _seen(session, core, Mps((limit,))) for limit in _LIMITS_PCT}
    return replace(
        plain,
        mps_mib=client.context_mib,
        sms=client.sms,
        limited=tuple(
            LimitedContext(limit, each.sms, each.context_mib)
            for limit, each in limited.items()
            if each.sms is not None and each.context_mib is not None
        ),
        mps_server_mib=None if client.context_mib is None else client.others_mib,
    )


def _seen(session: MpsSession, core: int, sharing: Concurrent) -> _Seen:
    with tenants_on(session.setups(sharing, [(core,)]), session.folder) as (tenant,):
        (answer,) = all_answers([tenant], "load", workload=workload(_WORKLOAD))
        session.proved_clients(sharing, [tenant.pid])
        seen = Meter(session.device).memory_mib()
    # In a container the driver may list it under another pid; but the server holds less.
    own_mib = seen.get(tenant.pid, max(seen.values(), default=None))
    others_mib = sum(seen.values()) - (own_mib or 0.0)
    memory = memory_record(answer["memory"], own_mib)
    return _Seen(None if memory is None else memory.context_mib, answer["sms"], others_mib)


# Reads of the power meter, over some seconds: power falls slowly after earlier work.
_POWER_READS, _POWER_PAUSE_S = 16, 0.25


def run_calibrate(argv: Sequence[str]) -> int:
    """Calibrate as the command line `argv` asks; the exit code. Runs under a supervisor.

    Raises:
        InvalidInput: The words are invalid, or name another GPU than the device.
        GpuUnavailable: There is no such GPU, or another process uses it.
        AdvisorError: A process that was started died.
    """
    asked = _parser().parse_args(argv)
    device = find_device(asked.device)
    refuse_other(device, asked.gpu)
    cores = allowed_cores(asked.cores)
    if device.kind == "cuda" and len(cores) < 2:
        raise InvalidInput("two processes take turns, each on its own core: allow 2 --cores")
    path = asked.out or user_folder("calibrations") / f"{device.key}.json"
    writable(path)
    if asked.gpu_side and device.kind == "cpu":
        raise InvalidInput("--gpu-side times operators on a GPU: choose another --device than cpu")
    command = command_line("calibrate", argv)
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
        "`python -m advisor.measure calibrate`, which "
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


# Of checks in all: advice is waited for. Starting the processes takes some seconds more.
_LONGEST_S = 1.0


def host_now(gpu: str) -> Calibration:
    """The host as it is now: a calibration for `gpu` that has host checks and nothing else.

    Raises:
        AdvisorError: It cannot be checked.
        KeyboardInterrupt: It was interrupted; nothing that it started is left.
    """
    if (torch := installed_version("torch")) is None:
        raise AdvisorError("torch is not installed, and the check is half dispatch into it")
    with scratch_folder() as folder:
        file = folder / "checks.json"
        code = supervise("advisor.measure.calibrate:run_host_check", [str(file)])
        if code == INTERRUPTED:
            raise KeyboardInterrupt
        if code:
            raise AdvisorError("the line before says why")
        checks = tuple(HostCheck(*each) for each in json.loads(file.read_text()))
    cpu = Device("cpu", None, "cpu", host_cpu(), None)
    origin = Origin(cpu, "a check before advice", len(allowed_cores()))
    return Calibration(
        gpu=gpu, host=checks, contexts=None, switching=(), idle_power_w=None,
        provenance=origin.provenance({"torch": torch}, (None, None)), in_passing=True,
    )  # fmt: skip


def run_host_check(argv: Sequence[str]) -> int:
    """Write the checks of this host to the file `argv` names; the exit code.

    Runs under a supervisor.
    """
    (file,) = argv
    ours = allowed_cores()
    taken = ours[: max(CORES_AT_ONCE)]
    try:
        with scratch_folder() as folder:
            leave_to_tenants([taken], ours)
            warm_up(folder, torch_only=True)
            with tenants_on([TenantSetup("cpu", (core,), {}) for core in taken], folder) as tenants:
                checks = host_checks(tenants, _LONGEST_S)
    except AdvisorError as error:
        say(f"the host cannot be checked: {error}")
        return error.exit_code
    Path(file).write_text(json.dumps([astuple(each) for each in checks]))
    return 0
