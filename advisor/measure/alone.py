"""Profiles one workload: alone on a device, then under MPS; what contradicts is measured again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from advisor.errors import AdvisorError, counted
from advisor.hardware.gpus import gpu
from advisor.hardware.partition import sm_limits
from advisor.measure.bench import Bench, ask_all, tenants_on
from advisor.measure.device import Device, Meter, recipe_of_script
from advisor.measure.pace import (
    SoloPace,
    StepsTaken,
    Stopwatch,
    core_pace,
    mean_step_s,
    measured_pace,
    repeated_pace,
    settle,
)
from advisor.measure.planned_runs import Timing
from advisor.measure.process import say
from advisor.measure.tenant import LOAD_S, Ended, Tenant, living
from advisor.measure.trace import (
    RECORDED_STEPS,
    TracedStep,
    events_in,
    kernel_trace,
    phases_without_waits,
    recorded_step,
    traced_round,
)
from advisor.sharing import Mps, Naive
from advisor.workload.profile import (
    PROBE_LIMITS_PCT,
    KernelTrace,
    LimitedRun,
    MpsProbe,
    Profile,
    Window,
)
from advisor.workload.spec import Workload

# A loader starts with prefetched batches, which must be used up before a window begins.
_TIMING = Timing(settle_s=0.0, window_s=0.5, windows=5, lead_s=0.4)
_TIMING_WITH_LOADER = replace(_TIMING, lead_s=1.5)

# Alone, a step takes no longer than as the only client of MPS: more than this share is the host's.
_MPS_FASTER = 1.3


def profile_alone(
    workload: Workload,
    bench: Bench,
    idle_power_w: float | None,
    *,
    probe: bool,
    patience_s: float = LOAD_S,
) -> Profile:
    """Measure `workload` in new processes: alone, then under MPS if `probe`.

    It may take no step for `patience_s`. `idle_power_w` is of the device before anything ran.
    """
    watch = Stopwatch()
    profile, taken = _measured_alone(workload, bench, patience_s, watch)
    if probe and bench.session.device.kind == "cuda":
        profile = replace(profile, mps=mps_probe(profile, taken, bench, watch))
        under_mps = profile.mps
        if under_mps is not None and profile.step_s > _MPS_FASTER * under_mps.unlimited.step_s:
            say("  it was slower alone than under MPS; measuring it alone again")
            check_s = profile.host_check_s
            again, _ = _measured_alone(profile.workload, bench, patience_s, watch, check_s=check_s)
            profile = min(profile, replace(again, mps=profile.mps), key=lambda each: each.step_s)
    return replace(profile, idle_power_w=idle_power_w, took=watch.took())


def _measured_alone(
    workload: Workload,
    bench: Bench,
    patience_s: float,
    watch: Stopwatch,
    *,
    check_s: float | None = None,
) -> tuple[Profile, list[StepsTaken]]:
    """Return its profile without an MPS probe, and its steps until it was steady.

    Windows are at the pace of a core on which a check takes `check_s`; None: as in the mean.
    """
    session = bench.session
    session.switch_to(Naive())
    with tenants_on(session.setups(Naive(), [workload]), session.folder) as (tenant,):
        say("  starting it")
        loaded = living(tenant.ask("load", timeout_s=patience_s, partly=True))
        workload = _completed(workload, loaded.get("found"))
        _say_training(workload, loaded.get("found"), tenant)
        watch.lap("start_s")
        taken = settle(tenant, loaded, patience_s)
        watch.lap("settle_s")
        timing = _TIMING_WITH_LOADER if workload.loader_workers else _TIMING
        pace = repeated_pace(tenant, Meter(session.device), timing, taken, patience_s)
        host_memory_mib = None if pace.over else tenant.running.resident_mib()
        watch.meter_s += pace.meter_s
        watch.lap("windows_s")
        say(f"  {_pace_text(pace)}")
        parts = StepParts()
        if pace.over:
            tenant.let_end()
            steps = sum(window.steps for window in pace.windows)
            say(f"  it ended by itself: measured by {steps:.0f} steps, without a kernel trace")
        elif session.device.kind == "cuda":
            measure = _traced_parts if tenant.setup.script.by_steps else _recorded_parts
            parts = measure(tenant, pace, session.device, watch)
        versions = tenant.versions
    watch.lap("start_s")
    for name, part_s in (("host", parts.host_s), ("GPU", parts.gpu_s)):
        if part_s is not None:
            say(f"  {name} {part_s * 1e3:.2f} ms a step")
    if parts.trace is not None and parts.trace.waits_us:
        waits = len(parts.trace.waits_us) / parts.trace.steps
        say(f"  its host waits for the GPU {waits:.3g} times a step")
    if check_s is None and pace.checks_s:
        check_s = fmean(pace.checks_s)
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
        host_cpu_share=pace.cpu_share / len(bench.cores),
        memory=pace.memory,
        counters=pace.activity.counters,
        power_w=power_w,
        energy_j=None if power_w is None else power_w * mean_step_s(pace.windows),
        idle_power_w=None,
        cores=bench.cores,
        mps=None,
        trace=parts.trace,
        provenance=provenance,
        host_check_s=check_s,
        host=pace.host and replace(pace.host, main_s=parts.main_s, loader_s=parts.loader_s),
        epoch_end=pace.rounds.epoch_end,
        host_memory_mib=host_memory_mib,
    )
    return replace(profile, windows=at_check(profile, pace.windows)), taken


# For the host's path; and rounds that are traced, fewer of those that take long.
_ISSUE_S, _TRACED, _TRACED_IF_LONG, _LONG_S = 1.0, 3, 1, 0.5

# A trace of all kernels of longer steps would fill megabytes.
_LONGEST_S = 4.0

# Kernels take longer in the profiler, short ones most; beyond this ratio they are traced again.
_TRACE_MAY_EXCEED = 1.05

# A program whose steps are not found is recorded for so much longer than its steps.
_SPARE_S = 0.05


@dataclass(frozen=True, slots=True)
class StepParts:
    """Host path and GPU path of a step, and the kernel trace of a round; all None on a CPU."""

    host_s: float | None = None
    gpu_s: float | None = None
    trace: KernelTrace | None = None
    main_s: float | None = None
    loader_s: float | None = None


def _traced_parts(tenant: Tenant, pace: SoloPace, device: Device, watch: Stopwatch) -> StepParts:
    round_s, steps = sum(pace.rounds.steps_s), pace.rounds.steps
    if round_s > _LONGEST_S:
        say(f"  a round of {steps} steps takes {round_s:.1f} s: one step of it is traced")
        round_s, steps = round_s / steps, 1
    issued = tenant.ask("issue", seconds=_ISSUE_S, round_steps=steps)
    watch.lap("host_path_s")
    if isinstance(issued, Ended) and tenant.running.exit_code == 0:
        say("  it ended by itself before its host path and its kernels were measured")
        return StepParts()
    issued = living(issued)
    phases_s, gpu_s, trace = tuple(issued["phases_s"]), None, None
    count = _TRACED if round_s < _LONG_S else _TRACED_IF_LONG
    try:
        traced = _traced(tenant, device, steps, count)
        if traced.busy_s > _TRACE_MAY_EXCEED * steps * mean_step_s(pace.windows):
            say("  its kernels add up to more than the step without a profiler; tracing it again")
            traced = min(traced, _traced(tenant, device, steps, count), key=lambda it: it.busy_s)
        phases_s = phases_without_waits(issued["phases_s"], traced.phases)
        gpu_s, trace = traced.busy_s / steps, kernel_trace(traced, phases_s, steps)
    except AdvisorError as error:
        say(f"  no kernel trace: {error}")
    finally:
        watch.lap("trace_s")
    main_s, loader_s = sum(phases_s) / steps, issued["loader_s"]
    # The host path is at least that of the loader it waits for.
    return StepParts(max(main_s, loader_s or 0.0), gpu_s, trace, main_s, loader_s)


def _traced(tenant: Tenant, device: Device, steps: int, count: int) -> TracedStep:
    path = tenant.folder / "trace.json"
    answer = living(tenant.ask("trace", path=str(path), round_steps=steps, rounds=count))
    with events_in(path) as events:
        return traced_round(
            events,
            answer["phases"],
            answer["passes"],
            sm_limits(gpu(device.key).compute_capability),
        )


def _recorded_parts(tenant: Tenant, pace: SoloPace, device: Device, watch: Stopwatch) -> StepParts:
    """Return the parts of a program whose steps are not found: by a window as long as one."""
    step_s = mean_step_s(pace.windows)
    try:
        step = _recorded(tenant, device, step_s)
    except AdvisorError as error:
        say(f"  no kernel trace: {error}")
        counters = pace.activity.counters  # of the whole GPU, as its driver counted
        return StepParts(gpu_s=None if counters is None else counters.gract * step_s)
    finally:
        watch.lap("trace_s")
    phases_s = phases_without_waits((step_s,), step.phases)
    return StepParts(sum(phases_s), step.busy_s, kernel_trace(step, phases_s, 1))


def _recorded(tenant: Tenant, device: Device, step_s: float) -> TracedStep:
    if step_s > _LONGEST_S / 2:
        raise AdvisorError(f"a step of {step_s:.1f} s is too long to record")
    path, seconds = tenant.folder / "trace.json", RECORDED_STEPS * step_s + _SPARE_S
    if not living(tenant.ask("record", path=str(path), seconds=seconds)):
        raise AdvisorError("no process of it uses the GPU by torch")
    with events_in(path) as events:
        return recorded_step(events, step_s, sm_limits(gpu(device.key).compute_capability))


# A step that takes so many times as long under a limit as alone is paced by the limit.
_LIMITED = 1.3


def at_check(
    profile: Profile, windows: Sequence[Window], *, limited: bool = False
) -> tuple[Window, ...]:
    """Bring `windows` to the pace of a core on which a check takes the mean of `profile`.

    Only the host's part of a step changes: all of it where the host sets the pace, what is left of
    the GPU's where the host waits for it, and nothing where the GPU sets the pace, or a limit: then
    a step takes much longer than alone.
    """
    check_s, gpu_s = profile.host_check_s, profile.gpu_s or 0.0
    waits = profile.trace is not None and profile.trace.waits_us
    paced_by_host = profile.host_s is None or profile.host_s >= gpu_s

    def brought(window: Window) -> Window:
        step_s = window.step_s
        by_limit = limited and step_s > _LIMITED * profile.step_s
        if check_s is None or window.check_s is None or by_limit:
            return window
        ratio = core_pace(check_s / window.check_s)
        if waits:
            step_s += max(0.0, step_s - gpu_s) * (ratio - 1)
        elif paced_by_host:
            step_s = max(min(gpu_s, step_s), step_s * ratio)
        return replace(window, seconds=step_s * window.steps)

    return tuple(map(brought, windows))


def _pace_text(pace: SoloPace) -> str:
    """Its step, its round and its epoch end, in words."""
    rounds, words = pace.rounds, [f"{mean_step_s(pace.windows) * 1e3:.2f} ms a step"]
    if rounds.steps > 1:
        words.append(
            f"a round of {rounds.steps} steps takes {sum(rounds.steps_s):.2f} s "
            f"({counted(rounds.whole, 'round')} seen)"
        )
    if rounds.epoch_end is not None:
        words.append(
            f"{rounds.epoch_end.seconds:.2f} s more at the end of an epoch "
            f"({rounds.epoch_ends} seen)"
        )
    if rounds.unclear:
        words.append("too few rounds were seen: it may do more than these steps")
    return "; ".join(words)


# More training steps than an epoch has; minGPT's sampler has 10 billion examples.
_MOST_STEPS = 10_000_000


def _completed(workload: Workload, seen: Mapping[str, Any] | None) -> Workload:
    """Return `workload` with what its hook has `seen`; the user's options go first."""
    if seen is None:
        return workload
    batch = workload.batch if workload.batch > 1 else seen["batch"] or 1
    steps = workload.steps_per_epoch or seen["steps_per_epoch"]
    endless = steps is not None and steps > _MOST_STEPS  # a sampler that is never through
    return replace(
        workload,
        batch=batch,
        examples_per_epoch=None if steps is None or endless else steps * batch,
        loader_workers=workload.loader_workers or seen["loader_workers"],
        precision=seen["precision"],
        execution=seen["execution"],
    )


