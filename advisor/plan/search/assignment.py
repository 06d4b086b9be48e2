"""From sets of jobs in partitions to a sharing that names each job, at its batch size."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from advisor.plan.search.job_sets import Sets
from advisor.plan.search.partition_search import Assignment, Choice
from advisor.plan.search.partitions import Cut
from advisor.sharing import (
    Group,
    Hybrid,
    Part,
    Place,
    Serial,
    Sharing,
)
from advisor.sharing.traversal import in_turn


@dataclass(slots=True)
class JobNumbers:
    """Gives out the jobs of a state, copies in their order.

    Attributes:
        sets: That speak of them.
        free: Numbers from 1 of the jobs of each kind that have no place yet.
        batches: Examples a step of each job that has one.
    """

    sets: Sets
    free: list[list[int]]
    batches: dict[int, int] = field(default_factory=dict)

    def jobs(self, chosen: int) -> tuple[int, ...]:
        """Numbers of the jobs of a set, increasing."""
        found = []
        for variant in self.sets.tenants[chosen]:
            number = self.free[self.sets.kind_of[variant]].pop(0)
            self.batches[number] = self.sets.variants[variant].batch
            found.append(number)
        return tuple(sorted(found))

    def hybrid(self, assignment: Assignment) -> Hybrid:
        """The instances of `assignment` that hold jobs."""
        return Hybrid(tuple(self._places(assignment)))

    def group(self, choice: Choice) -> Group:
        """A set on the whole GPU; a job alone does not share it."""
        jobs = self.jobs(choice.chosen)
        return Group(jobs, choice.option.of(len(jobs)) if len(jobs) > 1 else Serial())

    def batches_of(self, chosen: Sequence[int]) -> tuple[int, ...]:
        """Examples a step of each of the jobs at the positions `chosen`; all have places."""
        return tuple(self.batches[number] for number in range(1, len(chosen) + 1))

    def _places(self, assignment: Assignment) -> Iterator[Place]:
        cut = assignment.cut
        parts: dict[int, list[Part]] = {}
        for partition, at, each in zip(
            cut.partitions, cut.instance_at, assignment.partitions, strict=True
        ):
            if each.chosen:
                jobs = self.jobs(each.chosen)
                own = Part(jobs, each.option.of(len(jobs)), partition.slices)
                parts.setdefault(at, []).append(own)
        for at, held in parts.items():
            yield Place(cut.instances[at], tuple(held))


def job_numbers(sets: Sets, chosen: Sequence[int]) -> JobNumbers:
    """For the jobs at the positions `chosen`, numbered from 1 in that order."""
    number = {at: number for number, at in enumerate(chosen, start=1)}
    return JobNumbers(sets, [[number[at] for at in own if at in number] for own in sets.positions])


def signature(cut: Cut, assignment: Assignment) -> tuple[object, ...]:
    """The same for plans that differ only in where instances lie, or which of equal ones is whose.

    Args:
        cut: Of `assignment`.
        assignment: The plan.
    """
    instance_at: dict[int, list[tuple[object, ...]]] = {}
    for partition, index, each in zip(
        cut.partitions, cut.instance_at, assignment.partitions, strict=True
    ):
        if each.chosen:
            seen = (partition.slices or 0, str(each.option.sharing), each.chosen)
            instance_at.setdefault(index, []).append(seen)
    return tuple(
        sorted((cut.instances[index].profile, *sorted(own)) for index, own in instance_at.items())
    )


def one_after_another(hows: Sequence[Choice | Assignment], numbers: JobNumbers) -> Sharing:
    """Two groups or more in this order; jobs alone whose numbers grow are one serial group."""
    return in_turn(
        [numbers.hybrid(how) if isinstance(how, Assignment) else numbers.group(how) for how in hows]
    )
