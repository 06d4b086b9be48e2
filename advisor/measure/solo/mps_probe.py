"""Measures how fast a workload trains alone as a client of MPS, with and without a limit."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from advisor.errors import AdvisorError
from advisor.hardware.catalogue import gpu
from advisor.measure.process.claimed_device import Meter
from advisor.measure.process.mps_session import MpsSession
from advisor.measure.process.supervisor import say
from advisor.measure.process.tenant_handle import living
from advisor.measure.process.tenants import ask_all, tenants_on
from advisor.measure.process.windows import Timing
from advisor.measure.process.worker import TenantSetup
from advisor.measure.solo.profiling_verbs import profiling_verbs
from advisor.measure.solo.solo_pace import SoloPace, Stopwatch, measured_pace
from advisor.sharing import Mps
from advisor.workload.profile import LimitedRun, MpsProbe
from advisor.workload.spec import Workload

LIMITS_PCT = (14.0, 28.0, 50.0)
_UNLIMITED_PCT = 100.0
_TIMING = Timing(settle_s=0.0, window_s=0.35, windows=3, lead_s=0.25, longest_s=4.0)


# Slow steps take seconds each under a limit, so fewer of them warm up.
_SLOW_STEP_S, _WARM_STEPS, _WARM_STEPS_WHEN_SLOW = 0.2, 10, 2

# Processes that together hold more of the GPU's memory are started one after another: an allocator
# that runs short trains more slowly.
_MOST_HELD = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbedJob:
    """What is known of a workload before it is under MPS.

    Attributes:
        workload: With what its script told of itself.
        cores: To which it is pinned while it is measured.
        starting_cores: On which it starts.
        step_s: Its seconds of a step without MPS.
        held_mib: Memory of its process on the device; None: not known.
    """

    workload: Workload
    cores: tuple[int, ...]
    starting_cores: tuple[int, ...]
    step_s: float
    held_mib: float | None

    @property
    def loading(self) -> dict[str, Any]:
        """What its tenants are asked when they load."""
        warm_steps = _WARM_STEPS if self.step_s < _SLOW_STEP_S else _WARM_STEPS_WHEN_SLOW
        return {"workload": self.workload, "warm_steps": warm_steps}


def mps_probe(job: ProbedJob, session: MpsSession, watch: Stopwatch) -> MpsProbe | None:
    """How fast `job` is under MPS; None, after printing why, if it cannot be measured.

    No tenant may live on the GPU.
    """
    try:
        session.switch_to(Mps())
        (unlimited, pace), *limited = _measured(job, session, watch)
    except AdvisorError as error:
        # The daemon does not start, or a client failed: the profile without MPS is still valid.
        say(f"  no MPS probe: {error}")
        session.close()  # a client that died can leave an MPS server that serves nobody
        return None
    return MpsProbe(unlimited, tuple(run for run, _ in limited), pace.memory)


def _measured(
    job: ProbedJob, session: MpsSession, watch: Stopwatch
) -> list[tuple[LimitedRun, SoloPace]]:
    """Without a limit, then under each of `LIMITS_PCT`; by processes started at once if possible.

    A script takes long to start, and waits between its steps for as long as it is asked to.
    """
    everyone = (_UNLIMITED_PCT, *LIMITS_PCT)
    if _start_together(job, session, len(everyone)):
        try:
            return _in_turn(everyone, job, session, watch)
        except AdvisorError as error:  # two that want one port, say
            say(f"  {error}; under MPS, its processes are started one after another")
            session.close()
            session.switch_to(Mps())
    return [each for limit in everyone for each in _in_turn([limit], job, session, watch)]


def _start_together(job: ProbedJob, session: MpsSession, processes: int) -> bool:
    script = job.workload.script
    if script is None or not script.by_steps or job.held_mib is None:
        return False
    return processes * job.held_mib <= _MOST_HELD * gpu(session.device.key).memory_mib


def _in_turn(
    limits_pct: Sequence[float], job: ProbedJob, session: MpsSession, watch: Stopwatch
) -> list[tuple[LimitedRun, SoloPace]]:
    """Runs under `limits_pct` of clients that start at once and then train one after another."""
    patience_s, meter, found = watch.patience_s(), Meter(session.device), []
    with tenants_on(_setups(limits_pct, job, session), session.folder, profiling_verbs) as tenants:
        answers = ask_all(tenants, "load", [job.loading] * len(tenants), patience_s)
        everyone = [living(answer) for answer in answers]
        session.proved_clients(Mps(), [tenant.pid for tenant in tenants])
        for limit_pct, tenant, loaded in zip(limits_pct, tenants, everyone, strict=True):
            tenant.pin(job.cores)
            pace = measured_pace(tenant, meter, _TIMING, loaded["warm_step_s"], patience_s)
            run = LimitedRun(limit_pct, loaded["sms"], pace.windows)
            say(f"  MPS {limit_pct:g} %: {run.step_s * 1e3:.2f} ms a step on {run.sms} SMs")
            watch.lap("mps_s" if limit_pct == _UNLIMITED_PCT else "limits_s")
            found.append((run, pace))
    return found


def _setups(limits_pct: Sequence[float], job: ProbedJob, session: MpsSession) -> list[TenantSetup]:
    modes = [Mps() if limit == _UNLIMITED_PCT else Mps((limit,)) for limit in limits_pct]
    where = [job.starting_cores], [job.workload]
    return [setup for mode in modes for setup in session.setups(mode, *where)]
