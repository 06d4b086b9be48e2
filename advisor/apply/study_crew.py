"""The processes of a study on one device: started, replaced where one fails, and ended."""

import array
import fcntl
import json
import os
import signal
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from time import monotonic, sleep

from advisor.apply.study_worker import WorkerOrder
from advisor.errors import AdvisorError, InvalidInput
from advisor.measure.process.mps_session import MpsSession
from advisor.measure.process.process_ends import end_scripts_within, wait_until
from advisor.measure.process.script_processes import MARK
from advisor.measure.process.worker import without_mps
from advisor.sharing import Concurrent

MOST_TICKETS = 60_000
"""A pipe holds as many bytes at once (pipe(7)), and some."""

# How long processes have to end after they were asked to; their models are freed meanwhile.
_POLITE_S = 5.0
# How often MPS is asked whom it serves, until it serves all.
_ASK_MPS_S = 1.0


@contextmanager
def tickets_for(trials: int) -> Iterator[int]:
    """The reading end of a pipe with a byte for each trial; who reads one may run a trial."""
    reading, writing = os.pipe()
    try:
        os.write(writing, b"." * trials)
        os.close(writing)
        yield reading
    finally:
        os.close(reading)


def _left(tickets: int) -> int:
    count = array.array("i", [0])
    fcntl.ioctl(tickets, termios.FIONREAD, count)
    return count[0]


@dataclass(slots=True)
class StudyCrew:
    """Processes that take tickets, one at each place.

    Attributes:
        sharing: Of the device, into which `session` has been switched.
        environments: Variables of the process at each place, beside the caller's.
        orders: What the process at each place does.
        mps_clients: How many of them the MPS server was seen to serve at once.
    """

    session: MpsSession
    sharing: Concurrent
    environments: Sequence[Mapping[str, str]]
    orders: Sequence[WorkerOrder]
    mps_clients: int = 0
    _running: "dict[int, subprocess.Popen[bytes]]" = field(default_factory=dict)

    def run(self, any_ended: Callable[[], bool]) -> None:
        """Run until no ticket is left and all processes have ended.

        Args:
            any_ended: Whether a trial has ended well.

        Raises:
            InvalidInput: A process cannot begin.
            AdvisorError: As many failed as there are places, and at least 3, before any ended well.
        """
        for place in range(len(self.orders)):
            self._start(place)
        failed, ask_at = 0, monotonic()
        while self._running:
            for place in self._left_by():
                failed += 1
                if failed >= max(3, len(self.orders)) and not any_ended():
                    raise AdvisorError(
                        f"{failed} trials failed and none ended well; what they said is above. "
                        f"Correct the objective, or run fewer at once."
                    )
                if _left(self.orders[place].tickets):
                    self._start(place)
            if monotonic() >= ask_at:
                ask_at = monotonic() + _ASK_MPS_S
                self._ask_mps()
            sleep(0.02)

    def end(self) -> None:
        """End what still runs, of what trials started too: by request, and else by force."""
        for how in (signal.SIGTERM, signal.SIGKILL):
            for process in self._running.values():
                if process.poll() is None:
                    with suppress(ProcessLookupError):
                        os.killpg(process.pid, how)
            wait_until(lambda: not self._alive(), _POLITE_S)
        end_scripts_within(self.session.folder)
        self._running.clear()

    def _alive(self) -> bool:
        return any(process.poll() is None for process in self._running.values())

    def _start(self, place: int) -> None:
        kept = without_mps(os.environ)
        self._running[place] = subprocess.Popen(
            [sys.executable, "-m", "advisor.apply.study_worker",
             json.dumps(asdict(self.orders[place]))],
            env=kept | dict(self.environments[place]) | {MARK: str(self.session.folder)},
            stdin=subprocess.DEVNULL,
            pass_fds=[self.orders[place].tickets],
            start_new_session=True,  # a terminal's Ctrl-C reaches the parent alone
        )  # fmt: skip

    def _left_by(self) -> list[int]:
        """The places whose processes have failed; those that ended well are done."""
        failed = []
        for place, process in list(self._running.items()):
            code = process.poll()
            if code is None:
                continue
            del self._running[place]
            if code == InvalidInput.exit_code:
                raise InvalidInput(
                    f"{self.orders[place].objective}: its process cannot begin, as it says above. "
                    f"Correct that."
                )
            if code:
                failed.append(place)
        return failed

    def _ask_mps(self) -> None:
        if self.sharing.under_mps and self.mps_clients < len(self.orders):
            pids = [process.pid for process in self._running.values()]
            with suppress(AdvisorError):  # not all have begun to use the GPU
                served = self.session.proved_clients(self.sharing, pids)
                self.mps_clients = max(self.mps_clients, served)
