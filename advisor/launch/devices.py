"""Plans for several GPUs of one host, applied at once: each in a shell of its own."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from advisor.launch import shell
from advisor.launch.commands import ORDER, body, commands, commands_on, head
from advisor.launch.launch_plan import LaunchPartition, LaunchPlan, Stage, Start, launch_plan
from advisor.plan.candidates import chosen_for
from advisor.plan.recommendation import Plan, Recommendation


def side_by_side(
    plans: Mapping[int, LaunchPlan], jobs: Mapping[int, Sequence[int]]
) -> tuple[LaunchPlan, ...]:
    """`plans` with devices, and with host cores and partition numbers that no two of them share.

    Args:
        plans: By the index of the GPU; each alone on its host, with its jobs numbered from 1.
        jobs: Numbers of the jobs of each plan among all, by the same index.
    """
    moved: list[LaunchPlan] = []
    shift = _Shift(0, 0, 0, ())
    for device, plan in plans.items():
        shift = replace(shift, device=device, jobs=tuple(jobs[device]))
        moved.append(replace(plan, stages=tuple(map(shift.stage, plan.stages))))
        ends = (start.cores[1] + 1 for start in moved[-1].starts if start.cores)
        taken = max(ends, default=shift.cores)
        shift = replace(shift, partitions=shift.partitions + len(plan.partitions), cores=taken)
    return tuple(moved)


def commands_at_once(plans: Sequence[LaunchPlan]) -> tuple[str, ...]:
    """Lines that apply `plans`, as `side_by_side` has them, and wait for all."""
    heads = dict.fromkeys(line for plan in plans for line in head(plan))
    shells = (line for plan in plans for line in _in_own_shell(plan))
    inside = (*shell.guard(()), ORDER, *shells, "ended", shell.STATUS)
    return (*heads, "(", *(f"  {line}" for line in inside), ")")


def _in_own_shell(plan: LaunchPlan) -> Iterator[str]:
    numbers = ", ".join(str(start.number) for start in plan.starts)
    yield f"(  # GPU {plan.device}: job {numbers}"
    yield from (f"  {line}" for line in body(plan))
    yield ') & jobs="$jobs $!"'


@dataclass(frozen=True, slots=True)
class _Shift:
    """Where a plan lies: how many partitions and cores others have, and what it is called."""

    device: int
    partitions: int
    cores: int
    jobs: tuple[int, ...]

    def stage(self, stage: Stage) -> Stage:
        return Stage(tuple(map(self._room, stage.partitions)))

    def _room(self, part: LaunchPartition) -> LaunchPartition:
        return replace(
            part,
            number=self.partitions + part.number,
            starts=tuple(map(self._start, part.starts)),
            device=self.device,
        )

    def _start(self, start: Start) -> Start:
        cores = start.cores and (self.cores + start.cores[0], self.cores + start.cores[1])
        return replace(start, number=self.jobs[start.number - 1], cores=cores)


def with_commands(advised: Recommendation, device: str | None = None) -> Recommendation:
    """`advised`, with the commands of each plan for the GPU `device`.

    Args:
        advised: For any GPU of its model.
        device: Index as ``nvidia-smi`` counts, or UUID; None: the host's first.

    Raises:
        InvalidInput: It is neither.
    """
    plans = tuple(_with_commands(advised, plan, device) for plan in advised.plans)
    return replace(advised, plans=plans, serial=plans[advised.serial.rank - 1])


def _with_commands(advised: Recommendation, plan: Plan, device: str | None) -> Plan:
    launched = launch_plan(chosen_for(advised.jobs, plan), advised.gpu, plan.prediction)
    lines = commands(launched) if device is None else commands_on(launched, device)
    return replace(plan, commands=lines)
