"""A profile at another pace: of another host, or of the mean of several measurements."""

from collections.abc import Mapping
from dataclasses import fields, replace

from advisor.workload.profile import Counters, LimitedRun, Profile, Window

_RATES = ("pcie_rx_mib_s", "pcie_tx_mib_s")
_SHARES = tuple(each.name for each in fields(Counters) if each.name not in ("source", *_RATES))


def at_pace(profile: Profile, stretch: float, host: float = 1.0) -> Profile:
    """Return `profile` with steps that are longer by `stretch` and do the same work.

    Its host work takes `host` times as long.
    """
    power_w, idle_w, probe = profile.power_w, profile.idle_power_w, profile.mps
    if power_w is not None and idle_w is not None:
        power_w = idle_w + (power_w - idle_w) / stretch
    if probe is not None:  # all runs of it, so that a limit costs as much as before
        limited = tuple(longer(run, stretch) for run in probe.limited)
        probe = replace(probe, unlimited=longer(probe.unlimited, stretch), limited=limited)
    slower = replace(
        profile,
        windows=stretched(profile.windows, stretch),
        counters=profile.counters and thinned(profile.counters, stretch, {}),
        power_w=power_w,
        mps=probe,
    )
    if host == 1:
        return slower
    return replace(
        slower,
        host_s=profile.host_s and profile.host_s * host,
        host=profile.host and profile.host.slowed(host),
        trace=profile.trace and profile.trace.launched(host),
        host_check_s=profile.host_check_s and profile.host_check_s * host,
        epoch_end=profile.epoch_end and profile.epoch_end.changed(steps=stretch, host=host),
    )


def stretched(windows: tuple[Window, ...], stretch: float) -> tuple[Window, ...]:
    """Return `windows` in which each step takes `stretch` times as long."""
    return tuple(Window(each.seconds * stretch, each.steps, each.check_s) for each in windows)


def thinned(counters: Counters, stretch: float, grown: Mapping[str, float]) -> Counters:
    """Return `counters` over longer steps; those in `grown` count so many times as much a step."""
    most = dict.fromkeys(_SHARES, 1.0) | dict.fromkeys(_RATES, float("inf"))
    values = {
        name: min(limit, value * grown.get(name, 1.0) / stretch)
        for name, limit in most.items()
        if (value := getattr(counters, name)) is not None
    }
    return replace(counters, **values)


def longer(run: LimitedRun, stretch: float) -> LimitedRun:
    return replace(run, windows=stretched(run.windows, stretch))
