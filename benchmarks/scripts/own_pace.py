"""Prints a script's own pace, as its author would: no advisor is needed for it."""

from time import perf_counter, time

_EVERY = 20


class OwnPace:
    """Prints, every 20 steps, when these began and ended on the wall clock."""

    def __init__(self):
        self._count, self._began_at, self._began = 0, time(), perf_counter()

    def step(self):
        """Count a step."""
        self._count += 1
        if self._count % _EVERY == 0:
            now = perf_counter()
            took_s = now - self._began
            print(f"own {self._began_at:.6f} {took_s / _EVERY:.9f} {_EVERY}", flush=True)
            self._began_at, self._began = time(), perf_counter()
