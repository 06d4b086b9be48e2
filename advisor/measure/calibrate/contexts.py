"""What CUDA contexts, the MPS server and the driver hold of a GPU's memory."""

from dataclasses import dataclass

from advisor.errors import AdvisorError
from advisor.measure.calibrate.tenant_rpc import all_told
from advisor.measure.process.claimed_device import Meter
from advisor.measure.process.mps_session import MpsSession
from advisor.measure.process.supervisor import say
from advisor.measure.process.tenant_memory import memory_record
from advisor.measure.process.tenants import tenants_on
from advisor.measure.process.worker import TenantSetup
from advisor.sharing import Mps, Naive
from advisor.workload.calibration import Contexts, LimitedContext
from advisor.workload.named_workloads import workload

# Small, and loads the matrix library, as whatever trains does.
_WORKLOAD = "mlp-toy-bs128"

_LIMITS_PCT = (50.0, 10.0)


@dataclass(frozen=True, slots=True)
class _Seen:
    """One tenant's context, the SMs it may use, and what others hold; None: not told."""

    context_mib: float | None
    sms: int | None
    others_mib: float


def contexts(stage: MpsSession, core: int) -> Contexts:
    """Sizes of contexts on the GPU of `stage`, on which no tenant lives.

    Args:
        stage: A GPU, claimed.
        core: Where to pin each tenant.

    Raises:
        AdvisorError: Not even a plain process can train.
    """
    stage.set_for(Naive())
    driver_mib = _used_mib(stage)
    plain = _seen(stage, core, Naive())
    try:
        stage.set_for(Mps())
        client = _seen(stage, core, Mps())
        limited = {limit: _seen(stage, core, Mps((limit,))) for limit in _LIMITS_PCT}
    except AdvisorError as error:
        say(f"  no contexts under MPS: {error}")
        return Contexts(
            driver_mib=driver_mib, plain_mib=plain.context_mib, mps_mib=None, sms=None,
            limited=(), mps_server_mib=None,
        )  # fmt: skip
    return Contexts(
        driver_mib=driver_mib,
        plain_mib=plain.context_mib,
        mps_mib=client.context_mib,
        sms=client.sms,
        limited=tuple(
            LimitedContext(limit, each.sms, each.context_mib)
            for limit, each in limited.items()
            if each.sms is not None and each.context_mib is not None
        ),
        mps_server_mib=None if client.context_mib is None else client.others_mib,
    )


def _seen(stage: MpsSession, core: int, sharing: Naive | Mps) -> _Seen:
    (environment,) = stage.environments(sharing, 1)
    seat = TenantSetup(stage.device.kind, (core,), environment)
    with tenants_on([seat], stage.folder) as (tenant,):
        (told,) = all_told([tenant], "load", {"workload": workload(_WORKLOAD)})
        stage.proved_clients(sharing, [tenant.pid])
        seen = Meter(stage.device).memory_mib()
    # In a container the driver may know it by another number; but the server holds less.
    own_mib = seen.get(tenant.pid, max(seen.values(), default=None))
    others_mib = sum(seen.values()) - (own_mib or 0.0)
    context_mib = memory_record(told["memory"], own_mib).context_mib
    return _Seen(context_mib, told["sms"], others_mib)


def _used_mib(stage: MpsSession) -> float:
    from advisor.hardware.live_gpu import live_gpu

    return live_gpu(stage.device.uuid or "").memory_used_mib
