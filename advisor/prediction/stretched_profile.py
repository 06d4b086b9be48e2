"""A profile whose steps take longer for the same work; conversions of profiles use it."""

from collections.abc import Mapping
from dataclasses import fields, replace

from advisor.workload.measured import Counters, Window
from advisor.workload.profile import LimitedRun, MpsProbe, Profile

_RATES = ("pcie_rx_mib_s", "pcie_tx_mib_s")
_SHARES = tuple(each.name for each in fields(Counters) if each.name not in ("source", *_RATES))


def at_pace(profile: Profile, stretch: float) -> Profile:
    """`profile` with steps that are longer by `stretch` and do the same work."""
    return replace(
        profile,
        windows=stretched(profile.windows, stretch),
        counters=profile.counters and thinned(profile.counters, stretch, {}),
        power_w=_power_w(profile, stretch),
        mps=profile.mps and _probe(profile.mps, stretch),
    )


def stretched(windows: tuple[Window, ...], stretch: float) -> tuple[Window, ...]:
    """`windows` in which each step takes `stretch` times as long."""
    return tuple(Window(each.seconds * stretch, each.steps) for each in windows)


def thinned(counters: Counters, stretch: float, grown: Mapping[str, float]) -> Counters:
    """`counters` over longer steps; those in `grown` count so many times as much a step."""
    most = dict.fromkeys(_SHARES, 1.0) | dict.fromkeys(_RATES, float("inf"))
    known = {name: getattr(counters, name) for name in most}
    thinned = {
        name: min(most[name], value * grown.get(name, 1.0) / stretch)
        for name, value in known.items() if value is not None
    }  # fmt: skip
    return replace(counters, **thinned)


def engine_growth(profile: Profile, busier: float) -> float:
    """How many times as long a step keeps the engine active whose kernels take `busier` times so.

    Between kernels that queue up about a microsecond passes, in which the engine counts as active,
    however long they take: 1.3 us in the median of 88 jobs of an H200 and an H100, which is 40 % of
    the active time of those whose kernels take less than 3 us, and 3 % where they take 20 us.
    """
    if profile.counters is None or not profile.counters.gract or profile.busy_share is None:
        return busier
    kernels = min(1.0, profile.busy_share / profile.counters.gract)
    return kernels * busier + 1 - kernels


def _power_w(profile: Profile, stretch: float) -> float | None:
    if profile.power_w is None or profile.idle_power_w is None:
        return profile.power_w
    return profile.idle_power_w + (profile.power_w - profile.idle_power_w) / stretch


def _probe(probe: MpsProbe, stretch: float) -> MpsProbe:
    """The whole probe stretched alike, so that what a limit costs stays the same."""
    limited = tuple(longer(run, stretch) for run in probe.limited)
    return replace(probe, unlimited=longer(probe.unlimited, stretch), limited=limited)


def longer(run: LimitedRun, stretch: float) -> LimitedRun:
    return replace(run, windows=stretched(run.windows, stretch))
