"""The one queue of a campaign: who takes what next, and what is under way."""

from collections.abc import Collection, Mapping, Sequence
from threading import Condition

from advisor.measure.campaign.draw import idle_twin
from advisor.measure.campaign.runner import Task
from advisor.measure.shared.planned_run import CompletionRun, PlannedMix
from advisor.sharing import Mps

# Starting or stopping an MPS daemon takes about a second, so a runner gets up to so many runs that
# need it in one state ...
_BLOCK = 8
# ... found among so many: solo runs must stay where they are, between the others.
_LOOK_AHEAD = 24


class Board:
    """What is left to do; every method may be called from any runner's thread.

    Args:
        tasks: In the order in which they should be done.
        quiet: Controls to be done last, each with all other runners idle, and by the runner that
            did its busy twin, where that still works.
        homes: The names of the runners that did busy twins before, by the id in `quiet`.
        runners: The names of all runners.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        quiet: Sequence[PlannedMix],
        homes: Mapping[str, str],
        runners: Collection[str],
    ) -> None:
        self._waiting = list(tasks)
        self._quiet = list(quiet)
        self._homes = dict(homes)
        self._runners = set(runners)
        self._under_way = 0
        self._over = False
        self._changed = Condition()

    def take(self, runner: str) -> list[Task]:
        """The next tasks of `runner`; waits while others may yet hand some back; empty at the end.

        Whoever takes tasks says of each that it is `done` or hands it `back`.
        """
        with self._changed:
            while not self._over:
                block = self._block() or self._alone(runner)
                if block:
                    self._under_way += len(block)
                    return block
                if self._nothing_will_come():
                    break
                self._changed.wait()
            self._changed.notify_all()
            return []

    def _block(self) -> list[Task]:
        """The first that waits, and some soon after it that need MPS in the same state."""
        if not self._waiting:
            return []
        # Towards the end, smaller, so that nobody waits for one who has much left.
        size = max(1, min(_BLOCK, len(self._waiting) // (2 * max(1, len(self._runners)))))
        wanted = needs_mps(self._waiting[0])
        near = self._waiting[:_LOOK_AHEAD]
        block = [task for task in near if needs_mps(task) is wanted][:size]
        taken = set(map(id, block))
        self._waiting = [task for task in self._waiting if id(task) not in taken]
        return block

    def _alone(self, runner: str) -> list[Task]:
        """A control of this runner's, where nobody does anything."""
        if self._under_way:
            return []
        for mix in self._quiet:
            home = self._homes.get(mix.id)
            if home == runner or home not in self._runners:
                self._quiet.remove(mix)
                return [mix]
        return []

    def _nothing_will_come(self) -> bool:
        return not (self._under_way or self._waiting or self._quiet)

    def done(self, task: Task, runner: str) -> None:
        """`runner` need not do `task` again, whether or not there is a record of it."""
        with self._changed:
            self._under_way -= 1
            if isinstance(task, PlannedMix) and task.purpose == "control":
                self._homes[idle_twin(task.id)] = runner
            self._changed.notify_all()

    def back(self, tasks: Sequence[Task]) -> None:
        """`tasks` were taken, and not done: somebody else is to do them, before all others."""
        with self._changed:
            self._waiting[:0] = tasks
            self._under_way -= len(tasks)
            self._changed.notify_all()

    def leave(self, runner: str) -> None:
        """`runner` will never take anything again."""
        with self._changed:
            self._runners.discard(runner)
            self._changed.notify_all()

    def close(self) -> None:
        """Nobody gets anything any more."""
        with self._changed:
            self._over = True
            self._changed.notify_all()

    @property
    def over(self) -> bool:
        """Whether it was closed."""
        return self._over

    @property
    def left(self) -> int:
        """Tasks that nobody has taken."""
        with self._changed:
            return len(self._waiting) + len(self._quiet)


def needs_mps(task: Task) -> bool:
    """Whether `task` begins with an MPS daemon running."""
    return isinstance(task, PlannedMix | CompletionRun) and isinstance(
        task.heats[0].mix.sharing, Mps
    )
