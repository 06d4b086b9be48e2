"""``advisor profile``: profiles workloads one after another, and writes each file as it is done."""

from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import mean, median
from time import monotonic

from advisor.errors import AdvisorError, InvalidInput
from advisor.measure.process.claimed_device import (
    Device,
    claimed,
    device_at_hand,
    power_readings_w,
    refuse_other,
)
from advisor.measure.process.cores import allowed_cores, leave_to_tenants
from advisor.measure.process.mps_session import mps_session_on
from advisor.measure.process.provenance import Origin, command_line
from advisor.measure.process.scratch_folders import scratch_folder
from advisor.measure.process.supervisor import say
from advisor.measure.process.tenants import warm_up
from advisor.measure.solo.profile_options import profile_parser, timm_workloads
from advisor.measure.solo.script_options import script_workload, split_command
from advisor.measure.solo.solo_run import SoloRunSettings, profile_alone
from advisor.workload.files import user_folder
from advisor.workload.named_workloads import workload
from advisor.workload.spec import Workload
from advisor.workload.writing import profile_text, writable, writable_folder, write_whole

# Assumed seconds of a workload before the first has been measured.
_FIRST_S, _FIRST_WITH_PROBE_S = 25.0, 60.0


def run(argv: Sequence[str]) -> int:
    """Profile what `argv` names; 0 if none failed, else 1 after listing the failures.

    Runs under a supervisor.

    Raises:
        GpuUnavailable: There is no such GPU, or another process uses it.
        InvalidInput: The request is invalid as a whole, or its only workload is.
        SystemExit: The words ask for help (0), or cannot be parsed (2).
    """
    words, command = split_command(argv)
    asked = profile_parser().parse_args(words)
    asked.workloads += script_workload(asked, command) or timm_workloads(asked)
    device = device_at_hand(asked.device)
    refuse_other(device, asked.gpu)
    out = writable_folder(asked.out or user_folder("profiles") / device.key)
    batch = _Batch(asked, out)
    if batch.todo:
        line = command_line("advisor.profiling", argv)
        with _settings_of(device, asked, line, batch.todo) as settings:
            batch.measure(settings)
    return batch.verdict()


@contextmanager
def _settings_of(
    device: Device, asked: Namespace, command: str, todo: Sequence[Workload]
) -> Iterator[SoloRunSettings]:
    ours, allowed = allowed_cores(), allowed_cores(asked.cores)
    with claimed(device, command), scratch_folder() as folder:
        idle_w = idle_power_w(device)
        leave_to_tenants([allowed[:1]], ours)
        if any(each.script is None for each in todo):  # a script starts by itself
            warm_up(folder)
        with mps_session_on(device, folder) as session:
            yield SoloRunSettings(
                session=session, origin=Origin(device, command, len(ours)), host_cores=ours,
                cores=allowed, probe=asked.probe, idle_power_w=idle_w, patience_s=asked.patience,
            )  # fmt: skip


def idle_power_w(device: Device) -> float | None:
    """Power of a claimed device on which nothing has run yet; None if not metered."""
    known = power_readings_w(device, 5, 0.1)
    return median(known) if known else None


class _Batch:
    """The workloads still to profile, and the errors of those that failed.

    Attributes:
        todo: Those to measure, in order.
    """

    def __init__(self, asked: Namespace, out: Path) -> None:
        self._asked = asked
        self._out = out
        self._failures: list[tuple[str, AdvisorError]] = []
        self._seconds: list[float] = []
        skip = asked.skip_existing
        self.todo = [each for each in self._known() if not (skip and self._path(each).exists())]
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
        """Write its profile, or note why there is none."""
        began = monotonic()
        try:
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
        if len(self._asked.workloads) == 1:
            raise self._failures[0][1]
        listed = self._failures if self._seconds else []  # else these lines are the last anyhow
        say(f"{len(self._failures)} of {len(self._asked.workloads)} failed{':' * bool(listed)}")
        for name, error in listed:
            say(f"  {name}: {error}")
        return AdvisorError.exit_code

    def _known(self) -> Iterator[Workload]:
        for each in self._asked.workloads:
            try:
                found = workload(each) if isinstance(each, str) else each
                yield found if self._asked.data is None else self._reading(found)
            except InvalidInput as error:
                self._fail(str(each), error)

    def _reading(self, found: Workload) -> Workload:
        from advisor.zoo.image_files import found_images

        folder: Path = self._asked.data
        return found.reading(folder, found_images(folder).count)

    def _fail(self, name: str, error: AdvisorError) -> None:
        if len(self._asked.workloads) > 1:  # the error of a single one is told in the end
            say(f"  {name} failed: {error}")
        self._failures.append((name, error))

    def _path(self, each: Workload) -> Path:
        return self._out / f"{each.name}.json"

    def _too_late(self, passed_s: float) -> bool:
        next_s = mean(self._seconds or [_FIRST_WITH_PROBE_S if self._asked.probe else _FIRST_S])
        deadline_s = self._asked.deadline
        return deadline_s is not None and passed_s + next_s > deadline_s