def _say_training(workload: Workload, seen: Mapping[str, Any] | None, tenant: Tenant) -> None:
    """Print a script's batch and epoch, what is doubtful, and options for what it does not show."""
    if workload.script is None:
        return
    examples = (
        f"{workload.batch:,} examples"
        if workload.batch > 1
        else "no loader's batch: --batch-size N"
    )
    steps = workload.steps_per_epoch
    epoch = "of unknown length: --steps-per-epoch N" if steps is None else f"{steps:,} steps"
    if others := [each for each in (seen or {}).get("other_epochs", ()) if each != steps]:
        listed = " and ".join(f"{each:,}" for each in others)
        epoch += f", and by other loaders {listed}: --steps-per-epoch N if that is the epoch"
    say(f"  a step has {examples}; an epoch, {epoch}; loader workers: {workload.loader_workers}")
    if note := tenant.first_of_several():
        say(f"  {note}")


_UNLIMITED_PCT = 100.0
_PROBE_TIMING = Timing(settle_s=0.0, window_s=0.35, windows=3, lead_s=0.25, longest_s=4.0)

# Slow steps take seconds each under a limit, so fewer of them warm up.
_SLOW_STEP_S, _WARM_STEPS, _WARM_STEPS_WHEN_SLOW = 0.2, 10, 2

