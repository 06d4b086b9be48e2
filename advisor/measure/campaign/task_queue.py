"""The queue of a campaign's tasks, from which its runners take blocks."""

from collections.abc import Collection, Mapping, Sequence
from threading import Condition

from advisor.measure.campaign.draw import idle_twin
from advisor.measure.campaign.runner import Task
from advisor.measure.shared.planned_run import Measurable, PlannedMix

# Starting or stopping an MPS daemon takes about a second, so a runner gets up to this many runs
# that need it in one state ...
_BLOCK = 8
# ... among the first this many: solo runs must stay in their places between the others.
_LOOK_AHEAD = 24


class TaskQueue:
    """The tasks left to do; every method may be called from any runner's thread.

    Args:
        tasks: In the order in which they should be done.
        idle_controls: Controls to be done last, each with all other runners idle, and by the runner
            that did its busy twin, if it is still there.
        homes: The runners that did busy twins before, by the id in `idle_controls`.
        runners: The names of all runners.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        idle_controls: Sequence[PlannedMix],
        homes: Mapping[str, str],
        runners: Collection[str],
    ) -> None:
        self._waiting = list(tasks)
        self._idle_controls = list(idle_controls)
        self._homes = dict(homes)
        self._runners = set(runners)
        self._under_way = 0
        self._over = False
        self._changed = Condition()

    def take(self, runner: str) -> list[Task]:
        """The next tasks of `runner`; waits while others may give some back; empty at the end.

        The caller must report each task as `done` or give it `back`.
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
        """The first waiting task, and some soon after it that need MPS in the same state."""
        if not self._waiting:
            return []
        # Smaller towards the end, so that no runner has much left when the others are done.
        size = max(1, min(_BLOCK, len(self._waiting) // (2 * max(1, len(self._runners)))))
        wanted = needs_mps(self._waiting[0])
        near = self._waiting[:_LOOK_AHEAD]
        block = [task for task in near if needs_mps(task) is wanted][:size]
        taken = set(map(id, block))
        self._waiting = [task for task in self._waiting if id(task) not in taken]
        return block

    def _alone(self, runner: str) -> list[Task]:
        """An idle control of this runner's, if no task is under way."""
        if self._under_way:
            return []
        for mix in self._idle_controls:
            home = self._homes.get(mix.id)
            if home == runner or home not in self._runners:
                self._idle_controls.remove(mix)
                return [mix]
        return []

    def _nothing_will_come(self) -> bool:
        return not (self._under_way or self._waiting or self._idle_controls)

    def done(self, task: Task, runner: str) -> None:
        """Note that `runner` is done with `task`, with or without a record."""
        with self._changed:
            self._under_way -= 1
            if isinstance(task, PlannedMix) and task.purpose == "control":
                self._homes[idle_twin(task.id)] = runner
            self._changed.notify_all()

    def back(self, tasks: Sequence[Task]) -> None:
        """Put back `tasks` that were taken and not done, before all others."""
        with self._changed:
            self._waiting[:0] = tasks
            self._under_way -= len(tasks)
            self._changed.notify_all()

    def leave(self, runner: str) -> None:
        """Note that `runner` takes no further task."""
        with self._changed:
            self._runners.discard(runner)
            self._changed.notify_all()

    def close(self) -> None:
        """Give out no further task."""
        with self._changed:
            self._over = True
            self._changed.notify_all()

    @property
    def over(self) -> bool:
        """Whether it was closed."""
        return self._over

    @property
    def left(self) -> int:
        """Number of tasks that were not taken."""
        with self._changed:
            return len(self._waiting) + len(self._idle_controls)


def needs_mps(task: Task) -> bool:
    """Whether `task` begins with an MPS daemon running."""
    if not isinstance(task, Measurable):
        return False
    return task.run_groups[0].mix.sharing.under_mps
