"""Measures how fast a workload trains alone as a client of MPS, with and without a limit."""

from typing import Any

from advisor.errors import AdvisorError
from advisor.measure.process.claimed_device import Meter
from advisor.measure.process.mps_session import MpsSession
from advisor.measure.process.supervisor import say
from advisor.measure.process.tenants import tenants_on
from advisor.measure.process.windows import Timing
from advisor.measure.solo.profiling_verbs import profiling_verbs
from advisor.measure.solo.solo_pace import SoloPace, Stopwatch, asked, measured_pace
from advisor.sharing import Mps
from advisor.workload.profile import LimitedRun, MpsProbe
from advisor.workload.spec import Workload

LIMITS_PCT = (14.0, 28.0, 50.0)
_TIMING = Timing(settle_s=0.0, window_s=0.35, windows=3, lead_s=0.25, longest_s=4.0)


# Slow steps take seconds each under a limit, so fewer of them warm up.
_SLOW_STEP_S, _WARM_STEPS, _WARM_STEPS_WHEN_SLOW = 0.2, 10, 2


def mps_probe(
    workload: Workload, session: MpsSession, cores: tuple[int, ...], step_s: float, watch: Stopwatch
) -> MpsProbe | None:
    """How fast `workload` is under MPS; None, after printing why, if it cannot be measured.

    No tenant may live on the GPU; `step_s` is its seconds of a step without MPS.
    """
    warm_steps = _WARM_STEPS if step_s < _SLOW_STEP_S else _WARM_STEPS_WHEN_SLOW
    load = {"workload": workload, "warm_steps": warm_steps, "timeout_s": watch.patience_s()}
    try:
        session.switch_to(Mps())
        unlimited, pace = _limited(None, load, session, cores)
        watch.lap("mps_s")
        limited = tuple(_limited(limit, load, session, cores)[0] for limit in LIMITS_PCT)
        watch.lap("limits_s")
    except AdvisorError as error:
        # The daemon does not start, or a client failed: the profile without MPS is still valid.
        say(f"  no MPS probe: {error}")
        session.close()  # a client that died can leave an MPS server that serves nobody
        return None
    return MpsProbe(unlimited, limited, pace.memory)


def _limited(
    limit_pct: float | None, load: dict[str, Any], session: MpsSession, cores: tuple[int, ...]
) -> tuple[LimitedRun, SoloPace]:
    """A run under that limit, or without one; `load` is the request to its tenant to load."""
    sharing = Mps() if limit_pct is None else Mps((limit_pct,))
    setups = session.setups(sharing, [cores], [load["workload"]])
    with tenants_on(setups, session.folder, profiling_verbs) as (tenant,):
        loaded = asked(tenant, "load", **load)
        session.proved_clients(sharing, [tenant.pid])
        meter, step_s = Meter(session.device), loaded["warm_step_s"]
        pace = measured_pace(tenant, meter, _TIMING, step_s, load["timeout_s"])
    run = LimitedRun(limit_pct or 100.0, loaded["sms"], pace.windows)
    say(f"  MPS {run.limit_pct:g} %: {run.step_s * 1e3:.2f} ms a step on {run.sms} SMs")
    return run, pace
