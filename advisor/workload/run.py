"""Files of real runs, with what each tenant did in them, and of exported plans."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil
from typing import Annotated, Literal

from advisor.errors import InvalidInput
from advisor.files import units
from advisor.hardware.machine import Counters, Provenance
from advisor.sharing import parse_sharing
from advisor.sharing.groups import running_together
from advisor.workload.job import Job
from advisor.workload.profile import Memory, Profile, Window, median_step_s
from advisor.workload.spec import Script, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """The time that whole jobs took together; columns have shape (tenants,), in the run's order.

    Tenants that ran at the same time are a group. A group starts when the one before it has ended
    and MPS is set for it; the start of its processes is left out.

    Attributes:
        steps: Steps that each tenant had to do.
        began_s: When its group started, seconds after the first group did.
        ended_s: When its last step ended on the device, on the same clock; None if it ended early.
        pauses_s: Seconds to set MPS before each group but the first, shape (groups - 1,).
        energy_j: Energy of the whole GPU while groups ran; None without an energy counter.
    """

    steps: tuple[units.Positive, ...]
    began_s: tuple[units.Seconds, ...]
    ended_s: tuple[units.Seconds | None, ...]
    pauses_s: tuple[units.Seconds, ...]
    energy_j: units.Joules | None

    def __post_init__(self) -> None:
        if not len(self.steps) == len(self.began_s) == len(self.ended_s):
            raise InvalidInput("steps, began_s and ended_s have an entry for each tenant")
        pairs = zip(self.began_s, self.ended_s, strict=True)
        if any(ended is not None and ended <= began for began, ended in pairs):
            raise InvalidInput("a tenant ends after it began")

    @property
    def makespan_s(self) -> float:
        """Seconds until the last tenant ended, of those that did."""
        return max((each for each in self.ended_s if each is not None), default=0.0)


Outcome = Literal["ok", "out-of-memory", "failed"]
Purpose = Literal[
    "solo", "drawn", "chosen", "repeat", "validation", "control", "memory", "completion"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """One job of a shared run.

    Attributes:
        outcome: ``"ok"``, or how it ended before the window did, with its message in `detail`.
        windows: Its steps, shape (windows,); empty unless `outcome` is ``"ok"``. Those of whole
            jobs are cut where one of the jobs that run at the same time ends.
        memory: None if it ended before it had run.
        cores: Host cores it was pinned to.
        sms: SMs that its CUDA context could use, as reported; None without a GPU.
        host_check_s: Seconds of the host check on its core, with all tenants' checks at once, mean
            of before and after the windows; None in older runs.
    """

    workload: Workload
    outcome: Outcome
    detail: str | None
    windows: tuple[Window, ...]
    memory: Memory | None
    cores: tuple[int, ...]
    sms: units.Sms | None
    host_check_s: units.Seconds | None = None

    def __post_init__(self) -> None:
        if (self.outcome == "ok") != bool(self.windows):
            raise InvalidInput(f"{self.workload.name}: a tenant has windows if and only if it ran")

    @property
    def step_s(self) -> float:
        """Seconds of a step together with the others; only for a tenant that ran."""
        return median_step_s(self.windows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Tenants that ran together on one GPU, or one that ran alone.

    Attributes:
        id: Unique among a GPU's runs.
        gpu: Catalogue key, or ``"cpu"``.
        sharing: Notation for `advisor.sharing.parse_sharing`; a solo run is ``"naive"``.
        purpose: ``"drawn"`` by a fixed seed, ``"chosen"``, ``"solo"`` between others, ``"repeat"``
            of another with fresh workers, ``"validation"`` of advice, ``"control"`` of what other
            GPUs of the host do to a run: never fitted or scored; ``"memory"``: whether tenants fit
            on a smaller card, with windows too short for pace; ``"completion"``: how long whole
            jobs take that end one after another: scored by that alone.
        repeats: Id of the run that this one repeats.
        mps_clients: Tenants the MPS server listed as its clients in the window.
        power_w: Mean power of the whole GPU in the window, as `counters`; never of one tenant.
        capacity_mib: Size of that smaller card; None, as `free_mib`, for another purpose.
        free_mib: Device memory free there for tenants, and for the MPS server under MPS.
        completion: When each tenant was done, with purpose ``"completion"``; None for others.
    """

    id: str
    gpu: str
    sharing: str
    purpose: Purpose
    repeats: str | None
    tenants: tuple[Tenant, ...]
    mps_clients: units.Count
    power_w: units.Watts | None
    counters: Counters | None
    provenance: Provenance
    capacity_mib: Annotated[int, units.Within(0, 2**24)] | None = None
    free_mib: units.Mib | None = None
    completion: Completion | None = None
    schema: units.Schema = 1

    def __post_init__(self) -> None:
        sharing = parse_sharing(self.sharing)
        if not self.tenants:
            raise InvalidInput(f"run {self.id}: a run has at least one tenant")
        if (self.purpose == "repeat") != (self.repeats is not None):
            raise InvalidInput(f"run {self.id}: a repeat names the run that it repeats")
        smaller = {self.capacity_mib is not None, self.free_mib is not None}
        if smaller != {self.purpose == "memory"}:
            raise InvalidInput(
                f"run {self.id}: capacity_mib and free_mib are known if and only if its purpose "
                f"is memory"
            )
        done = self.completion
        if (done is not None) != (self.purpose == "completion"):
            raise InvalidInput(
                f"run {self.id}: its tenants have ends if and only if its purpose is completion"
            )
        if done is None:
            return
        if [each.outcome == "ok" for each in self.tenants] != [e is not None for e in done.ended_s]:
            raise InvalidInput(f"run {self.id}: a tenant has an end if and only if it ran to it")
        groups = len(running_together(sharing, len(self.tenants)))
        if len(done.pauses_s) != groups - 1:
            raise InvalidInput(
                f"run {self.id}: between {groups} groups are {groups - 1} pauses, got "
                f"{len(done.pauses_s)}"
            )

    @property
    def names(self) -> tuple[str, ...]:
        """Name of each tenant's workload."""
        return tuple(tenant.workload.name for tenant in self.tenants)

    @property
    def ok(self) -> bool:
        """True if every tenant ran to the end of the window."""
        return all(tenant.outcome == "ok" for tenant in self.tenants)

    @property
    def shows_pace(self) -> bool:
        """True if models may be fitted to it: all tenants ran to the end of a normal run."""
        return self.ok and self.purpose not in ("control", "memory", "completion")


