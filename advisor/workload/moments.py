"""Moments of a profile: the same workload measured alone again, minutes or days later.

A host changes its speed within minutes, so one measurement shows one of its paces.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from datetime import datetime
from math import log
from statistics import geometric_mean

from advisor.errors import counted
from advisor.hardware.machine import Counters
from advisor.workload.profile import MOST_MOMENTS, KernelTrace, LimitedRun, Moment, Profile, Window
from advisor.workload.spec import Workload

# Of the same program on the same GPU model, on eight hosts, kernels differed by 7 % at most, where
# cuDNN chose others, and the GPU path by 3 %.
_SAME_WORK = 0.1

# A step this many times as long, or as short, as in the other moments shows another state.
_FAR = 1.5

_ORDINALS = ("first", "second", "third")
_MACHINE = {
    "device": "GPU",
    "driver": "driver",
    "cuda": "CUDA",
    "torch": "torch",
    "timm": "timm",
    "python": "Python",
    "host": "machine",
    "host_cpu": "CPU",
    "host_cores": "number of cores",
}


def add_moment(before: Profile, now: Profile) -> tuple[Profile, tuple[str, ...]]:
    """Return `now` with the moments of `before`, and lines that say what was done.

    The step, the host path and the host check are the geometric means of at most `MOST_MOMENTS`
    moments; the oldest is left out. All else is that of `now`, except that the MPS probe of
    `before` stays if `now` has none. If anything changed in between, `now` is returned as it is.
    """
    if (change := next(_changes(before, now), None)) is not None:
        return now, (f"the earlier profile is replaced: {change}",)
    moments = (*_moments(before), *_moments(now))[-MOST_MOMENTS:]
    profile = averaged(now, moments)
    if profile.mps is None and before.mps is not None:
        profile = replace(profile, mps=at_pace(before, profile.step_s / before.step_s).mps)
    *steps, last = (f"{1e3 * each.step_s:.2f}" for each in moments)
    moment = f"{_ORDINALS[len(steps)]} moment{_since(moments)}"
    text = f"{moment}: {', '.join(steps)} and {last} ms a step; the mean counts"
    return profile, (text, *odd_moments(moments))


# Over 272 steps of programs with others, the mean of two measurements alone brought the error of
# predictions from 8.0 to 7.6 %, and from 10.2 to 6.8 % on the worst host (`research.programs`).
def averaged(newest: Profile, moments: Sequence[Moment]) -> Profile:
    """Return `newest` at the mean of `moments`, whatever their order."""
    step_s = geometric_mean([each.step_s for each in moments])
    hosts_s = [each.host_s for each in moments if each.host_s]
    checks_s = [each.host_check_s for each in moments if each.host_check_s]
    stretch, slowdown = step_s / newest.step_s, 1.0
    if newest.host_s is not None and len(hosts_s) == len(moments):
        slowdown = geometric_mean(hosts_s) / newest.host_s
    complete = len(checks_s) == len(moments)
    return replace(
        at_pace(newest, stretch, slowdown),
        host_check_s=geometric_mean(checks_s) if complete else newest.host_check_s,
        moments=tuple(moments),
    )


def odd_moments(moments: Sequence[Moment]) -> Iterator[str]:
    """Yield a line for each of `moments` whose step is 1.5 times that of the others."""
    for at, moment in enumerate(moments):
        others = [each.step_s for number, each in enumerate(moments) if number != at]
        ratios = [moment.step_s / step_s for step_s in others]
        if all(ratio >= _FAR for ratio in ratios) or all(ratio <= 1 / _FAR for ratio in ratios):
            listed = " and ".join(f"{1e3 * step_s:.2f}" for step_s in others)
            yield (
                f"its step took {1e3 * moment.step_s:.2f} ms on {moment.date[:16]}, and {listed} "
                "ms otherwise. Measure it again"
            )
            if len(moments) == 2:
                return


def _moments(profile: Profile) -> tuple[Moment, ...]:
    """The moments of a profile with provenance; the one in which it was measured, if only one."""
    assert profile.provenance is not None
    only = Moment(
        date=profile.provenance.date,
        step_s=profile.step_s,
        host_s=profile.host_s,
        host_check_s=profile.host_check_s or None,
    )
    return profile.moments or (only,)


def _since(moments: Sequence[Moment]) -> str:
    """How long the last moment is after the first, in words; empty if a date cannot be read."""
    try:
        first, last = (datetime.fromisoformat(moments[at].date) for at in (0, -1))
        minutes = abs((last - first).total_seconds()) / 60
    except (ValueError, TypeError):
        return ""
    for unit, length in (("day", 1440.0), ("hour", 60.0), ("minute", 1.0)):
        if (number := round(minutes / length)) >= 2 or unit == "minute":
            return f", {counted(number, unit)} after the first"
    return ""


def _changes(before: Profile, now: Profile) -> Iterator[str]:
    """Yield what makes `now` no further moment of `before`."""
    old, new = before.provenance, now.provenance
    if old is None or new is None or before.is_estimate:
        yield "it was not measured"
        return
    for name, words in _MACHINE.items():
        if (was := getattr(old, name)) != (is_now := getattr(new, name)):
            yield f"its {words} was {was or 'not known'}, and is {is_now or 'not known'}"
    if old.recipes != new.recipes:
        yield "the code of the workload has changed"
    for name in (each.name for each in fields(Workload)):
        changed = getattr(before.workload, name) != getattr(now.workload, name)
        if changed and name != "examples_per_epoch":  # which is not of a step
            yield f"the workload's {name.replace('_', ' ')} has changed"
    if not _same_kernels(before.trace, now.trace):
        yield "the kernels of a step have changed"
    if before.gpu_s and now.gpu_s and abs(log(now.gpu_s / before.gpu_s)) > _SAME_WORK:
        yield f"kernels took {1e3 * before.gpu_s:.2f} ms a step, and take {1e3 * now.gpu_s:.2f} ms"


def _same_kernels(before: KernelTrace | None, now: KernelTrace | None) -> bool:
    """Whether both have about as many kernels of each class in a step."""
    if before is None or now is None:
        return before is now
    old, new = (
        Counter({trace.classes[of]: n / trace.steps for of, n in Counter(trace.class_of).items()})
        for trace in (before, now)
    )
    differ = sum(abs(old[name] - new[name]) for name in {*old, *new})
    return differ <= _SAME_WORK * max(sum(old.values()), sum(new.values()))


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
