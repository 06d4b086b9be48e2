"""Finds profiles that are stale (other driver, torch or host) or unsteady (a noisy minute)."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from advisor.english import counted
from advisor.workload.measured import Provenance
from advisor.workload.named_workloads import how_to_measure
from advisor.workload.profile import Profile

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
        what: What differs: major version of the driver, minor one of torch, or CPU and cores of the
            host.
        jobs: Names of their profiles.
        jobs_in_all: Number of different jobs asked about.
        profiled: Its values in the profiles; several if these differ.
        present: Its value on this machine.
    """

    what: What
    jobs: tuple[str, ...]
    jobs_in_all: int
    profiled: tuple[str, ...]
    present: str

    def __str__(self) -> str:
        or_else = ", or take them to this host: `advisor calibrate`" * (self.what == "host")
        return (
            f"{len(self.jobs)} of {counted(self.jobs_in_all, 'job')} ({', '.join(self.jobs)}): "
            f"profiled with {self.what} {' and '.join(self.profiled)}, and here it is "
            f"{self.present}. To measure again: {how_to_measure(self.jobs)}{or_else}."
        )


def present_of(measured: Provenance | None) -> Present:
    """The machine on which `measured` was made; unknown for bare numbers."""
    if measured is None:
        return Present()
    return Present(
        driver=measured.driver,
        torch=measured.torch,
        host_cpu=measured.host_cpu,
        host_cores=measured.host_cores,
    )


def driver_major(version: str | None) -> str | None:
    """E.g. ``"580"``."""
    return version and version.split(".")[0]


def torch_minor(version: str | None) -> str | None:
    """E.g. ``"2.11"``."""
    return version and ".".join(version.split("+")[0].split(".")[:2])


def _host(where: Present) -> str | None:
    if where.host_cpu is None or where.host_cores is None:
        return None
    return f"{where.host_cpu}, {where.host_cores} cores"


_KINDS: dict[What, Callable[[Present], str | None]] = {
    "driver": lambda where: driver_major(where.driver),
    "torch": lambda where: torch_minor(where.torch),
    "host": _host,
}


def stale_profiles(
    profiles: Iterable[Profile], present: Present, *, host_known: bool = False
) -> tuple[Stale, ...]:
    """The differences between `profiles` and the `present` machine, by kind.

    Args:
        profiles: Of jobs; copies count once.
        present: This machine.
        host_known: Whether this host was calibrated: then a profile with the speed of its own host
            is converted to this host, and is not stale.
    """
    each = list({profile.name: profile for profile in profiles}.values())
    found = []
    for what, kind_of in _KINDS.items():
        if (here := kind_of(present)) is None:
            continue
        other = [
            profile
            for profile in each
            if kind_of(present_of(profile.provenance)) not in (here, None)
            and not (what == "host" and host_known and profile.host_check_s)
        ]
        if other:
            jobs = tuple(profile.name for profile in other)
            profiled = tuple(sorted({str(kind_of(present_of(each.provenance))) for each in other}))
            found.append(
                Stale(what=what, jobs=jobs, jobs_in_all=len(each), profiled=profiled, present=here)
            )
    return tuple(found)


def unsteady_profiles(profiles: Iterable[Profile]) -> tuple[str, ...]:
    """A line for each of `profiles` whose windows disagree; copies count once."""
    behind = {each.name: each.unsteady for each in profiles}
    return tuple(
        f"{name}'s own steps varied by {share:.0%} when it was profiled, which widens its interval"
        for name, share in behind.items() if share is not None
    )  # fmt: skip


def odd_ones(measured: Sequence[Provenance]) -> str | None:
    """How many records were made with another driver or torch than most; None if all agree."""
    made_with = Counter((driver_major(one.driver), torch_minor(one.torch)) for one in measured)
    if len(made_with) < 2:
        return None
    (most, _), *others = made_with.most_common()
    listed = "; ".join(f"{count} with {_pair(pair)}" for pair, count in others)
    return f"most were measured with {_pair(most)}, {listed}"


def _pair(pair: tuple[str | None, str | None]) -> str:
    return f"driver {pair[0] or 'unknown'} and torch {pair[1] or 'unknown'}"
