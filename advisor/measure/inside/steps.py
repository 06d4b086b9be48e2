"""Which call of a training program ends one of its steps."""

from collections import Counter

# An optimizer counts if it steps at least once in so many steps of the busiest.
_SELDOM = 64
# Rounds of all optimizers, before it is clear which ends a step.
_ROUNDS = 3

_EXPLICIT = -1


class StepFinder:
    """Finds out which optimizer ends a training step.

    With several optimizers it is the one that steps least often: so a round of a GAN is one step,
    and so is a backward pass that steps an optimizer for each parameter.
    """

    def __init__(self) -> None:
        self._optimizer_steps: Counter[int] = Counter()
        self._step_ender: int | None = None

    @property
    def clear(self) -> bool:
        """True once it is known what ends a step."""
        return self._step_ender is not None

    def optimizer_stepped(self, optimizer: object) -> bool:
        """Return whether a step ended with this one of `optimizer`; True until it is clear."""
        if self._step_ender == _EXPLICIT:
            return False
        key = id(optimizer)
        if self._step_ender is None:
            self._optimizer_steps[key] += 1
            often = max(self._optimizer_steps.values())
            if min(n for n in self._optimizer_steps.values() if n * _SELDOM >= often) >= _ROUNDS:
                self._step_ender = key
            return True
        return key == self._step_ender

    def stepped_explicitly(self) -> None:
        """Note that the program itself said that a step ended; optimizers count no more."""
        self._step_ender = _EXPLICIT
