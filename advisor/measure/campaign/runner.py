"""The inside of a runner: a process of its own that measures on one device what it is handed.

An answer is ``("done", record)``, ``("refused", message)`` for what the user must mend, or
``("broken", exit code, message)`` after which this runner should be replaced by a fresh one.
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
from advisor.measure.solo.batch import idle_power_w
from advisor.measure.solo.solo_run import SoloRunSetup, cores_for, profile_alone
from advisor.workload.profile import Profile
from advisor.workload.run import Run
from advisor.workload.spec import Workload

# What a runner is handed: a mix or whole jobs to run, or a workload to profile.
Task = PlannedMix | CompletionRun | Workload
Record = Run | Profile
Answer = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Duty:
    """What a runner is for, as long as it lives.

    Attributes:
        device: GPU index or UUID, or ``"cpu"``.
        cores: Host cores that are its and its tenants' alone.
        timing: How long to look.
        probe: Whether profiles have an MPS probe.
        command: What the user typed.
    """

    device: str
    cores: tuple[int, ...]
    timing: Timing
    probe: bool
    command: str


def serve(argv: Sequence[str]) -> int:
    """Obey over the connection whose descriptor is ``argv[0]`` until it closes; the exit code."""
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


def _serve(connection: Connection, duty: Duty) -> None:
    device = device_at_hand(duty.device)
    os.sched_setaffinity(0, duty.cores)
    with bench_on(device, duty.cores, duty.timing, duty.command) as bench:
        alone = _alone_on(bench, duty)
        connection.send(("done", device.key))
        while (task := connection.recv()) is not None:
            connection.send(_attempt(lambda task=task: _measured(task, bench, alone)))  # type: ignore[misc]


def _alone_on(bench: Bench, duty: Duty) -> SoloRunSetup:
    stage = bench.setting.stage
    return SoloRunSetup(
        stage=stage,
        origin=Origin(stage.device, duty.command, len(bench.setting.cores)),
        host_cores=bench.setting.cores,
        cores=bench.allowed,
        probe=duty.probe,
        idle_power_w=idle_power_w(stage.device),
    )


def _measured(task: Task, bench: Bench, alone: SoloRunSetup) -> Record:
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
