"""Checks and doubts of profiles, and further measurements of the same workload: its moments."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from math import log
from statistics import geometric_mean
from typing import Literal

from advisor.errors import InvalidInput, UnknownName, counted, in_percent, with_article
from advisor.hardware.gpus import Gpu, gpu_meant, known_gpus
from advisor.hardware.machine import Counters, Provenance
from advisor.workload.catalogue import how_to_measure
from advisor.workload.profile import MOST_MOMENTS, KernelTrace, LimitedRun, Moment, Profile, Window
from advisor.workload.spec import Workload

# Boards may be set a little above the limit of their model, and their sensors are some per cent
# off; a larger number is of another unit, or of another GPU.
_MOST_ABOVE_LIMIT = 1.15
# Of the limit: half of what an H200 or H100 draws while nothing runs, since sensors are off and
# other models idle at less. A smaller number is of another unit, or of another GPU.
_LEAST_OF_LIMIT = 0.05


def check_key(profile: Profile, where: str) -> Profile:
    """Check that the GPU of `profile` is a key of the catalogue, or unknown; return the profile.

    Raises:
        InvalidInput: `where` names a known GPU by another name than its key, or means several.
    """
    if profile.gpu in known_gpus():
        return profile
    try:
        remedy = f"Write {gpu_meant(profile.gpu).key} there"
    except UnknownName:
        return profile
    except InvalidInput as error:
        remedy = str(error).removesuffix(".")
    problem = f"its gpu, {profile.gpu}, is not a key of `advisor gpus`"
    raise InvalidInput(f"{where}: {problem}. {remedy}.")


def check_power(profile: Profile, gpu: Gpu) -> Profile:
    """Check the power of `profile` on `gpu` unless it was measured; return the profile.

    Raises:
        InvalidInput: It is bare numbers, and its power is more than `gpu` draws, or less.
    """
    limit_w, power_w = gpu.power_limit_w, profile.power_w
    bare = profile.workload.is_bare and not profile.is_estimate
    if not (limit_w and bare) or power_w is None:
        return profile
    least_w = _LEAST_OF_LIMIT * limit_w
    if least_w <= power_w <= _MOST_ABOVE_LIMIT * limit_w:
        return profile
    draws = f"more than {least_w:g} W at idle" if power_w < least_w else f"at most {limit_w:g} W"
    raise InvalidInput(
        f"{profile.name}: power_w is {power_w:g}, but {with_article(gpu.key)} draws {draws}. Give "
        f"the mean watts of that one GPU while the job runs, between idle and {limit_w:g}, from "
        "nvidia-smi. If they are unknown, leave --power-w out, or write null in a file."
    )


# Shares of a GPU's memory that frameworks take at their start, whatever the job needs, and what
# stops that, by their documentation.
_TAKEN_AT_START = {
    (0.75, 0.75): ("JAX", "XLA_PYTHON_CLIENT_PREALLOCATE=false"),
    (0.90, 0.90): ("vLLM", "a lower --gpu-memory-utilization"),
    (0.95, 1.00): ("TensorFlow", "TF_FORCE_GPU_ALLOW_GROWTH=true"),
}
_ROUNDING, _CONTEXT_MIB = 0.01, 600


def preallocating_profiles(profiles: Iterable[Profile]) -> tuple[str, ...]:
    """Return a line for each job whose memory may be what its framework takes at its start.

    That of a job whose allocator was seen is what the job needs.
    """
    cards, doubts = known_gpus(), dict[str, str]()
    for profile in profiles:
        card = cards.get(profile.estimated_from or profile.gpu)
        held_mib = profile.memory.device_mib
        if card is None or held_mib is None or profile.memory.allocated_mib is not None:
            continue
        share, context = held_mib / card.memory_mib, _CONTEXT_MIB / card.memory_mib
        for (least, most), (framework, setting) in _TAKEN_AT_START.items():
            if least - _ROUNDING <= share <= most + _ROUNDING + context:
                doubts[profile.name] = (
                    f"{profile.name} holds {in_percent(share)} of the memory of "
                    f"{with_article(card.key)}. {framework} reserves so much at its start. If it "
                    f"is {framework}, set {setting}, and read the memory again"
                )
    return tuple(doubts.values())


What = Literal["driver", "torch", "host"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Present:
    """This machine's software and host; a field of None is not compared."""

    driver: str | None = None
    torch: str | None = None
    host_cpu: str | None = None
    host_cores: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stale:
    """Jobs whose profiles were made with another driver, torch or host than the present one.

    Attributes:
        what: Major version of the driver, minor one of torch, or CPU and cores of the host.
        jobs: Names of their profiles; `jobs_in_all` counts all different jobs in question.
        profiled: Values of `what` in the profiles; several if these differ.
    """

    what: What
    jobs: tuple[str, ...]
    jobs_in_all: int
    profiled: tuple[str, ...]
    present: str

    def __str__(self) -> str:
        or_else = ", or convert the profiles to this host: --check-host" * (self.what == "host")
        return (
            f"{len(self.jobs)} of {counted(self.jobs_in_all, 'job')} ({', '.join(self.jobs)}): "
            f"profiled with {self.what} {' and '.join(self.profiled)}, and here it is "
            f"{self.present}. To measure again: {how_to_measure(self.jobs)}{or_else}."
        )


