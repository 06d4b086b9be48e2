"""Profiles one workload: alone on a device, again if the moment was slow, then under MPS."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import log
from time import sleep
from typing import Any

from advisor.errors import AdvisorError, counted
from advisor.hardware.gpus import gpu
from advisor.hardware.machine import cores_of_each, leave_to_tenants
from advisor.measure.device import Meter, recipe_of_script
from advisor.measure.mps import Bench
from advisor.measure.pace import (
    SoloPace,
    Stopwatch,
    Timing,
    mean_step_s,
    measured_pace,
    repeated_pace,
    settled_step_s,
    step_parts,
)
from advisor.measure.process import say
from advisor.measure.tenants import ask_all, tenants_on
from advisor.measure.trace import profiling_verbs
from advisor.measure.worker import LOAD_S, living
from advisor.sharing import Mps, Naive
from advisor.workload.profile import PROBE_LIMITS_PCT, LimitedRun, MpsProbe, Profile, pace_spread
from advisor.workload.spec import Workload

# A loader starts with prefetched batches, which must be used up before a window begins.
_TIMING = Timing(settle_s=0.0, window_s=0.5, windows=5, lead_s=0.4)
_TIMING_WITH_LOADER = replace(_TIMING, lead_s=1.5)

# Before a workload is measured again: a virtual core can be slow for seconds.
_PAUSE_S = 5.0

# Kernels take longer in the profiler, short ones most; a trace beyond this ratio gets a warning.
_TRACE_MAY_EXCEED = 1.05


def profile_alone(
    workload: Workload, bench: Bench, idle_power_w: float | None, *, probe: bool,
    patience_s: float = LOAD_S, host_check_s: float | None = None,
) -> Profile:  # fmt: skip
    """Measure `workload` in new processes: alone, again if the moment was slow, then under MPS.

    Args:
        workload: May take no step for `patience_s`.
        bench: The device and its cores.
        idle_power_w: Power of the device before anything ran; None if not metered.
        probe: Whether to measure under MPS too.
        patience_s: Seconds.
        host_check_s: Seconds of the host check by a process that floats over idle cores; None: not
            checked.

    Raises:
        InvalidInput: It cannot be built, or needs more cores than are allowed.
        AdvisorError: It ran out of memory or died.
    """
    watch = Stopwatch()
    bench.session.switch_to(Naive())
    leave_to_tenants([_cores_for(workload, bench)], bench.host_cores)
    profile, meter_s = _at_a_good_moment(workload, bench, patience_s, watch, host_check_s)
    step_s = mean_step_s(profile.windows)
    host, on_gpu = (
        "" if each is None else f", {name} {each * 1e3:.2f} ms"
        for name, each in (("host", profile.host_s), ("GPU", profile.gpu_s))
    )
    say(f"  {step_s * 1e3:.2f} ms a step{host}{on_gpu}")
    if profile.trace is not None and profile.trace.waits_us:
        say(f"  its host waits for the GPU {counted(len(profile.trace.waits_us), 'time')} a step")
    if profile.gpu_s is not None and profile.gpu_s > _TRACE_MAY_EXCEED * step_s:
        say("  its kernels add up to more than the step measured without a profiler")
    if probe and bench.session.device.kind == "cuda":
        profile = replace(profile, mps=mps_probe(profile, bench, watch))
    return replace(profile, idle_power_w=idle_power_w, took=watch.took(meter_s))


# The check of a host-bound profile over the host's own. Of 28 steady ones of an H200, 24 took at
# most 1.14 times the median check of all, and the others, mcdnn among them, 1.39 to 2.44 times.
_SLOW = 1.3


def slow_moment(profile: Profile, host_check_s: float | None) -> str | None:
    """Return how the moment of `profile` was slow, in words; None if it was not.

    Its windows differ, or the check of its core took longer than the host's own. Where the GPU sets
    the pace, only the windows count.
    """
    if (varied := profile.unsteady) is not None:
        return f"its steps varied by {varied:.0%}"
    host_bound = profile.host_s is not None and profile.host_s >= (profile.gpu_s or 0.0)
    if not (host_bound and profile.host_check_s and host_check_s):
        return None
    ratio = profile.host_check_s / host_check_s
    return f"its core took {ratio:.2f} times as long as an idle one" if ratio > _SLOW else None


def _at_a_good_moment(
    workload: Workload, bench: Bench, patience_s: float, watch: Stopwatch,
    host_check_s: float | None,
) -> tuple[Profile, float]:  # fmt: skip
    """Measure it; if the moment was slow, again later on other cores, and keep the better."""
    first = _measured_alone(workload, bench, patience_s, watch)
    profile, _ = first
    if (slow := slow_moment(profile, host_check_s)) is None:
        return first
    say(f"  {slow}; measuring it again at another moment")
    sleep(_PAUSE_S)
    others = tuple(core for core in bench.cores if core not in profile.cores)
    moved = replace(bench, cores=others + profile.cores)
    leave_to_tenants([_cores_for(profile.workload, moved)], bench.host_cores)
    try:
        second = _measured_alone(profile.workload, moved, patience_s, watch)
    except AdvisorError as error:
        say(f"  {error}; the first measurement is kept")
        bench.session.close()  # a client that died can leave an MPS server that accepts none
        bench.session.switch_to(Naive())
        second = first
    kept = min(first, second, key=lambda each: _disturbance(each[0]))
    profile, _ = kept
    leave_to_tenants([profile.cores], bench.host_cores)
    if (slow := slow_moment(profile, host_check_s)) is not None:
        say(f"  {slow}, still; measure it again later with `advisor profile`")
    return kept


def _disturbance(profile: Profile) -> float:
    """Return the log of how far its moment slowed and unsettled `profile`, up to a constant."""
    return pace_spread(profile.windows) + log(profile.host_check_s or 1.0)


def _measured_alone(
    workload: Workload, bench: Bench, patience_s: float, watch: Stopwatch
) -> tuple[Profile, float]:
    """Its profile without an MPS probe, and the seconds that the device's driver took to answer."""
    session = bench.session
    cores = _starting_cores(workload, _cores_for(workload, bench), bench)
    setups = session.setups(Naive(), [cores], [workload])
    with tenants_on(setups, session.folder, profiling_verbs) as (tenant,):
        loaded = living(tenant.ask("load", timeout_s=patience_s, workload=workload))
        workload = _completed(workload, loaded.get("found"))
        if workload.script is not None:
            say(f"  {_training_text(workload)}")
        cores = _cores_for(workload, bench)
        tenant.pin(cores)
        watch.lap("start_s")
        step_s = settled_step_s(tenant, loaded["warm_step_s"], patience_s)
        watch.lap("settle_s")
        timing = _TIMING_WITH_LOADER if workload.loader_workers else _TIMING
        pace = repeated_pace(tenant, Meter(session.device), timing, step_s, patience_s)
        watch.lap("windows_s")
        parts = step_parts(tenant, pace, session.device, watch)
        versions = tenant.versions
    watch.lap("start_s")
    power_w = pace.activity.power_w
    provenance = bench.origin.provenance(versions, pace.clocks_mhz)
    if workload.script is not None:
        provenance = replace(provenance, recipes=recipe_of_script(workload.script))
    profile = Profile(
        workload=workload,
        gpu=session.device.key,
        windows=pace.windows,
        host_s=parts.host_s,
        gpu_s=parts.gpu_s,
        host_cpu_share=pace.host_cpu_share,
        memory=pace.memory,
        counters=pace.activity.counters,
        power_w=power_w,
        energy_j=None if power_w is None else power_w * mean_step_s(pace.windows),
        idle_power_w=None,
        cores=cores,
        mps=None,
        trace=parts.trace,
        provenance=provenance,
        host_check_s=pace.host_check_s,
        host=pace.host and replace(pace.host, main_s=parts.main_s, loader_s=parts.loader_s),
    )
    return profile, pace.meter_s


