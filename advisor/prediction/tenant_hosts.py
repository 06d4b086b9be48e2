"""Converts profiles to the host cores that the tenants of a run had."""

from collections.abc import Mapping

from advisor.prediction.host_transfer import on_host_checked
from advisor.workload.profile import Profile
from advisor.workload.run import Run, Tenant

# Where cores differ by more than this, what the check leaves wrong (12 % of a step in the mean of
# 45 solo runs, against 6 % of 65 others) is larger than the effects of sharing.
_FAR = 1.2


def profiles_on_host(run: Run, profiles: Mapping[str, Profile]) -> tuple[Profile, ...]:
    """Profile of each tenant of `run`, converted to the core that it had, in order.

    Raises:
        KeyError: A tenant has no profile.
    """
    return tuple(
        on_host_checked(profiles[each.workload.name], each.host_check_s) for each in run.tenants
    )


def on_like_core(profile: Profile, tenant: Tenant) -> bool:
    """Whether the core of `tenant` is known to have been about as fast as that of `profile`.

    Otherwise the step of a host-bound job depends more on the core than on its mates.
    """
    if tenant.host_check_s is None:
        return False
    ratio = tenant.host_check_s / (profile.host_check_s or tenant.host_check_s)
    return 1 / _FAR < ratio < _FAR
