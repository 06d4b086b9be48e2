"""Runs as a user or a campaign plans them, and what each measures: mixes or runs to completion."""

from dataclasses import dataclass

from advisor.errors import InvalidInput
from advisor.sharing import Concurrent, Naive, Sharing, parse_sharing
from advisor.sharing.traversal import check_count, restricted, running_together, together
from advisor.workload.run import Purpose
from advisor.workload.spec import Workload

# More tenants than are useful on any GPU, and few enough to start.
_MOST_WORKLOADS = 48


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRun:
    """Workloads to run together, as a user or a campaign asked for.

    Attributes:
        id: Becomes the run's; ``ID.1``, ``ID.2``... where a serial plan has several workloads.
        sharing: In the notation of `advisor.sharing.parse_sharing`.
        purpose: See `advisor.workload.run.Run`.
        repeats: Id of the run that this one repeats, with purpose ``"repeat"``.
        capacity_mib: Size of the card that the GPU is made to look like, with purpose ``"memory"``.
        steps: Steps of each workload, with purpose ``"completion"``: then all of them run to their
            end, also serially and in phases.
        workloads: In the order of the limits in `sharing`.
    """

    id: str
    sharing: str
    purpose: Purpose
    repeats: str | None = None
    capacity_mib: int | None = None
    steps: tuple[int, ...] | None = None
    workloads: tuple[Workload, ...]

    def __post_init__(self) -> None:
        if not self.id:
            raise InvalidInput("a plan needs an id, for --resume and for repeats")
        if not 1 <= len(self.workloads) <= _MOST_WORKLOADS:
            raise InvalidInput(
                f"a plan has 1 to {_MOST_WORKLOADS} workloads, got {len(self.workloads)}"
            )
        if (self.purpose == "repeat") != (self.repeats is not None):
            raise InvalidInput('"repeats" names a run if and only if purpose is "repeat"')
        if (self.purpose == "memory") != (self.capacity_mib is not None):
            raise InvalidInput('a "capacity_mib" is given if and only if purpose is "memory"')
        if self.capacity_mib is not None and self.capacity_mib < 1:
            raise InvalidInput(f"a card has at least 1 MiB, got {self.capacity_mib}")
        for each in self.workloads:
            each.check_startable()
            self._check_script(each)
        self._check_steps()
        self._check_sharing()

    def _check_script(self, workload: Workload) -> None:
        script = workload.script
        if script is None or script.by_steps:
            return
        if self.steps is not None:
            raise InvalidInput(
                f"{workload.name}: its steps are not counted, so its pace among others cannot be "
                f"measured. Leave it out here: `advisor run` runs it"
            )

    def _check_steps(self) -> None:
        if (self.purpose == "completion") != (self.steps is not None):
            raise InvalidInput('"steps" are given if and only if purpose is "completion"')
        steps = self.steps or (1,) * len(self.workloads)
        if len(steps) != len(self.workloads):
            raise InvalidInput(f"{len(steps)} numbers of steps for {len(self.workloads)} workloads")
        if any(type(each) is not int or each < 1 for each in steps):
            raise InvalidInput(f"steps are whole numbers from 1, got {list(steps)}")

    def _check_sharing(self) -> None:
        sharing = parse_sharing(self.sharing)
        if sharing.instances:
            raise InvalidInput(
                "MIG plans cannot be run: instances are not created here. Run the others"
            )
        if sharing.mode == "phases" and self.steps is None:
            raise InvalidInput(f"{sharing} is several runs: plan each group as one, or give steps")
        check_count(sharing, len(self.workloads))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedMix:
    """Workloads that run at the same time: what one `Run` records."""

    id: str
    sharing: Concurrent
    purpose: Purpose
    repeats: str | None
    capacity_mib: int | None = None
    workloads: tuple[Workload, ...]

    @property
    def run_groups(self) -> "tuple[RunGroup, ...]":
        """One group with all workloads."""
        return (RunGroup(tuple(range(len(self.workloads))), self),)


@dataclass(frozen=True, slots=True)
class RunGroup:
    """Those of a run's workloads that run at the same time.

    Attributes:
        jobs: Their positions in the run, from 0.
        mix: The workloads and how they share.
    """

    jobs: tuple[int, ...]
    mix: PlannedMix


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionRun:
    """Workloads that run until each has done its steps, in groups one after another.

    Attributes:
        steps: Steps of each workload, shape (workloads,).
    """

    id: str
    sharing: Sharing
    purpose: Purpose
    workloads: tuple[Workload, ...]
    steps: tuple[int, ...]

    @property
    def run_groups(self) -> tuple[RunGroup, ...]:
        """The groups in their order; in a serial plan each workload is a group."""
        groups = running_together(self.sharing, len(self.workloads))
        return tuple(RunGroup(tuple(sorted(jobs)), self._mix(sorted(jobs))) for jobs in groups)

    def _mix(self, jobs: list[int]) -> PlannedMix:
        sharing = restricted(self.sharing, jobs)
        return PlannedMix(
            id=self.id,
            sharing=together(sharing) or Naive(),  # alone in turn is naive
            purpose=self.purpose,
            repeats=None,
            workloads=tuple(self.workloads[job] for job in jobs),
        )


Measurable = PlannedMix | CompletionRun
"""What one `Run` records."""


def mixes_of(plan: PlannedRun) -> tuple[Measurable, ...]:
    """The runs of `plan`, one after another; a serial plan runs each distinct workload alone once.

    A plan with steps is one run.
    """
    sharing = parse_sharing(plan.sharing)
    if plan.steps is not None:
        return (CompletionRun(id=plan.id, sharing=sharing, purpose=plan.purpose,
                        workloads=plan.workloads, steps=plan.steps),)  # fmt: skip
    if (at_once := together(sharing)) is not None:
        return (_mix(plan, at_once, plan.workloads, ""),)
    alone = tuple(dict.fromkeys(plan.workloads))  # copies run alike
    suffixes = [""] if len(alone) == 1 else [f".{number}" for number in range(1, len(alone) + 1)]
    return tuple(
        _mix(plan, Naive(), (workload,), suffix)
        for workload, suffix in zip(alone, suffixes, strict=True)
    )


def _mix(
    plan: PlannedRun, sharing: Concurrent, workloads: tuple[Workload, ...], suffix: str
) -> PlannedMix:
    repeats = None if plan.repeats is None else plan.repeats + suffix
    return PlannedMix(
        id=plan.id + suffix, sharing=sharing, purpose=plan.purpose, repeats=repeats,
        capacity_mib=plan.capacity_mib, workloads=workloads,
    )  # fmt: skip
