"""Fits what is learnt of memory from runs of one GPU."""

from collections.abc import Mapping, Sequence
from statistics import median

import numpy as np

from advisor.gpu.catalogue import Gpu
from advisor.prediction.memory import Context, need
from advisor.prediction.observation import Shared
from advisor.prediction.script import Floats
from advisor.workload.profile import Profile


def fit_context(profiles: Mapping[str, Profile], usable: Sequence[Shared], gpu: Gpu) -> Context:
    """The usual context, and what each SM that a limit takes away saves of it."""
    contexts = [each.memory.context_mib for each in profiles.values()]
    saved = [
        (profile.mps.memory.context_mib - tenant.memory.context_mib) / (gpu.sms - tenant.sms)
        for shared in usable
        for tenant, profile in zip(shared.run.tenants, shared.profiles, strict=True)
        if profile.mps and profile.mps.memory.context_mib and tenant.memory
        and tenant.memory.context_mib and tenant.sms and tenant.sms < gpu.sms
    ]  # fmt: skip
    return Context(
        usual_mib=median([each for each in contexts if each is not None] or [600.0]),
        per_sm_mib=max(0.0, median(saved or [0.0])),
    )


def log_memory(shared: Shared, context: Context, gpu: Gpu) -> Floats:
    """Log of measured over predicted memory of each tenant, where the driver said."""
    return np.array([
        np.log(tenant.memory.device_mib / need(
            profile, context, under_mps=shared.mode != "naive",
            sms_taken=gpu.sms - (tenant.sms or gpu.sms),
        ).held_mib)
        for tenant, profile in zip(shared.run.tenants, shared.profiles, strict=True)
        if tenant.memory and tenant.memory.device_mib
    ])  # fmt: skip


def memory_sigma(log_errors: Floats) -> float:
    """Relative standard error; 2 % where nothing was measured, never below half a per cent."""
    return max(0.005, float(np.sqrt(np.mean(log_errors**2)))) if len(log_errors) else 0.02
