"""Profiles one workload alone on a device."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from time import sleep

from advisor.english import counted
from advisor.errors import AdvisorError
from advisor.measure.process.claimed_device import Meter
from advisor.measure.process.cores import cores_of_each, leave_to_tenants
from advisor.measure.process.mps_session import MpsSession
from advisor.measure.process.provenance import Origin, recipe_of_script
from advisor.measure.process.supervisor import say
from advisor.measure.process.tenant_handle import LOAD_S
from advisor.measure.process.tenants import tenants_on
from advisor.measure.process.windows import Timing
from advisor.measure.solo.mps_probe import ProbedJob, mps_probe
from advisor.measure.solo.profiling_verbs import profiling_verbs
from advisor.measure.solo.script_options import described, training_text
from advisor.measure.solo.solo_pace import SoloPace, Stopwatch, asked, repeated_pace, settled_step_s
from advisor.measure.solo.step_parts import StepParts, step_parts
from advisor.sharing import Naive
from advisor.workload.measured import Provenance, pace_spread, unsteady
from advisor.workload.profile import Profile
from advisor.workload.spec import Workload

# A loader starts with prefetched batches, which must be used up before a window begins.
_TIMING = Timing(settle_s=0.0, window_s=0.5, windows=5, lead_s=0.4)
_TIMING_WITH_LOADER = Timing(settle_s=0.0, window_s=0.5, windows=5, lead_s=1.5)

# Before a workload is measured again: a virtual core can be slow for seconds.
_PAUSE_S = 5.0

# Kernels take longer in the profiler, short ones most; a trace beyond this ratio gets a warning.
_TRACE_MAY_EXCEED = 1.05


@dataclass(frozen=True, slots=True, kw_only=True)
class SoloRunSettings:
    """Settings that all workloads of a batch share.

    Attributes:
        session: Of the claimed device.
        origin: The provenance that all figures share.
        host_cores: All host cores that this process may use.
        cores: Those that tenants may have.
        probe: Whether to measure under MPS too.
        idle_power_w: Of the device before anything ran; None if not metered.
        patience_s: How long a workload may take no step.
    """

    session: MpsSession
    origin: Origin
    host_cores: tuple[int, ...]
    cores: tuple[int, ...]
    probe: bool
    idle_power_w: float | None
    patience_s: float = LOAD_S


@dataclass(frozen=True, slots=True)
class _Alone:
    """What one process showed; `workload` as it describes itself."""

    workload: Workload
    cores: tuple[int, ...]
    pace: SoloPace
    parts: StepParts
    versions: Mapping[str, str | None]


def profile_alone(workload: Workload, settings: SoloRunSettings) -> Profile:
    """Measure `workload` in new processes: alone, again if its windows disagree, then under MPS.

    Raises:
        InvalidInput: It cannot be built, or needs more cores than are allowed.
        AdvisorError: It ran out of memory or died.
    """
    session, watch = settings.session, Stopwatch()
    session.switch_to(Naive())
    leave_to_tenants([cores_for(workload, settings)], settings.host_cores)
    alone = _steadier_alone(workload, settings, watch)
    _report(alone.pace, alone.parts)
    profile = _profile(alone, settings)
    if settings.probe and session.device.kind == "cuda":
        job = ProbedJob(
            workload=alone.workload, cores=alone.cores,
            starting_cores=_starting_cores(alone.workload, alone.cores, settings),
            step_s=alone.pace.mean_step_s, held_mib=alone.pace.memory.device_mib,
        )  # fmt: skip
        profile = replace(profile, mps=mps_probe(job, session, watch))
    return replace(profile, took=watch.took(alone.pace.meter_s))


def _profile(alone: _Alone, settings: SoloRunSettings) -> Profile:
    """The profile that `alone` amounts to, without an MPS probe."""
    pace, parts = alone.pace, alone.parts
    power_w = pace.activity.power_w
    return Profile(
        workload=alone.workload,
        gpu=settings.session.device.key,
        windows=pace.windows,
        host_s=parts.host_s,
        gpu_s=parts.gpu_s,
        host_cpu_share=pace.host_cpu_share,
        memory=pace.memory,
        counters=pace.activity.counters,
        power_w=power_w,
        energy_j=None if power_w is None else power_w * pace.mean_step_s,
        idle_power_w=settings.idle_power_w,
        cores=alone.cores,
        mps=None,
        trace=parts.trace,
        provenance=_provenance(alone, settings),
        host_check_s=pace.host_check_s,
        host=pace.host and replace(pace.host, main_s=parts.main_s, loader_s=parts.loader_s),
    )


def _provenance(alone: _Alone, settings: SoloRunSettings) -> Provenance:
    found = settings.origin.provenance(alone.versions, alone.pace.clocks_mhz)
    script = alone.workload.script
    return found if script is None else replace(found, recipes=recipe_of_script(script))


def _steadier_alone(workload: Workload, settings: SoloRunSettings, watch: Stopwatch) -> _Alone:
    """As `_trained_alone`; where its windows disagree, the steadier of two such measurements.

    The second is at another moment, on other cores if there are any.
    """
    first = _trained_alone(workload, settings, watch)
    varied = unsteady(first.pace.windows)
    if varied is None:
        return first
    say(f"  its steps varied by {varied:.0%}; measuring it again at another moment")
    sleep(_PAUSE_S)
    others = tuple(core for core in settings.cores if core not in first.cores)
    moved = replace(settings, cores=others + first.cores)
    leave_to_tenants([cores_for(first.workload, moved)], settings.host_cores)
    try:
        second = _trained_alone(first.workload, moved, watch)
    except AdvisorError as error:
        say(f"  {error}; the first measurement is kept")
        settings.session.close()  # a client that died can leave an MPS server that serves nobody
        settings.session.switch_to(Naive())
        second = first
    kept = min(first, second, key=lambda each: pace_spread(each.pace.windows))
    leave_to_tenants([kept.cores], settings.host_cores)
    if (varied := unsteady(kept.pace.windows)) is not None:
        say(f"  its steps vary by {varied:.0%}; intervals are wider for it")
    return kept


def _trained_alone(workload: Workload, settings: SoloRunSettings, watch: Stopwatch) -> _Alone:
    session, cores = settings.session, cores_for(workload, settings)
    starting = _starting_cores(workload, cores, settings)
    setups = session.setups(Naive(), [starting], [workload])
    with tenants_on(setups, session.folder, profiling_verbs) as (tenant,):
        loaded = asked(tenant, "load", timeout_s=settings.patience_s, workload=workload)
        workload = described(workload, loaded.get("found"))
        if workload.script is not None:
            say(f"  {training_text(workload)}")
        cores = cores_for(workload, settings)
        tenant.pin(cores)
        watch.lap("start_s")
        step_s = settled_step_s(tenant, loaded["warm_step_s"], settings.patience_s)
        watch.lap("settle_s")
        timing = _TIMING_WITH_LOADER if workload.loader_workers else _TIMING
        meter = Meter(session.device)
        pace = repeated_pace(tenant, meter, timing, step_s, settings.patience_s)
        watch.lap("windows_s")
        parts = step_parts(tenant, pace, session.device, watch)
        versions = tenant.versions
    watch.lap("start_s")
    return _Alone(workload, cores, pace, parts, versions)


def _starting_cores(
    workload: Workload, cores: tuple[int, ...], settings: SoloRunSettings
) -> tuple[int, ...]:
    """All for a script: how many loader workers it has shows when it trains."""
    return cores if workload.script is None else settings.cores


def cores_for(workload: Workload, settings: SoloRunSettings) -> tuple[int, ...]:
    """The cores to which the processes of `workload` are pinned.

    Raises:
        InvalidInput: It needs more than are allowed.
    """
    share = settings.session.device.kind == "cpu"
    return cores_of_each([workload.cores], settings.cores, share=share)[0]


def _report(pace: SoloPace, parts: StepParts) -> None:
    step_s = pace.mean_step_s
    host, on_gpu = (
        "" if each is None else f", {name} {each * 1e3:.2f} ms"
        for name, each in (("host", parts.host_s), ("GPU", parts.gpu_s))
    )
    say(f"  {step_s * 1e3:.2f} ms a step{host}{on_gpu}")
    if parts.trace is not None and parts.trace.waits_us:
        say(f"  its host waits for the GPU {counted(len(parts.trace.waits_us), 'time')} a step")
    if parts.gpu_s is not None and parts.gpu_s > _TRACE_MAY_EXCEED * step_s:
        say("  its kernels add up to more than the step measured without a profiler")