# Processes that together hold more of the GPU's memory are started one after another: an allocator
# that runs short trains more slowly.
_MOST_HELD = 0.9


def mps_probe(
    profile: Profile, taken: Sequence[StepsTaken], bench: Bench, watch: Stopwatch
) -> MpsProbe | None:
    """Measure the workload of `profile` alone under MPS; None, after a message, if that fails.

    `taken` are steps that show its round.
    """
    session = bench.session
    try:
        session.switch_to(Mps())
        (unlimited, pace), *limited = _limited_runs(profile, taken, bench, watch)
    except AdvisorError as error:
        # The daemon does not start, or a client failed: the profile without MPS is still valid.
        say(f"  no MPS probe: {error}")
        session.close()  # a client that died can leave an MPS server that accepts no clients
        return None
    return MpsProbe(unlimited, tuple(run for run, _ in limited), pace.memory)


def _limited_runs(
    profile: Profile, taken: Sequence[StepsTaken], bench: Bench, watch: Stopwatch
) -> list[tuple[LimitedRun, SoloPace]]:
    """Runs without a limit, then under each of `PROBE_LIMITS_PCT`."""
    limits_pct = (_UNLIMITED_PCT, *PROBE_LIMITS_PCT)
    session, held_mib = bench.session, profile.memory.device_mib
    most_mib = _MOST_HELD * gpu(session.device.key).memory_mib
    holds_all = held_mib is not None and len(limits_pct) * held_mib <= most_mib
    script = profile.workload.script
    # A program takes long to start, and can wait between its steps: all start at once if possible.
    if (script is None or script.by_steps) and holds_all:
        try:
            return _in_turn(limits_pct, profile, taken, bench, watch)
        except AdvisorError as error:  # two that want one port, say
            say(f"  {error}; under MPS, its processes are started one after another")
            session.close()
            session.switch_to(Mps())
    return [run for limit in limits_pct for run in _in_turn([limit], profile, taken, bench, watch)]


