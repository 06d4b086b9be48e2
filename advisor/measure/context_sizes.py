"""Measures how much of a GPU's memory CUDA contexts take, with MPS and its limits and without."""

from dataclasses import dataclass, replace

from advisor.errors import AdvisorError
from advisor.measure.process.claimed_device import Meter
from advisor.measure.process.mps_session import MpsSession
from advisor.measure.process.supervisor import say
from advisor.measure.process.tenants import memory_record, tenants_on
from advisor.measure.switching import all_answers
from advisor.sharing import Concurrent, Mps, Naive
from advisor.workload.machine_calibration import Contexts, LimitedContext
from advisor.workload.named_workloads import workload

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
