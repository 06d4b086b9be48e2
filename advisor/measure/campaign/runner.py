"""What runs inside a runner process: it measures the tasks that it receives on one device.

An answer is ``("done", record)``, ``("refused", message)`` for an error that the user must correct,
or ``("broken", exit code, message)``, after which this runner should be replaced by a new one.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from advisor.errors import AdvisorError, InvalidInput
from advisor.measure.process.claimed_device import device_at_hand
from advisor.measure.process.cores import spare_cores
from advisor.measure.process.provenance import Origin
from advisor.measure.process.supervisor import INTERRUPTED
from advisor.measure.process.windows import Timing
from advisor.measure.shared.bench import Bench, bench_on
from advisor.measure.shared.planned_run import CompletionRun, PlannedMix
from advisor.measure.solo.profile_command import idle_power_w
from advisor.measure.solo.solo_run import SoloRunSettings, cores_for, profile_alone
from advisor.workload.profile import Profile
from advisor.workload.run import Run
from advisor.workload.spec import Workload

# A task of a runner: a mix or whole jobs to run, or a workload to profile.
Task = PlannedMix | CompletionRun | Workload
Record = Run | Profile
Answer = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class RunnerSettings:
    """The settings of a runner.

    Attributes:
        device: GPU index or UUID, or ``"cpu"``.
        cores: Host cores for it and its tenants alone.
        timing: How long to measure.
        probe: Whether profiles have an MPS probe.
        command: The user's command line.
    """

    device: str
    cores: tuple[int, ...]
    timing: Timing
    probe: bool
    command: str


def serve(argv: Sequence[str]) -> int:
    """Serve the connection whose descriptor is ``argv[0]`` until it closes; the exit code."""
    os.set_inheritable(int(argv[0]), False)
    connection = Connection(int(argv[0]))
    try:
        answer = _attempt(lambda: _serve(connection, connection.recv()))
        if answer[0] != "done":
            connection.send(answer)
    except EOFError:
        pass
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def _serve(connection: Connection, settings: RunnerSettings) -> None:
    device = device_at_hand(settings.device)
    os.sched_setaffinity(0, settings.cores)
    with bench_on(device, settings.cores, settings.timing, settings.command) as bench:
        alone = _alone_on(bench, settings)
        connection.send(("done", device.key))
        while (task := connection.recv()) is not None:
            connection.send(_attempt(lambda task=task: _measured(task, bench, alone)))  # type: ignore[misc]


def _alone_on(bench: Bench, settings: RunnerSettings) -> SoloRunSettings:
    session = bench.settings.session
    return SoloRunSettings(
        session=session,
        origin=Origin(session.device, settings.command, len(bench.settings.cores)),
        host_cores=bench.settings.cores,
        cores=bench.allowed,
        probe=settings.probe,
        idle_power_w=idle_power_w(session.device),
    )


def _measured(task: Task, bench: Bench, alone: SoloRunSettings) -> Record:
    if isinstance(task, PlannedMix | CompletionRun):
        return bench.measure(task)
    os.sched_setaffinity(0, spare_cores([cores_for(task, alone)], alone.host_cores))
    return profile_alone(task, alone)


def _attempt(work: Callable[[], object]) -> Answer:
    try:
        return ("done", work())
    except InvalidInput as error:
        return ("refused", str(error))
    except AdvisorError as error:
        return ("broken", error.exit_code, str(error))
