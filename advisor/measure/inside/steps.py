"""Which call of a training program ends one of its steps."""

import gc
from dataclasses import dataclass
from typing import Any
from weakref import ReferenceType, ref

from torch.optim import Optimizer

# An optimizer counts if it steps at least once in so many steps of the busiest.
_SELDOM = 64
# Rounds of all optimizers, before it is clear which ends a step.
_ROUNDS = 3


@dataclass(slots=True, eq=False)
class _Part:
    """The part in the training of one optimizer, or of those of its kind one after another."""

    kind: tuple[type, int]  # stays the same if an optimizer is made again
    steps: int = 0  # since the last choice


class StepFinder:
    """Finds out which optimizer ends a training step, or whether a backward pass does.

    With several optimizers it is the one that steps least often: so a round of a GAN is one step,
    and so is a backward pass that steps an optimizer for each parameter. It is chosen again when
    another one begins to step, or when it steps no more while others do. An optimizer takes the
    part of one of its kind that is gone.

    While none has ever stepped, several backward passes in a row are steps, so many more of them if
    there is an optimizer for which they may accumulate gradients.
    """

    def __init__(self) -> None:
        self._parts: dict[ReferenceType[Any], _Part] = {}
        self._ender: _Part | None = None
        self._calls = 0  # steps of all optimizers since the last choice
        self._since = 0  # and since the one that ends a step stepped
        self._before = 0  # steps of the program before the last choice
        self._explicit = 0
        self._whole = False  # backward passes count, not calls of torch.autograd.grad
        self._passes, self._enough_passes = 0, _ROUNDS

    @property
    def clear(self) -> bool:
        """True once it is known what ends a step."""
        by_passes = not self._parts and self._passes >= self._enough_passes
        return bool(self._explicit or self._ender or by_passes)

    @property
    def steps(self) -> int:
        """Steps so far, by what is known now."""
        if self._explicit or not self._parts:
            return self._explicit or self._passes
        return self._before + (self._ender or self._least()).steps

    def optimizer_stepped(self, optimizer: object) -> bool:
        """Return whether a step ended with this one of `optimizer`; True until it is clear."""
        if self._explicit:
            return False
        key = ref(optimizer)
        part = self._parts.get(key) or self._new_part(key, optimizer)
        part.steps += 1
        self._calls += 1
        self._since += 1
        ender = self._ender
        if ender is not None and ender is not part:
            if self._since * ender.steps <= _ROUNDS * (self._calls - self._since):
                return False
            part.steps = self._since
            self._begin_choice({key: part})
        if self._ender is None and (least := self._least(part)).steps >= _ROUNDS:
            self._ender = least
        self._since = 0
        return True

    def pass_ended(self, *, whole: bool) -> bool:
        """Return whether a step ended with this backward pass, `whole` if by ``backward()``."""
        if self._explicit or self._parts or (self._whole and not whole):
            return False
        if whole and not self._whole:
            self._whole, self._passes = True, 0
        self._passes += 1
        if self._passes == _ROUNDS:
            has_optimizer = any(issubclass(type(each), Optimizer) for each in gc.get_objects())
            self._enough_passes = _SELDOM if has_optimizer else _ROUNDS
        return self._passes >= self._enough_passes

    def stepped_explicitly(self) -> None:
        """Note that the program itself said that a step ended; optimizers count no more."""
        self._explicit += 1

    def _new_part(self, key: "ReferenceType[Any]", optimizer: object) -> _Part:
        groups = getattr(optimizer, "param_groups", ())
        kind = (type(optimizer), sum(len(group["params"]) for group in groups))
        for other, part in self._parts.items():
            if other() is None and part.kind == kind:
                self._parts[key] = self._parts.pop(other)
                return part
        self._parts[key] = part = _Part(kind)
        if self._ender is not None:
            self._begin_choice({key: part})
        return part

    def _begin_choice(self, parts: "dict[ReferenceType[Any], _Part]") -> None:
        assert self._ender is not None
        self._before += self._ender.steps
        self._parts, self._ender = parts, None
        self._calls = self._since = sum(part.steps for part in parts.values())

    def _least(self, last: "_Part | None" = None) -> _Part:
        """The part that steps least often but not seldom, of several the `last`; gone ones last."""
        living = [part for key, part in self._parts.items() if key() is not None]
        parts = living or list(self._parts.values())
        often = max(part.steps for part in parts)
        counted = (part for part in parts if part.steps * _SELDOM >= often)
        return min(counted, key=lambda part: (part.steps, part is not last))