@dataclass(frozen=True, slots=True)
class StepRange:
    """A predicted step in seconds: its median, and the ends of the interval around it."""

    p05: float
    p50: float
    p95: float

    def __post_init__(self) -> None:
        if not 0 < self.p05 <= self.p50 <= self.p95 < float("inf"):
            raise InvalidInput(f"a predicted step is 0 < p05 <= p50 <= p95 seconds, got {self}")


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentedJob:
    """One job of a plan.

    Attributes:
        number: Number from 1 among all jobs of the file; None: its position in its plan.
        profile: Position in the file's `profiles`, from 0; None: an earlier version wrote the file,
            and the profile is found by the job's name.
        script: Script that starts it; None: that of its workload.
        step_s: Predicted step with its co-located jobs; None: not in the file.
    """

    job: str
    examples_per_epoch: int | None
    epochs: float
    validation_s: float
    checkpoint_s: float
    user: str | None
    data_parallel: bool
    isolated: bool
    mps_limit_percent: float | None
    memory_cap_mib: int | None
    protect: float | None = None
    script: Script | None = None
    step_s: StepRange | None = None
    number: int | None = None
    profile: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentedPlan:
    """The plan of one GPU: how its jobs share, in the notation of `advisor.sharing.parse_sharing`.

    Attributes:
        sharing: Sharing, with the positions of the jobs in `jobs` from 1.
        gpu: Catalogue key of the GPU; None: that of the file.
        host: Number of the GPU's host, from 0.
        device: Index of the GPU on its host.
        estimated_from: Keys of the other GPUs from which the plan is predicted; None: none.
    """

    rank: int
    sharing: str
    power_cap_w: float | None
    note: str | None
    jobs: tuple[DocumentedJob, ...]
    estimated_from: str | None = None
    gpu: str | None = None
    host: int = 0
    device: int = 0

    @property
    def numbers(self) -> tuple[int, ...]:
        """Number of each of its jobs among all jobs of the file."""
        return tuple(job.number or at for at, job in enumerate(self.jobs, start=1))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanDocument:
    """A whole file, with the plan of one GPU or of several.

    Attributes:
        gpu: Catalogue key of the first plan's GPU.
        workloads: Workloads by the jobs' names; see `workloads_by_name`.
        plans: Plans; a job that takes several GPUs is in each of theirs, with the same number.
        profiles: Profiles for predictions of the jobs, from when the file was written.
    """

    schema: units.Schema
    gpu: str
    objective: None
    workloads: dict[str, Workload]
    plans: tuple[DocumentedPlan, ...]
    profiles: tuple[Profile, ...] = ()

    def __post_init__(self) -> None:
        if not self.plans:
            raise InvalidInput("plans: a file has the plan of one GPU at least")
        places = {(plan.host, plan.device) for plan in self.plans}
        if len(places) < len(self.plans) or min(map(min, places)) < 0:
            raise InvalidInput("plans: each has a host and a device of its own, which count from 0")
        for plan in self.plans:
            if any(number <= before for before, number in pairwise((0, *plan.numbers))):
                raise InvalidInput(
                    f"plans: the numbers of its jobs count from 1 and increase, got "
                    f"{list(plan.numbers)}"
                )
            for job in plan.jobs:
                if job.profile is not None and not 0 <= job.profile < len(self.profiles):
                    raise InvalidInput(
                        f"{job.job}: profile {job.profile} is not among the {len(self.profiles)} "
                        f"there"
                    )

    def workload_of(self, job: DocumentedJob) -> Workload:
        """Return what `job` trains; its script may start another."""
        return (
            self.workloads[job.job] if job.profile is None else self.profiles[job.profile].workload
        )


