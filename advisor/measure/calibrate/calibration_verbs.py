"""The requests that a tenant of a calibration answers, and how they are sent."""

from collections import deque
from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Any

from advisor.errors import AdvisorError
from advisor.measure.process.tenant_verbs import synchronise, training_verbs
from advisor.measure.process.tenants import TenantProcess, ask_all, living
from advisor.measure.process.worker import TenantState, Verb

REMEDY = ". Calibrate again."

# Square matrices of this side to begin with, and in multiples of it: whole tiles of any library.
_TILE, _FIRST_SIDE = 128, 1024

# Time per operation depends on the size, so the size is adjusted several times.
_TRIES, _TIMED = 3, 20

# Work that is queued ahead, in seconds: beyond any slice; and most launches a GPU takes.
_AHEAD_S, _MOST_AHEAD = 0.1, 900


def calibration_verbs() -> Mapping[str, Verb]:
    """The training verbs and `load_kernel`."""
    return {**training_verbs(), "load_kernel": load_kernel}


def load_kernel(state: TenantState, kernel_s: float) -> dict[str, Any]:
    """Make a step one product of square matrices that takes about `kernel_s`.

    Returns:
        ``kernel_s``: what it takes, roughly.

    Raises:
        AdvisorError: No product takes time on this device.
    """
    side, took_s = _FIRST_SIDE, _took_s(state, _Repeated(state.device, _FIRST_SIDE, _MOST_AHEAD))
    for _ in range(_TRIES):
        if took_s <= 0:
            raise AdvisorError("a matrix product took no time here. Calibrate again.")
        # Its work grows with the cube of its side.
        side = max(1, round(side * (kernel_s / took_s) ** (1 / 3) / _TILE)) * _TILE
        ahead = max(2, min(_MOST_AHEAD, round(_AHEAD_S / kernel_s)))
        kernel = _Repeated(state.device, side, ahead)
        took_s = _took_s(state, kernel)
    state.step = kernel  # type: ignore[assignment]  # `run` only calls it
    return {"kernel_s": took_s}


def _took_s(state: TenantState, kernel: "_Repeated") -> float:
    kernel()
    synchronise(state)
    began = perf_counter()
    for _ in range(_TIMED):
        kernel()
    synchronise(state)
    return (perf_counter() - began) / _TIMED


class _Repeated:
    """Enqueues one matrix product a call; waits if more than `ahead` are queued."""

    def __init__(self, device: str, side: int, ahead: int) -> None:
        import torch

        self._multiply, self._event = torch.mm, torch.cuda.Event
        self._factor = torch.ones(side, side, device=device)
        self._product = torch.empty_like(self._factor)
        self._ahead = ahead
        self._queued: deque[Any] = deque()

    def __call__(self) -> None:
        self._multiply(self._factor, self._factor, out=self._product)
        if self._factor.is_cuda:
            event: Any = self._event()  # type: ignore[no-untyped-call]
            event.record()
            self._queued.append(event)
            if len(self._queued) > self._ahead:
                self._queued.popleft().synchronize()


def all_answers(
    tenants: Sequence[TenantProcess], verb: str, arguments: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Send all `tenants` the same request at once; their answers, in their order.

    Raises:
        AdvisorError: One ran out of memory or died.
    """
    answers = ask_all(tenants, verb, [arguments] * len(tenants))
    return [living(each, REMEDY) for each in answers]
