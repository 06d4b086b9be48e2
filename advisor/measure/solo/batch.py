"""``advisor profile``: profiles workloads one after another, and writes each file as it is done."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import monotonic, sleep

from advisor.errors import AdvisorError, InvalidInput
from advisor.measure.process.claimed_device import Device, claimed, device_at_hand, refuse_other
from advisor.measure.process.cores import allowed_cores, spare_cores
from advisor.measure.process.mps_session import mps_session_on
from advisor.measure.process.provenance import Origin, command_line
from advisor.measure.process.scratch_folder import scratch_folder
from advisor.measure.process.supervisor import say
from advisor.measure.process.tenants import warm_up
from advisor.measure.solo.profile_options import ProfileRequest, parsed_request
from advisor.measure.solo.solo_run import SoloRunSettings, cores_for, profile_alone
from advisor.workload.files import user_folder
from advisor.workload.named_workloads import workload
from advisor.workload.spec import Workload
from advisor.workload.writing import profile_text, writable, writable_folder, write_whole

# Assumed seconds of a workload before the first has been measured.
_FIRST_S, _FIRST_WITH_PROBE_S = 25.0, 60.0


def run(argv: Sequence[str]) -> int:
    """Profile what the command line `argv` names; the exit code. Runs under a supervisor."""
    return profile_all(parsed_request(argv, command_line("advisor.profiling", argv)))


def profile_all(request: ProfileRequest) -> int:
    """Profile all that `request` asks for; 0 if none failed, else 1 after listing the failures.

    Raises:
        GpuUnavailable: There is no such GPU, or another process uses it.
        InvalidInput: The request is invalid as a whole, or its only workload is.
    """
    device = device_at_hand(request.device)
    refuse_other(device, request.gpu)
    out = writable_folder(request.out or user_folder("profiles") / device.key)
    batch = _Batch(request, out)
    if batch.todo:
        with _settings_of(device, request) as settings:
            batch.measure(settings)
    return batch.verdict()


@contextmanager
def _settings_of(device: Device, request: ProfileRequest) -> Iterator[SoloRunSettings]:
    ours, allowed = allowed_cores(), allowed_cores(request.cores)
    with claimed(device, request.command), scratch_folder() as folder:
        idle_w = idle_power_w(device)
        os.sched_setaffinity(0, spare_cores([allowed[:1]], ours))
        warm_up(folder)
        with mps_session_on(device, folder) as session:
            origin = Origin(device, request.command, len(ours))
            yield SoloRunSettings(
                session=session,
                origin=origin,
                host_cores=ours,
                cores=allowed,
                probe=request.probe,
                idle_power_w=idle_w,
            )


def idle_power_w(device: Device) -> float | None:
    """Power of a claimed device on which nothing has run yet; None if not metered."""
    if device.uuid is None:
        return None
    from advisor.hardware.live_gpu import power_w_now

    readings = []
    for _ in range(5):
        readings.append(power_w_now(device.uuid))
        sleep(0.1)
    known = [each for each in readings if each is not None]
    return median(known) if known else None


class _Batch:
    """The workloads still to profile, and the errors of those that failed.

    Args:
        request: What the user asked for.
        out: Folder of profiles.

    Attributes:
        todo: Those to measure, in order.
    """

    def __init__(self, request: ProfileRequest, out: Path) -> None:
        self._request = request
        self._out = out
        self._failures: list[tuple[str, AdvisorError]] = []
        self._seconds: list[float] = []
        self._asked = len(request.workloads)
        self.todo = [each for each in self._known() if not self._exists(each)]
        for each in self.todo:
            writable(self._path(each))

    def measure(self, settings: SoloRunSettings) -> None:
        """Measure and write each, until all are done or the next would pass the deadline."""
        began = monotonic()
        for number, each in enumerate(self.todo):
            if self._too_late(monotonic() - began):
                say(f"{len(self.todo) - number} left at the deadline; --skip-existing does them")
                return
            say(f"{number + 1}/{len(self.todo)} {each.name}")
            self._measure_one(each, settings)

    def _measure_one(self, each: Workload, settings: SoloRunSettings) -> None:
        began = monotonic()
        try:
            # This process must not disturb the tenants.
            os.sched_setaffinity(0, spare_cores([cores_for(each, settings)], settings.host_cores))
            profile = profile_alone(each, settings)
            path = self._path(each)
            write_whole(path, profile_text(profile))
            say(f"  {path}")
        except AdvisorError as error:
            self._fail(each.name, error)
            # A client that died can leave an MPS server that serves nobody.
            settings.session.close()
        self._seconds.append(monotonic() - began)

    def verdict(self) -> int:
        """The exit code, after printing what failed.

        Raises:
            AdvisorError: That of the only workload.
        """
        if not self._failures:
            return 0
        if self._asked == 1:
            raise self._failures[0][1]
        say(f"{len(self._failures)} of {self._asked} failed:")
        for name, error in self._failures:
            say(f"  {name}: {error}")
        return AdvisorError.exit_code

    def _known(self) -> Iterator[Workload]:
        for each in self._request.workloads:
            try:
                yield workload(each) if isinstance(each, str) else each
            except InvalidInput as error:
                self._fail(str(each), error)

    def _fail(self, name: str, error: AdvisorError) -> None:
        say(f"  {name} failed: {error}")
        self._failures.append((name, error))

    def _exists(self, each: Workload) -> bool:
        return self._request.skip_existing and self._path(each).exists()

    def _path(self, each: Workload) -> Path:
        return self._out / f"{each.name}.json"

    def _too_late(self, passed_s: float) -> bool:
        first_s = _FIRST_WITH_PROBE_S if self._request.probe else _FIRST_S
        next_s = sum(self._seconds) / len(self._seconds) if self._seconds else first_s
        deadline_s = self._request.deadline_s
        return deadline_s is not None and passed_s + next_s > deadline_s
