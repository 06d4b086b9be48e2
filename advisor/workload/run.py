"""The record of a real run: what each tenant did in the windows in which all of them ran."""

from dataclasses import dataclass
from typing import Annotated, Literal

from advisor.errors import InvalidInput
from advisor.files.reading import (
    Count,
    Joules,
    Mib,
    Positive,
    Seconds,
    Sms,
    Watts,
    Within,
    check_schema,
)
from advisor.hardware.machine import Counters, Provenance
from advisor.sharing import parse_sharing
from advisor.sharing.groups import running_together
from advisor.workload.profile import Memory, Window, median_step_s
from advisor.workload.spec import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """The time that whole jobs took together; columns have shape (tenants,), in the run's order.

    Tenants that ran at the same time are a group. In these times a group starts when the one
    before it has ended and MPS is set for it: that its processes start and load is left out, as it
    is for the first group.

    Attributes:
        steps: Steps that each tenant had to do.
        began_s: When its group started, seconds after the first group did.
        ended_s: When its last step ended on the device, on the same clock; None if it ended early.
        pauses_s: Seconds to start or stop MPS, or to check that it is off, before each group but
            the first, shape (groups - 1,).
        energy_j: Of the whole GPU while groups ran; None without an energy counter.
    """

    steps: tuple[Positive, ...]
    began_s: tuple[Seconds, ...]
    ended_s: tuple[Seconds | None, ...]
    pauses_s: tuple[Seconds, ...]
    energy_j: Joules | None

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


Outcome = Literal["ok", "out-of-memory", "died"]
Purpose = Literal[
    "solo", "drawn", "chosen", "repeat", "validation", "control", "memory", "completion"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """One job of a shared run.

    Attributes:
        outcome: ``"ok"``, or how it ended before the window did.
        detail: Its message when it ended early; None if it did not.
        windows: Its steps in each window, shape (windows,); empty unless `outcome` is ``"ok"``. Of
            whole jobs, windows are cut where one of those that run at the same time ends.
        memory: None if it ended before it had run.
        cores: Host cores it was pinned to.
        sms: SMs that its CUDA context could use, as reported; None without a GPU.
        host_check_s: Seconds of the host check on its core, with all tenants' checks at once, mean
            of before and after the windows; None in runs older than that check.
    """

    workload: Workload
    outcome: Outcome
    detail: str | None
    windows: tuple[Window, ...]
    memory: Memory | None
    cores: tuple[int, ...]
    sms: Sms | None
    host_check_s: Seconds | None = None

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
        sharing: As `advisor.sharing.parse_sharing` reads it; a solo run is ``"naive"``.
        purpose: ``"drawn"`` by a seed fixed beforehand, ``"chosen"`` by a person or a model,
            ``"solo"`` between others, ``"repeat"`` of another with fresh workers,
            ``"validation"`` of advice, ``"control"`` of what the other GPUs of the host do to
            a run: never fitted, never scored; ``"memory"``: whether the tenants fit on a
            smaller card, with windows too short to measure pace; or ``"completion"``: how long
            whole jobs take that end one after another: scored by that alone.
        repeats: Id of the run that this one repeats.
        mps_clients: Tenants the MPS server listed as its clients in the window.
        power_w: Mean power of the whole GPU in the window.
        counters: Of the whole GPU in the window, never of one tenant.
        capacity_mib: Size of the card that this one was made to look like, with purpose
            ``"memory"``; None if tenants had all of it.
        free_mib: Device memory free for tenants, and the MPS server under MPS, on that smaller
            card; None as `capacity_mib`.
        completion: When each tenant was done, with purpose ``"completion"``; None for others.
    """

    id: str
    gpu: str
    sharing: str
    purpose: Purpose
    repeats: str | None
    tenants: tuple[Tenant, ...]
    mps_clients: Count
    power_w: Watts | None
    counters: Counters | None
    provenance: Provenance
    capacity_mib: Annotated[int, Within(0, 2**24)] | None = None
    free_mib: Mib | None = None
    completion: Completion | None = None
    schema: int = 1

    def __post_init__(self) -> None:
        check_schema(self.schema)
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
                f"run {self.id}: it says when its tenants were done if and only if its purpose is "
                f"completion"
            )
        if done is None:
            return
        if [each.outcome == "ok" for each in self.tenants] != [e is not None for e in done.ended_s]:
            raise InvalidInput(f"run {self.id}: a tenant has an end if and only if it ran to it")
        groups = len(running_together(parse_sharing(self.sharing), len(self.tenants)))
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
