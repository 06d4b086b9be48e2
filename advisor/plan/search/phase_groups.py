"""Groups of jobs that share the GPU until the last of them ends, and which are worth keeping."""

from dataclasses import dataclass
from typing import NamedTuple

from advisor.plan.search.partition_search import Choice, Cutting
from advisor.sharing import Group, Hybrid

# Of plans that no other beats in everything, so many are kept for each set of jobs that are done.
_MOST_KEPT = 12


@dataclass(frozen=True, slots=True)
class PhaseGroup:
    """Jobs that share the GPU until the last of them ends.

    Attributes:
        state: Which.
        jobs: How many.
        how: A set on the whole GPU, or sets on instances.
        setup: How the GPU is set up for them; of jobs that are numbered anyhow.
        mark: The same for all that leave the GPU set up alike.
        time_s: Until the last ends.
        cost: As `Objective.of_group` counts it.
        worst: Likewise.
        due: Until the last job of each kind that has a deadline ends, and its deadline.
    """

    state: int
    jobs: int
    how: Choice | Cutting
    setup: Group | Hybrid
    mark: int
    time_s: float
    cost: float
    worst: float = 0.0
    due: tuple[tuple[float, float], ...] = ()

    @property
    def cut(self) -> bool:
        """Whether they are on MIG instances."""
        return bool(self.setup.instances)


class Label(NamedTuple):
    """What all groups until now cost; groups in the order in which they run."""

    cost: float
    worst: float
    groups: tuple[PhaseGroup, ...]


def keep(kept: list[Label], cost: float, worst: float, before: Label, group: PhaseGroup) -> None:
    """Add `group` after `before` unless another is no worse in anything, and drop what it beats."""
    for each in kept:  # no generator: most are looked at once, and dropped
        if each.cost <= cost and each.worst <= worst:
            return
    kept[:] = [each for each in kept if each.cost < cost or each.worst < worst]
    kept.append(Label(cost, worst, (*before.groups, group)))
    if len(kept) > _MOST_KEPT:
        kept.sort(key=lambda each: each.cost * max(each.worst, 1e-9))
        kept.pop()


def keep_group(kept: list[PhaseGroup], group: PhaseGroup) -> None:
    """Likewise, of groups of the same jobs that leave the GPU set up alike."""

    def beats(one: PhaseGroup, other: PhaseGroup) -> bool:
        return (
            one.time_s <= other.time_s
            and one.cost <= other.cost
            and one.worst <= other.worst
            and all(mine[0] <= yours[0] for mine, yours in zip(one.due, other.due, strict=True))
        )

    if not any(beats(each, group) for each in kept):
        kept[:] = [each for each in kept if not beats(group, each)]
        kept.append(group)
