"""A GPU by a sweep of operators: how long each took, and the rates that it attained.

A shape is written as the sweep's files have it, ``x`` between its numbers:

- ``linear`` and ``bmm``: BxMxNxK, a product of (B, M, N) by (N, K), or by (B, N, K)
- ``conv``: batch x channels in x channels out x kernel x side of the image x stride x padding
- ``ln``, ``softmax``, ``gelu``, ``add``, ``copy``: rows x columns; ``empty``: 1, a kernel that does
  nothing
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from advisor.errors import InvalidInput, counted
from advisor.workload.catalogue import how_to_measure
from advisor.workload.moments import odd_moments
from advisor.workload.profile import Profile, Provenance
from advisor.workload.reading import (
    DAY_S,
    LEAST_STEP_S,
    MOST_CORES,
    MOST_SMS,
    check,
    check_number,
    check_schema,
)

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


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCheck:
    """The speed of a host at one moment.

    Attributes:
        check_s: Seconds of the fixed piece of host work (`advisor.measure.host_check`), mean over
            the processes that repeated it at once.
        busy: Number of these processes; they floated over `cores` cores.
        host: Name of the machine.
        made_at: Seconds of the wall clock.
    """

    check_s: float
    busy: int
    cores: int
    host: str
    made_at: float

    def __post_init__(self) -> None:
        check_number("check_s", self.check_s, DAY_S, LEAST_STEP_S)
        check_number("busy processes of a host check", self.busy, MOST_CORES, 1)


@dataclass(frozen=True, slots=True)
class LimitedContext:
    """Size of the CUDA context of an MPS client that may use `sms` SMs."""

    limit_pct: float
    sms: int
    context_mib: float

    def __post_init__(self) -> None:
        check(self, ("limit_pct", "context_mib"))
        check(self, ("sms",), MOST_SMS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contexts:
    """Device memory beyond tensors, MiB.

    Attributes:
        driver_mib: Memory in use while nothing runs on the GPU.
        plain_mib: CUDA context of a small network in training; None if the driver does not say.
        mps_mib: The same for an MPS client; None, as what follows, if MPS does not run here.
        sms: SMs that a client without a limit may use.
        limited: Contexts of clients with limits.
        mps_server_mib: Memory of the MPS server.
    """

    driver_mib: float
    plain_mib: float | None
    mps_mib: float | None
    sms: int | None
    limited: tuple[LimitedContext, ...]
    mps_server_mib: float | None

    def __post_init__(self) -> None:
        check(self, ("driver_mib", "plain_mib", "mps_mib", "mps_server_mib"))
        check(self, ("sms",), MOST_SMS)

    @property
    def per_sm_mib(self) -> float | None:
        """MiB saved for each SM that a limit takes away; None if no limit was tried."""
        if self.mps_mib is None or self.sms is None:
            return None
        saved = [
            (self.mps_mib - each.context_mib) / (self.sms - each.sms)
            for each in self.limited
            if each.sms < self.sms
        ]
        return max(0.0, median(saved)) if saved else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Switching:
    """The cost of turns between two processes that each repeat one kernel on the GPU.

    Attributes:
        kernel_s: Seconds of the kernel alone.
        overhead: Share of the time in which neither process advances; noise can bring it slightly
            below 0.
        slice_s: How long one keeps the GPU; None if the kernels were too long to show it.
        switch_s: Seconds of a change from one to the other; None as `slice_s`.
    """

    kernel_s: float
    overhead: float
    slice_s: float | None
    switch_s: float | None

    def __post_init__(self) -> None:
        check(self, ("kernel_s", "slice_s"))
        if not -1 < self.overhead < 1:
            raise InvalidInput(f"overhead is a share below 1, got {self.overhead}")
        if self.switch_s is not None:
            check_number("switch_s", self.switch_s, DAY_S, -DAY_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """The calibration of one machine.

    Attributes:
        gpu: Catalogue key.
        switching: For each kernel tried.
        idle_power_w: Least power while nothing ran; None if not metered.
        provenance: Clocks are those under the kernels of `switching`.
    """

    gpu: str
    contexts: Contexts
    switching: tuple[Switching, ...]
    idle_power_w: float | None
    provenance: Provenance
    schema: int = 1

    def __post_init__(self) -> None:
        check_schema(self.schema)
        check(self, ("idle_power_w",))