def _kinds(where: Present | Provenance | None) -> dict[What, str | None]:
    """Versions on which profiles depend, e.g. ``"580"`` and ``"2.11"``, and the host."""
    where = where or Present()  # of bare numbers, whose machine is unknown
    known_host = where.host_cpu is not None and where.host_cores is not None
    return {
        "driver": where.driver and where.driver.split(".")[0],
        "torch": where.torch and ".".join(where.torch.split("+")[0].split(".")[:2]),
        "host": f"{where.host_cpu}, {where.host_cores} cores" if known_host else None,
    }


def stale_profiles(
    profiles: Iterable[Profile], present: Present | Provenance, *, host_known: bool = False
) -> tuple[Stale, ...]:
    """Return the differences between `profiles` and the `present` machine, by kind.

    Copies count once. If the host was checked, a profile with the speed of its own host is
    converted to this one, and is not stale.
    """
    jobs = {profile.name: profile for profile in profiles}
    made = {name: _kinds(job.provenance) for name, job in jobs.items()}
    differences = []
    for what, here in _kinds(present).items():
        other = {
            name: str(kinds[what])
            for name, kinds in made.items()
            if here is not None
            and kinds[what] not in (here, None)
            and not (what == "host" and host_known and jobs[name].host_check_s)
            and not (what == "torch" and jobs[name].workload.script)  # not that of this environment
        }
        if other and here is not None:
            differences.append(
                Stale(
                    what=what,
                    jobs=tuple(other),
                    jobs_in_all=len(jobs),
                    profiled=tuple(sorted({*other.values()})),
                    present=here,
                )
            )
    return tuple(differences)


def unsteady_profiles(profiles: Sequence[Profile]) -> tuple[str, ...]:
    """Return lines about those of `profiles` whose windows or moments disagree, each once."""
    behind = {profile.name: profile.unsteady for profile in profiles}
    varied = tuple(
        f"{name}'s own steps varied by {in_percent(share)} while it was profiled: measure it again"
        for name, share in behind.items()
        if share is not None
    )
    odd = dict.fromkeys(
        f"{profile.name}: {line}" for profile in profiles for line in odd_moments(profile.moments)
    )
    return (*varied, *odd)


def odd_ones(measured: Sequence[Provenance]) -> str | None:
    """Count the records made with another driver or torch than most; None if all agree."""
    kinds = map(_kinds, measured)
    made_with = Counter(
        f"driver {each['driver'] or 'unknown'} and torch {each['torch'] or 'unknown'}"
        for each in kinds
    )
    if len(made_with) < 2:
        return None
    (most, _), *others = made_with.most_common()
    listed = "; ".join(f"{count} with {other}" for other, count in others)
    return f"most were measured with {most}, {listed}"


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
    text = (
        f"{_ORDINALS[len(steps)]} moment: {', '.join(steps)} and {last} ms a step; the mean counts"
    )
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


def _changes(before: Profile, now: Profile) -> Iterator[str]:
    """Yield what makes `now` no further moment of `before`."""
    old, new = before.provenance, now.provenance
    if old is None or new is None or before.is_estimate:
        yield "it was not measured"
        return
    for name, words in _MACHINE.items():
        if (was := getattr(old, name)) != (is_now := getattr(new, name)):
            yield f"its {words} was {was or 'unknown'}, and is {is_now or 'unknown'} now"
    if old.recipes != new.recipes:
        yield "the code of the workload has changed"
    for name in (each.name for each in fields(Workload)):
        changed = getattr(before.workload, name) != getattr(now.workload, name)
        if changed and name != "examples_per_epoch":  # which is not of a step
            yield f"the workload's {name.replace('_', ' ')} has changed"
    if not _same_kernels(before.trace, now.trace):
        yield "the kernels of a step have changed"
    if before.gpu_s and now.gpu_s and abs(log(now.gpu_s / before.gpu_s)) > _SAME_WORK:
        yield (
            f"kernels took {1000.0 * before.gpu_s:.2f} ms a step, and take "
            f"{1000.0 * now.gpu_s:.2f} ms now"
        )


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