def _completed(workload: Workload, seen: Mapping[str, Any] | None) -> Workload:
    """`workload` with what the hook has `seen` of its script; the user's options go first.

    Without an option, its batch is 1 and it has no loader workers.
    """
    if seen is None:
        return workload
    batch = workload.batch if workload.batch > 1 else seen["batch"] or 1
    steps = workload.steps_per_epoch or seen["steps_per_epoch"]
    return replace(
        workload,
        batch=batch,
        examples_per_epoch=None if steps is None else steps * batch,
        loader_workers=workload.loader_workers or seen["loader_workers"],
        precision=seen["precision"],
        execution=seen["execution"],
    )


def _training_text(workload: Workload) -> str:
    """A script's batch and epoch, with the options for those that it does not show."""
    examples = (
        f"{workload.batch:,} examples" if workload.batch > 1 else "no loader's batch: --batch N"
    )
    steps = workload.steps_per_epoch
    epoch = "of unknown length: --steps-per-epoch N" if steps is None else f"{steps:,} steps"
    return f"a step has {examples}; an epoch, {epoch}; loader workers: {workload.loader_workers}"


def _starting_cores(workload: Workload, cores: tuple[int, ...], bench: Bench) -> tuple[int, ...]:
    """All cores for a script: its loader workers show only when it trains."""
    return cores if workload.script is None else bench.cores


