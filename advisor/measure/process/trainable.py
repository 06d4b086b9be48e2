"""The one form in which a step of the zoo and a user's script are trained, to be measured alike.

A request that trains is a routine: a generator that yields where training is to go on, by the rest
of a step or by the next phase of one, and is resumed when that has been enqueued. A step of the zoo
is taken through it by `trained`; a script goes through it by itself, since it owns its loop, and
stops where `advisor.measure.process.script_hook` stands.
"""

from collections.abc import Callable, Generator, Mapping
from typing import Any, Literal, Protocol, cast

Part = Literal["step", "phase"]

Routine = Generator[Part, bool, dict[str, Any]]
"""Yields how far to train, receives whether that ended a step, and returns plain values."""


class Trainable(Protocol):
    """What routines need to know of what is trained."""

    @property
    def fetched_s(self) -> float:
        """Seconds that its host has spent so far on taking batches."""

    @property
    def loader_workers(self) -> int:
        """Processes of the loader that feeds it; 0 without."""

    def next_batch(self) -> object:
        """Take the next batch without training on it."""

    def close(self) -> None:
        """End what it owns; it cannot be trained afterwards."""


class PhasedStep(Trainable, Protocol):
    """A trainable whose step is called from outside, whole or phase by phase."""

    def __call__(self) -> None:
        """Enqueue one step."""

    @property
    def phases(self) -> Mapping[str, Callable[[], None]]:
        """The parts of a step, by name, to be called in this order."""


def trained(routine: Routine, loaded: Callable[[], Trainable | None]) -> dict[str, Any]:
    """What `routine` returns once a step of the zoo was trained as it asks.

    Args:
        routine: Asks for training only if there is something to train; it may load that itself.
        loaded: Gives what is called from outside.
    """
    left: list[Callable[[], None]] = []
    try:
        part = next(routine)
        while True:
            step = cast("PhasedStep", loaded())
            if part == "step" and not left:
                step()
            else:
                left = left or list(step.phases.values())
                count = len(left) if part == "step" else 1
                for phase in left[:count]:
                    phase()
                left = left[count:]
            part = routine.send(not left)
    except StopIteration as end:
        answer: dict[str, Any] = end.value
        return answer
