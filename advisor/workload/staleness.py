"""Doubts about profiles: another driver, torch or host, or paces that disagree."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from advisor.errors import counted
from advisor.workload.catalogue import how_to_measure
from advisor.workload.moments import odd_moments
from advisor.workload.profile import Profile, Provenance

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
        or_else = ", or convert them to this host: --check-host" * (self.what == "host")
        return (
            f"{len(self.jobs)} of {counted(self.jobs_in_all, 'job')} ({', '.join(self.jobs)}): "
            f"profiled with {self.what} {' and '.join(self.profiled)}, and here it is "
            f"{self.present}. To measure again: {how_to_measure(self.jobs)}{or_else}."
        )


def present_of(measured: Provenance | None) -> Present:
    """Return the machine on which `measured` was made; unknown for bare numbers."""
    if measured is None:
        return Present()
    return Present(
        driver=measured.driver,
        torch=measured.torch,
        host_cpu=measured.host_cpu,
        host_cores=measured.host_cores,
    )


def _kinds(where: Present) -> dict[What, str | None]:
    """Versions on which profiles depend, e.g. ``"580"`` and ``"2.11"``, and the host."""
    known_host = where.host_cpu is not None and where.host_cores is not None
    return {
        "driver": where.driver and where.driver.split(".")[0],
        "torch": where.torch and ".".join(where.torch.split("+")[0].split(".")[:2]),
        "host": f"{where.host_cpu}, {where.host_cores} cores" if known_host else None,
    }


def stale_profiles(
    profiles: Iterable[Profile], present: Present, *, host_known: bool = False
) -> tuple[Stale, ...]:
    """Return the differences between `profiles` and the `present` machine, by kind.

    Copies count once. If the host was checked, a profile with the speed of its own host is
    converted to this one, and is not stale.
    """
    jobs = {profile.name: profile for profile in profiles}
    made = {name: _kinds(present_of(job.provenance)) for name, job in jobs.items()}
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
        f"{name}'s own steps varied by {share:.0%} when it was profiled: measure it again"
        for name, share in behind.items()
        if share is not None
    )
    odd = dict.fromkeys(line for profile in profiles for line in odd_moments(profile))
    return (*varied, *odd)


def odd_ones(measured: Sequence[Provenance]) -> str | None:
    """Count the records made with another driver or torch than most; None if all agree."""
    kinds = [_kinds(present_of(one)) for one in measured]
    made_with = Counter(
        f"driver {each['driver'] or 'unknown'} and torch {each['torch'] or 'unknown'}"
        for each in kinds
    )
    if len(made_with) < 2:
        return None
    (most, _), *others = made_with.most_common()
    listed = "; ".join(f"{count} with {other}" for other, count in others)
    return f"most were measured with {most}, {listed}"
