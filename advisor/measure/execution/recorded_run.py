"""What a run measured, as records that fitting learns from: one for each stage that shows a pace.

A stage's windows lie where all of its jobs ran, after they had settled and before the first of them
ended: what is predicted of them holds there.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from advisor.measure.execution.execution_plan import ExecutedJob, ExecutedStage
from advisor.measure.execution.run_monitor import RunMonitor
from advisor.measure.execution.watched_pace import SETTLE_S, WatchedPace
from advisor.measure.process.provenance import Origin
from advisor.measure.process.tenants import memory_record
from advisor.sharing import parse_sharing
from advisor.sharing.traversal import restricted, together
from advisor.workload.measured import Provenance, Window
from advisor.workload.run import Run, Tenant

# Of a stage; a shorter one says little, and more windows say no more.
_SHORTEST_S, _WINDOWS = 6.0, 6


def recorded_runs(monitor: RunMonitor, origin: Origin) -> Iterator[Run]:
    """A record of each stage in which every job counted its steps long enough.

    Raises:
        InvalidInput: What was measured cannot be true.
    """
    for number, stage in enumerate(monitor.running.plan.stages, start=1):
        windows = _windows(stage, monitor.running.paces)
        if windows is not None:
            yield _record(monitor, origin, stage, number, windows)


def _windows(
    stage: ExecutedStage, paces: Mapping[int, WatchedPace]
) -> dict[int, tuple[Window, ...]] | None:
    """Of each job, by its number; None where one has none."""
    spans = [paces[number].span_s for number in stage.jobs]
    known = [span for span in spans if span is not None]
    if len(known) < len(spans):
        return None
    began_s, ended_s = max(first for first, _ in known) + SETTLE_S, min(last for _, last in known)
    if ended_s - began_s < _SHORTEST_S:
        return None
    bounds_s = np.linspace(began_s, ended_s, _WINDOWS + 1).tolist()
    found = {number: paces[number].windows(bounds_s) for number in stage.jobs}
    return found if all(found.values()) else None


def _record(
    monitor: RunMonitor,
    origin: Origin,
    stage: ExecutedStage,
    number: int,
    windows: Mapping[int, tuple[Window, ...]],
) -> Run:
    running, jobs = monitor.running, sorted(stage.jobs)
    whole = parse_sharing(running.plan.sharing)
    sharing = restricted(whole, [job - 1 for job in jobs])
    on_mig = any(part.instance for part in stage.partitions)
    shared = on_mig or (together(sharing) is not None and len(jobs) > 1)
    suffix = f"-stage{number}" if len(running.plan.stages) > 1 else ""
    return Run(
        id=f"run-{running.state.id}{suffix}",
        gpu=running.site.device.key,
        sharing=str(sharing) if shared else "naive",
        purpose="validation",
        repeats=None,
        tenants=tuple(_tenant(monitor, running.plan.job(job), windows[job]) for job in jobs),
        mps_clients=sum(len(part.jobs) for part in stage.partitions if part.under_mps),
        power_w=monitor.power_w(stage),
        counters=None,
        provenance=_provenance(monitor, origin, jobs),
    )


def _tenant(monitor: RunMonitor, job: ExecutedJob, windows: tuple[Window, ...]) -> Tenant:
    last = monitor.running.paces[job.number].last
    reported = {
        "allocated_mib": None if last is None else last.allocated_mib,
        "reserved_mib": None if last is None else last.reserved_mib,
    }
    memory = memory_record(reported, monitor.held_mib.get(job.number) or None)
    return Tenant(
        workload=job.workload,
        outcome="ok",
        detail=None,
        windows=windows,
        memory=memory,
        cores=monitor.running.cores.get(job.number, ()),
        sms=None if last is None else last.sms,
    )


def _provenance(monitor: RunMonitor, origin: Origin, jobs: Sequence[int]) -> Provenance:
    said = (monitor.running.paces[job].last for job in jobs)
    versions = next((dict(each.versions) for each in said if each and each.versions), {})
    return origin.provenance(versions, monitor.clocks_mhz)
