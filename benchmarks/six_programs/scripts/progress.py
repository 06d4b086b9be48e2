"""The options and the printed pace that the six programs share."""

import argparse
from time import perf_counter

import torch

_PRINTED_EVERY_S = 0.5


class Progress:
    """The options of a program, its device, and the steps that it has made.

    Attributes:
        tiny: Whether to train a very small network, which a CPU does at once.
    """

    def __init__(self, description):
        parser = argparse.ArgumentParser(description=description)
        parser.add_argument("--steps", type=int, help="end after so many steps [never]")
        parser.add_argument("--seconds", type=float, help="end after so many seconds [never]")
        parser.add_argument("--tiny", action="store_true", help="train a very small network")
        words = parser.parse_args()
        self.tiny = words.tiny
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._steps, self._seconds = words.steps, words.seconds
        self._began, self._printed, self._done = perf_counter(), float("-inf"), 0

    def step(self, loss):
        """Count a step, read its loss and print it twice a second; return whether to go on."""
        self._done += 1
        last = self._done == self._steps
        if last or perf_counter() - self._printed >= _PRINTED_EVERY_S:
            value = loss.detach().item()  # waits for the device
            self._printed = perf_counter()
            print(f"step {self._done}, loss {value:.4f}", flush=True)
        late = self._seconds is not None and perf_counter() - self._began > self._seconds
        return not (last or late)