def _in_turn(
    limits_pct: Sequence[float],
    profile: Profile,
    taken: Sequence[StepsTaken],
    bench: Bench,
    watch: Stopwatch,
) -> list[tuple[LimitedRun, SoloPace]]:
    """Runs under `limits_pct` of clients that start at once and then train one after another."""
    session, workload, runs = bench.session, profile.workload, []
    patience_s, meter = watch.patience_s(), Meter(session.device)
    modes = [Mps() if limit == _UNLIMITED_PCT else Mps((limit,)) for limit in limits_pct]
    setups = [setup for mode in modes for setup in session.setups(mode, [workload])]
    slow = mean_step_s(profile.windows) >= _SLOW_STEP_S
    warm_steps = _WARM_STEPS_WHEN_SLOW if slow else _WARM_STEPS
    with tenants_on(setups, session.folder) as tenants:
        answers = ask_all(tenants, "load", patience_s, warm_steps=warm_steps)
        loads = [living(answer) for answer in answers]
        session.proved_clients(Mps(), [tenant.pid for tenant in tenants])
        for limit_pct, tenant, loaded in zip(limits_pct, tenants, loads, strict=True):
            pace = measured_pace(tenant, meter, _PROBE_TIMING, taken, patience_s)
            windows = at_check(profile, pace.windows, limited=True)
            run = LimitedRun(limit_pct, loaded["sms"], windows)
            say(f"  MPS {limit_pct:g} %: {run.step_s * 1e3:.2f} ms a step on {run.sms} SMs")
            watch.lap("mps_s" if limit_pct == _UNLIMITED_PCT else "limits_s")
            runs.append((run, pace))
    return runs