def profile_positions(jobs: Iterable[Job]) -> dict[Profile, int]:
    """Return the profiles of `jobs`, each once, with their positions among `embedded`."""
    profiles = dict.fromkeys(job.profile for job in jobs)
    return {profile: at for at, profile in enumerate(profiles)}


def embedded(profiles: Iterable[Profile]) -> tuple[Profile, ...]:
    """Return `profiles` for a file in which each job names its script, so they need none."""
    return tuple(
        each
        if each.workload.source == "script"  # which has one always
        else replace(each, workload=replace(each.workload, script=None))
        for each in profiles
    )


def planned_steps(
    planned: DocumentedJob, workload: Workload, most_steps: int | None = None
) -> int | None:
    """Return the training steps of a job of a plan; None if the job decides itself when it ends.

    A job of the zoo does `most_steps` at most; None: as planned.
    """
    script = planned.script or workload.script
    steps = None
    if planned.examples_per_epoch and (script is None or script.by_steps):
        a_pass = min(-(-planned.examples_per_epoch // workload.batch), units.MOST_COUNT)
        steps = max(1, ceil(planned.epochs * a_pass))
    if most_steps is not None and script is None:
        steps = min(most_steps, steps or most_steps)
    return steps


def workloads_by_name(workloads: Iterable[Workload]) -> dict[str, Workload]:
    """Return the workload of each name, without a script where one of that name has none.

    Jobs of one name may be started by different scripts, which each of them names: a job without
    one must not be started by another's.
    """
    by_name: dict[str, Workload] = {}
    for workload in workloads:
        if workload.name not in by_name or workload.script is None:
            by_name[workload.name] = workload
    return by_name
