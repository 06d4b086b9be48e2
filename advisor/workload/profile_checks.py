"""Checks and doubts of profiles: their GPU, power and memory, another machine, unequal paces."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from advisor.errors import InvalidInput, UnknownName, counted, with_article
from advisor.hardware.gpus import Gpu, gpu_meant, known_gpus
from advisor.hardware.machine import Provenance
from advisor.workload.catalogue import how_to_measure
from advisor.workload.moments import odd_moments
from advisor.workload.profile import Profile

# Boards may be set a little above the limit of their model, and their sensors are some per cent
# off; a larger number is of another unit, or of another GPU.
_MOST_ABOVE_LIMIT = 1.15
# Of the limit: half of what an H200 or H100 draws while nothing runs, since sensors are off and
# other models idle at less. A smaller number is of another unit, or of another GPU.
_LEAST_OF_LIMIT = 0.05


def check_key(profile: Profile, where: str) -> Profile:
    """`profile`, whose GPU is a key of the catalogue, or an unknown one.

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
    """`profile`, which was taken on `gpu`; measured power is not checked.

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
        f"{profile.name}: power_w is {power_w:g}, and {with_article(gpu.key)} draws {draws}. Give "
        f"the mean watts of that one GPU while the job runs, between idle and {limit_w:g}, as "
        f"nvidia-smi shows them; if they are not known, leave --power-w out, in a file null."
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
                    f"{profile.name} holds {share:.0%} of the memory of {with_article(card.key)}, "
                    f"as {framework} does from its start, needed or not. If it is {framework}, set "
                    f"{setting}, and read the memory again"
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
    odd = dict.fromkeys(
        f"{profile.name}: {line}" for profile in profiles for line in odd_moments(profile.moments)
    )
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