def _cores_for(workload: Workload, bench: Bench) -> tuple[int, ...]:
    """The cores to which its processes are pinned; InvalidInput if it needs more than allowed."""
    return cores_of_each([workload.cores], bench.cores, share=bench.share)[0]


_UNLIMITED_PCT = 100.0
_PROBE_TIMING = Timing(settle_s=0.0, window_s=0.35, windows=3, lead_s=0.25, longest_s=4.0)

# Slow steps take seconds each under a limit, so fewer of them warm up.
_SLOW_STEP_S, _WARM_STEPS, _WARM_STEPS_WHEN_SLOW = 0.2, 10, 2

# Processes that together hold more of the GPU's memory are started one after another: an allocator
# that runs short trains more slowly.
_MOST_HELD = 0.9


def mps_probe(profile: Profile, bench: Bench, watch: Stopwatch) -> MpsProbe | None:
    """Measure the workload of `profile` under MPS, alone on the GPU.

    Returns:
        None, after a message, if that fails.
    """
    session = bench.session
    try:
        session.switch_to(Mps())
        (unlimited, pace), *limited = _limited_runs(profile, bench, watch)
    except AdvisorError as error:
        # The daemon does not start, or a client failed: the profile without MPS is still valid.
        say(f"  no MPS probe: {error}")
        session.close()  # a client that died can leave an MPS server that accepts no clients
        return None
    return MpsProbe(unlimited, tuple(run for run, _ in limited), pace.memory)


def _limited_runs(
    profile: Profile, bench: Bench, watch: Stopwatch
) -> list[tuple[LimitedRun, SoloPace]]:
    """Runs without a limit, then under each of `PROBE_LIMITS_PCT`."""
    limits_pct = (_UNLIMITED_PCT, *PROBE_LIMITS_PCT)
    session, script, held_mib = bench.session, profile.workload.script, profile.memory.device_mib
    most_mib = _MOST_HELD * gpu(session.device.key).memory_mib
    holds_all = held_mib is not None and len(limits_pct) * held_mib <= most_mib
    # A script takes long to start, and can wait between its steps: all start at once if possible.
    if script is not None and script.by_steps and holds_all:
        try:
            return _in_turn(limits_pct, profile, bench, watch)
        except AdvisorError as error:  # two that want one port, say
            say(f"  {error}; under MPS, its processes are started one after another")
            session.close()
            session.switch_to(Mps())
    return [run for limit in limits_pct for run in _in_turn([limit], profile, bench, watch)]


def _in_turn(
    limits_pct: Sequence[float], profile: Profile, bench: Bench, watch: Stopwatch
) -> list[tuple[LimitedRun, SoloPace]]:
    """Runs under `limits_pct` of clients that start at once and then train one after another."""
    session, workload, runs = bench.session, profile.workload, []
    patience_s, meter = watch.patience_s(), Meter(session.device)
    modes = [Mps() if limit == _UNLIMITED_PCT else Mps((limit,)) for limit in limits_pct]
    where = [_starting_cores(workload, profile.cores, bench)], [workload]
    setups = [setup for mode in modes for setup in session.setups(mode, *where)]
    slow = mean_step_s(profile.windows) >= _SLOW_STEP_S
    loading = {"workload": workload, "warm_steps": _WARM_STEPS_WHEN_SLOW if slow else _WARM_STEPS}
    with tenants_on(setups, session.folder, profiling_verbs) as tenants:
        answers = ask_all(tenants, "load", [loading] * len(tenants), patience_s)
        loads = [living(answer) for answer in answers]
        session.proved_clients(Mps(), [tenant.pid for tenant in tenants])
        for limit_pct, tenant, loaded in zip(limits_pct, tenants, loads, strict=True):
            tenant.pin(profile.cores)
            pace = measured_pace(tenant, meter, _PROBE_TIMING, loaded["warm_step_s"], patience_s)
            run = LimitedRun(limit_pct, loaded["sms"], pace.windows)
            say(f"  MPS {limit_pct:g} %: {run.step_s * 1e3:.2f} ms a step on {run.sms} SMs")
            watch.lap("mps_s" if limit_pct == _UNLIMITED_PCT else "limits_s")
            runs.append((run, pace))
    return runs
