"""The MPS control daemon of one GPU: started, asked for its clients, and ended."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from advisor.errors import AdvisorError, GpuUnavailable
from advisor.hardware.mps import CONTROL, mps_processes
from advisor.measure.process.pdeathsig import tied_to_parent
from advisor.measure.process.process_ends import end_mps_within, mps_within, wait_until
from advisor.measure.process.worker import without_mps


class MpsDaemon:
    """A control daemon for one GPU, between `start` and `stop`.

    Args:
        folder: Where pipes and logs go; a short path, since pipes are Unix sockets.
        uuid: The GPU. Clients must name it by its UUID too, since the daemon numbers its GPUs
            afresh.
        mark: Variables by which it is known as somebody's. With them it outlives this process, and
            one with the same folder takes it over; without, it ends with this process.
    """

    def __init__(self, folder: Path, uuid: str, mark: Mapping[str, str] | None = None) -> None:
        self.pipes = folder / "mps"
        self._logs = folder / "mps-log"
        self._uuid = uuid
        self._mark = mark
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        if self._process is not None:
            return self._process.poll() is None
        return self._mark is not None and bool(mps_within(self.pipes))

    @property
    def environment(self) -> dict[str, str]:
        """Variables to set for the daemon, in addition to the caller's environment."""
        return {
            "CUDA_MPS_PIPE_DIRECTORY": str(self.pipes),
            "CUDA_MPS_LOG_DIRECTORY": str(self._logs),
            "CUDA_VISIBLE_DEVICES": self._uuid,
        }

    def start(self) -> None:
        """Start the daemon, and wait until it answers.

        Raises:
            GpuUnavailable: Its program is missing, or it ended or did not answer; the message
                quotes the end of its logs.
        """
        if shutil.which(CONTROL) is None:
            raise GpuUnavailable(
                f"{CONTROL} is not installed, so jobs cannot share by MPS here. Install the "
                f"driver's compute utilities, or choose naive sharing."
            )
        shutil.rmtree(self.pipes, ignore_errors=True)  # a daemon that was killed left its pipes
        self.pipes.mkdir(parents=True)
        self._logs.mkdir(exist_ok=True)
        self._process = self._launched()
        wait_until(lambda: not self.running or self._answer("get_server_list") is not None, 15)
        if not self.running or self._answer("get_server_list") is None:
            last = self._log_tail()
            self.stop()
            raise GpuUnavailable(
                f"the MPS daemon does not start: {last}. Fix that, or choose naive sharing."
            )

    def _launched(self) -> "subprocess.Popen[bytes]":
        command = [CONTROL, "-f"]
        with (self._logs / "output").open("wb") as output:
            return subprocess.Popen(
                tied_to_parent(command) if self._mark is None else command,
                env=self._whole_environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=self._mark is not None,
            )

    def servers(self) -> frozenset[int]:
        """The pids of its servers; it starts one for the first client."""
        return frozenset(_pids(self._answer("get_server_list")))

    def clients(self) -> frozenset[int]:
        """The pids that the daemon's servers list as their clients."""
        lists = [_pids(self._answer(f"get_client_list {server}")) for server in self.servers()]
        return frozenset(pid for each in lists for pid in each)

    def stop(self) -> None:
        """End the daemon and its servers: by request, and by force if that fails.

        Its clients must have ended before.
        """
        if not self.running and self._process is None:
            return
        for request in ("quit", "quit -t 1"):
            if self.running and self._answer(request) is not None:
                wait_until(lambda: not self.running, 5)
        if self._process is not None:
            if self.running:
                self._process.terminate()
                if not wait_until(lambda: not self.running, 2):
                    self._process.kill()
            self._process.wait()
            self._process = None
        if not wait_until(lambda: not mps_within(self.pipes), 3):
            end_mps_within(self.pipes)

    def _answer(self, request: str) -> str | None:
        """The daemon's answer to `request`; None if it does not answer."""
        try:
            reported = subprocess.run(
                [CONTROL],
                input=request + "\n",
                env=self._whole_environment(),
                capture_output=True,
                text=True,
                timeout=10,
                check=False,
            )
        except (subprocess.TimeoutExpired, OSError):
            return None
        return reported.stdout if reported.returncode == 0 else None

    def _whole_environment(self) -> dict[str, str]:
        return without_mps(os.environ) | self.environment | dict(self._mark or {})

    def _log_tail(self) -> str:
        logs = [self._logs / "output", self._logs / "control.log"]
        lines = [
            line.strip()
            for log in logs
            if log.is_file()
            for line in log.read_text(errors="replace").splitlines()[-3:]
        ]
        return " / ".join(filter(None, lines)) or "its logs are empty"


def prove_absent(uuid: str) -> None:
    """Check that MPS is off on the GPU `uuid`.

    Raises:
        AdvisorError: A daemon or server still runs after some seconds.
    """

    def serving() -> list[int]:
        return [each.pid for each in mps_processes() if each.serves(uuid)]

    if not wait_until(lambda: not serving(), 5):
        pids = ", ".join(map(str, serving()))
        raise AdvisorError(f"MPS should be off and processes {pids} still run. End them.")


def _pids(answer: str | None) -> list[int]:
    return [int(word) for word in (answer or "").split() if word.isdigit()]
