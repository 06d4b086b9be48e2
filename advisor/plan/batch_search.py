"""Batches of jobs on GPUs, one after another: packed by size or load, and improved by changes."""

from collections.abc import Iterator, Sequence
from random import Random

from advisor.plan import step
from advisor.plan.fleet_groups import (
    MOST_TOGETHER,
    FleetGroup,
    GpuQueue,
    Problem,
    arranged,
)
from advisor.plan.group_pool import GroupPool
from advisor.plan.job_sets import Members, with_one, without

# Changes looked at in a round, share of them that are swaps, and rounds without gain that end it.
_LOOKED_AT, _SWAPS, _STALE = 48, 0.4, 4

_Change = tuple[frozenset[int], tuple[GpuQueue, ...]]
"""Positions of the batches that go, and those that come instead."""


class BatchSearch:
    """Makes batches of the jobs of `problem` for the GPUs of `pools`."""

    def __init__(self, problem: Problem, pools: Sequence[GroupPool], draw: Random) -> None:
        self._problem, self._pools, self._draw = problem, pools, draw

    def first_fit(
        self, order: Sequence[int], most: float, shares: Sequence[float]
    ) -> list[GpuQueue]:
        """Let each job join the first batch whose shares stay below `most` and that may take it."""
        batches, loads, open_from = list[GpuQueue](), list[float](), 0
        for kind in order:
            for at in range(open_from, len(batches)):
                members = batches[at].order
                if len(members) < MOST_TOGETHER and loads[at] + shares[kind] <= most:
                    larger = GpuQueue(with_one(members, kind), len(members) + 1)
                    if any(pool.allows(larger) for pool in self._pools):
                        batches[at], loads[at] = larger, loads[at] + shares[kind]
                        break
            else:
                batches.append(GpuQueue((kind,), 1))
                loads.append(shares[kind])
            while open_from < len(batches) and loads[open_from] + min(shares) > most:
                open_from += 1
        return batches

    def items(self, queues: Sequence[GpuQueue], *, predict: bool) -> list[list[FleetGroup]]:
        """Return each batch as it would run on each pool, or if none may take it, its jobs."""
        singles = [GpuQueue((kind,), 1) for kind in self._problem.jobs]
        wanted = list(dict.fromkeys([*queues, *singles]))
        ways = dict(zip(wanted, self._ways(wanted, predict=predict), strict=True))
        items = []
        for queue in queues:
            alone = [ways[GpuQueue((kind,), 1)] for kind in queue.order]
            items += [ways[queue]] if ways[queue] else alone
        return items

    def improved(self, batches: Sequence[GpuQueue], rounds: int) -> list[GpuQueue]:
        """Return batches that cost less by estimates, after so many rounds of changes at most."""
        now, stale = self.items(batches, predict=False), 0
        least = self._problem.close_rank(arranged(now, self._problem))
        for _ in range(rounds):
            step()
            changes = list(dict.fromkeys(self._changes([ways[0].members for ways in now])))
            wanted = list(dict.fromkeys(each for _, new in changes for each in new))
            ways_of = dict(zip(wanted, self._ways(wanted), strict=True))
            best = now
            for gone, new in changes:
                items = [ways for at, ways in enumerate(now) if at not in gone]
                items += [ways_of[each] for each in new]
                if not all(items):
                    continue
                if (rank := self._problem.close_rank(arranged(items, self._problem))) < least:
                    least, best = rank, items
            stale = 0 if best is not now else stale + 1
            now = best
            if stale > _STALE:
                break
        return [GpuQueue(ways[0].members, len(ways[0].members)) for ways in now]

    def _ways(self, queues: Sequence[GpuQueue], *, predict: bool = False) -> list[list[FleetGroup]]:
        """Estimate or predict each batch on each pool that can hold it."""
        of_pools = [
            pool.predicted(queues) if predict else pool.estimated(queues) for pool in self._pools
        ]
        return [[group for group in groups if group] for groups in zip(*of_pools, strict=True)]

    def _changes(self, batches: Sequence[Members]) -> Iterator[_Change]:
        """Changes of any two batches: a job moves to another or a new one, or two jobs swap."""
        draw, last = self._draw, len(batches)
        for _ in range(_LOOKED_AT):
            one, other = draw.randrange(last), draw.randrange(last + 1)
            own, its = batches[one], batches[other] if other < last else ()
            kind = draw.choice(own)
            if other == one:
                continue
            left, joined = without(own, kind), with_one(its, kind)
            if its and draw.random() < _SWAPS:
                back = draw.choice(its)
                left, joined = with_one(left, back), without(joined, back)
            if len(joined) <= MOST_TOGETHER and len(left) <= MOST_TOGETHER:
                new = [GpuQueue(each, len(each)) for each in (left, joined) if each]
                yield frozenset({one, other}) - {last}, tuple(new)
