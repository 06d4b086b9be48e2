"""Runners measure tasks one at a time on one device: in a process here, or on a Ray cluster."""

import logging
import os
import signal
import subprocess
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from threading import Condition
from typing import Any, Protocol

from advisor.errors import AdvisorError, GpuUnavailable, InvalidInput, with_article
from advisor.hardware.machine import allowed_cores, split_cores
from advisor.measure.device import devices_in, find_device
from advisor.measure.mps import bench_on
from advisor.measure.pace import Timing
from advisor.measure.process import INTERRUPTED, start_inner, sweep
from advisor.measure.profile import profile_alone
from advisor.measure.profile_command import idle_power_w
from advisor.measure.run_list import PlannedRun
from advisor.measure.shared_run import measure
from advisor.measure.tenant import error_of
from advisor.workload.profile import Profile
from advisor.workload.run import Run
from advisor.workload.spec import Workload

Task = PlannedRun | Workload
"""A run, one of `single_runs`, or a workload to profile."""

Record = Run | Profile


@dataclass(frozen=True, slots=True)
class RunnerSettings:
    """The settings of a runner.

    Attributes:
        device: GPU index or UUID, or ``"cpu"``.
        cores: Host cores for it and its tenants alone.
        probe: Whether profiles have an MPS probe.
        command: The user's command line.
    """

    device: str
    cores: tuple[int, ...]
    timing: Timing
    probe: bool
    command: str


def serve(argv: Sequence[str]) -> int:
    """Serve the connection of the descriptor ``argv[0]`` until it closes; return the exit code.

    An answer is ``("done", record)`` or ``("failed", exit code, message)``; after a failure that is
    not the user's to correct (`InvalidInput`), a new runner should replace it.
    """
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
    device = find_device(settings.device)
    with bench_on(device, settings.cores, settings.command) as bench:
        idle_w = idle_power_w(device)

        def record_of(task: Task) -> Record:
            if isinstance(task, PlannedRun):
                return measure(task, bench, settings.timing)
            return profile_alone(task, bench, idle_w, probe=settings.probe)

        connection.send(("done", device.key))
        while (task := connection.recv()) is not None:
            connection.send(_attempt(partial(record_of, task)))


def _attempt(work: Callable[[], object]) -> tuple[Any, ...]:
    try:
        return ("done", work())
    except AdvisorError as error:
        return ("failed", error.exit_code, str(error))


# Claiming a GPU that a run has just released takes seconds.
_START_S = 120.0

# Longer than the timeouts that a measurement has for all its tenants.
_LONGEST_TASK_S = 1800.0

_TEARDOWN_S = 60.0


class Runner(Protocol):
    """Measures on one device, on this host or another.

    Attributes:
        name: Of the device, for files and messages.
    """

    name: str

    def start(self) -> None:
        """Start, or start again after it was lost; raises AdvisorError if it does not start."""

    def measured(self, task: Task) -> Record:
        """Measure `task`.

        Raises:
            InvalidInput: No runner can measure it.
            AdvisorError: This runner cannot go on, and must be started again.
        """

    def stop(self) -> None:
        """End it and all that it started, at any time."""


class LocalRunner:
    """A runner in a process on this host; it and all that it started die when this process does."""

    def __init__(self, name: str, settings: RunnerSettings) -> None:
        self.name = name
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._lifeline = -1

    def start(self) -> None:
        self._connection, its = Pipe()
        self._process, self._lifeline = start_inner(
            "advisor.measure.campaign_runner:serve", [str(its.fileno())], keep=[its.fileno()]
        )
        its.close()  # or its death would not close the pipe
        self._answer(self._settings, _START_S)

    def measured(self, task: Task) -> Record:
        record: Record = self._answer(task, _LONGEST_TASK_S)
        return record

    def _answer(self, message: Task | RunnerSettings, timeout_s: float) -> Any:
        """The result of the process; raises the error that it had."""
        if self._connection is None:
            raise AdvisorError("it was ended")
        answer = None
        try:
            self._connection.send(message)
            if self._connection.poll(timeout_s):
                answer = self._connection.recv()
        except (EOFError, OSError):
            reason = "it closed its connection"
            with suppress(subprocess.TimeoutExpired):
                code = self._process.wait(10) if self._process else 0
                reason = f"it ended with exit status {code}"
                if code < 0:
                    reason = f"it was killed by {signal.Signals(-code).name}"
            raise AdvisorError(reason) from None
        if answer is None:
            raise AdvisorError(f"no answer within {timeout_s:.0f} s")
        if answer[0] != "done":
            raise error_of(*answer[1:])
        return answer[1]

    def stop(self) -> None:
        """Interrupt the process, and kill it if that fails."""
        process, self._process = self._process, None
        if process is None:
            return
        os.close(self._lifeline)
        try:
            process.wait(_TEARDOWN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if self._connection is not None:
            self._connection.close()
        sweep()  # if it was killed, its folder and its MPS daemon are left


def start_all(runners: Sequence[Runner]) -> None:
    """Start all at once; raise the error of one that does not start."""
    with ThreadPoolExecutor(len(runners)) as pool:
        list(pool.map(lambda runner: runner.start(), runners))


def stop_all(runners: Sequence[Runner]) -> None:
    """Stop all at once."""
    with ThreadPoolExecutor(max(1, len(runners))) as pool:
        list(pool.map(lambda runner: runner.stop(), runners))


# Starting or stopping an MPS daemon takes about a second, so a runner gets up to this many runs
# that need it in one state ...
_BLOCK = 8
# ... among the first this many: solo runs must stay in their places between the others.
_LOOK_AHEAD = 24


class TaskQueue:
    """The tasks left to do; every method may be called from any runner's thread.

    Args:
        tasks: In the order in which they should be done.
        runners: The names of all runners.

    Attributes:
        over: Whether it was closed.
    """

    def __init__(self, tasks: Sequence[Task], runners: Collection[str]) -> None:
        self._waiting = list(tasks)
        self._runners = set(runners)
        self._under_way = 0
        self._changed = Condition()
        self.over = False

    def take(self) -> list[Task]:
        """The next tasks of a runner; waits while others may give some back; empty at the end.

        The caller must report each task as `done` or give it `back`.
        """
        with self._changed:
            while not self.over:
                if block := self._block():
                    self._under_way += len(block)
                    return block
                if not (self._under_way or self._waiting):
                    break
                self._changed.wait()
            self._changed.notify_all()
            return []

    def _block(self) -> list[Task]:
        """The first waiting task, and some soon after it that need MPS in the same state."""
        if not self._waiting:
            return []
        # Smaller towards the end, so that no runner has much left when the others are done.
        size = max(1, min(_BLOCK, len(self._waiting) // (2 * max(1, len(self._runners)))))
        with_mps, near = _needs_mps(self._waiting[0]), self._waiting[:_LOOK_AHEAD]
        block = [task for task in near if _needs_mps(task) is with_mps][:size]
        taken = set(map(id, block))
        self._waiting = [task for task in self._waiting if id(task) not in taken]
        return block

    def done(self) -> None:
        """Note that a task is done, with or without a record."""
        with self._changed:
            self._under_way -= 1
            self._changed.notify_all()

    def back(self, tasks: Sequence[Task]) -> None:
        """Put back `tasks` that were taken and not done, before all others."""
        with self._changed:
            self._waiting[:0] = tasks
            self._under_way -= len(tasks)
            self._changed.notify_all()

    def leave(self, runner: str) -> None:
        """Note that `runner` takes no further task."""
        with self._changed:
            self._runners.discard(runner)
            self._changed.notify_all()

    def close(self) -> None:
        """Give out no further task."""
        with self._changed:
            self.over = True
            self._changed.notify_all()

    @property
    def left(self) -> int:
        """Number of tasks that were not taken."""
        with self._changed:
            return len(self._waiting)


def _needs_mps(task: Task) -> bool:
    """Return whether it begins with an MPS daemon running."""
    return isinstance(task, PlannedRun) and task.groups[0][1].under_mps


# A cluster with free resources starts an actor in seconds, and a runner ends in seconds.
_TIMEOUT_S = 120.0


class Actor:
    """A Ray actor: it holds a whole GPU, and passes tasks to a runner on its node.

    Its process touches no GPU. Its runner finds the GPU that Ray assigned by the driver's index or
    UUID, and shows its tenants that one by UUID; so how Ray masks GPUs does not matter.
    """

    def __init__(self) -> None:
        self._runner: LocalRunner | None = None

    def place(self, gpu: str) -> tuple[str, str, tuple[int, ...]]:
        """Return Ray's id of its node, its device of the model `gpu`, and its host cores."""
        import ray

        context = ray.get_runtime_context()
        node = context.get_node_id()
        device = next(iter(context.get_accelerator_ids().get("GPU", ())), "cpu")
        key = find_device(device).key
        if key != gpu:
            raise InvalidInput(
                f"the plan is for {gpu}, and Ray's node {node[:8]} has {with_article(key)}"
            )
        return node, device, allowed_cores()

    def start(self, settings: RunnerSettings) -> None:
        """Start a runner."""
        self.stop()
        sweep()  # removes what killed runs left on this node
        self._runner = LocalRunner(settings.device, settings)
        self._runner.start()

    def measured(self, task: Task) -> Record:
        """Measure `task` on the runner."""
        if self._runner is None:
            raise AdvisorError("it was not started")
        return self._runner.measured(task)

    def stop(self) -> None:
        """End the runner."""
        if self._runner is not None:
            self._runner.stop()
            self._runner = None


class ClusterRunner:
    """A runner on the node of its actor, by `settings` for that place."""

    def __init__(
        self, name: str, remote: Any, actor: Any, node: str, gpu: str, settings: RunnerSettings
    ) -> None:
        self.name = name
        self._remote = remote
        self._actor: Any = actor
        self._node = node
        self._gpu = gpu
        self.settings = settings

    def start(self) -> None:
        """Start it; a lost actor is started again on the same node, if that is still alive."""
        if self._actor is None:
            self._actor = self._another()
        _result_from_ray(self._actor.start.remote(self.settings), _TIMEOUT_S)

    def _another(self) -> Any:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        nodes = ray.nodes()  # type: ignore[no-untyped-call]
        if not any(each["NodeID"] == self._node and each["Alive"] for each in nodes):
            raise AdvisorError(f"Ray's node {self._node[:8]} is gone")
        here = NodeAffinitySchedulingStrategy(node_id=self._node, soft=False)
        actor = self._remote.options(scheduling_strategy=here).remote()
        _, device, _ = _result_from_ray(actor.place.remote(self._gpu), _TIMEOUT_S)
        self.settings = replace(self.settings, device=device)
        return actor

    def measured(self, task: Task) -> Record:
        record: Record = _result_from_ray(self._actor.measured.remote(task))
        return record

    def stop(self) -> None:
        import ray

        actor, self._actor = self._actor, None
        if actor is None:
            return
        with suppress(AdvisorError):
            _result_from_ray(actor.stop.remote(), _TIMEOUT_S)
        ray.kill(actor)


def _result_from_ray(reference: Any, timeout_s: float | None = None) -> Any:
    """The result of a remote call; an AdvisorError if the actor is lost or does not answer."""
    import ray

    try:
        return ray.get(reference, timeout=timeout_s)
    except ray.exceptions.RayTaskError as error:
        cause = error.cause
        if isinstance(cause, AdvisorError):
            raise cause from None
        raise AdvisorError(f"its Ray actor: {cause!r}") from None
    except (ray.exceptions.RayError, ray.exceptions.GetTimeoutError) as error:
        raise AdvisorError(f"its Ray actor is lost ({type(error).__name__})") from None


@contextmanager
def cluster_runners(
    words: Namespace, gpu: str, settings: RunnerSettings
) -> Iterator[Sequence[Runner]]:
    """Start runners on a Ray cluster; yield them.

    In `settings`, device and cores are replaced by those of each place.

    Raises:
        InvalidInput: Ray is not installed, devices or cores were given, or a GPU is another model.
        GpuUnavailable: There is no such cluster, or it has no GPU free.
    """
    if words.cores or (words.devices and gpu != "cpu"):
        raise InvalidInput("--ray takes all free GPUs of Ray: leave out --devices and --cores")
    ray = _connected_ray(words.ray)
    runners: list[ClusterRunner] = []
    try:
        count = len(devices_in(words.devices or "cpu"))
        if gpu != "cpu":
            count = int(ray.available_resources().get("GPU", 0))
        if not count:
            raise GpuUnavailable(
                "the Ray cluster has no GPU free. `ray status` says who uses them."
            )
        # Ray must not restart a lost actor: its task is measured again by the campaign.
        remote = ray.remote(
            num_cpus=1,
            num_gpus=0 if gpu == "cpu" else 1,
            max_restarts=0,
            max_concurrency=2,  # it can be stopped while it waits for an answer
            scheduling_strategy="SPREAD",
        )(Actor)
        actors = [remote.remote() for _ in range(count)]
        places = [_result_from_ray(actor.place.remote(gpu), _TIMEOUT_S) for actor in actors]
        on_node = Counter(node for node, _, _ in places)
        before: Counter[str] = Counter()
        for actor, (node, device, cores) in zip(actors, places, strict=True):
            number = before[node]
            before[node] += 1
            name, own = f"{node[:8]}-{device}", cores
            if gpu != "cpu":
                own = split_cores(cores, on_node[node])[number]
            elif number:  # on the CPU of one node, several would have one name
                name += f"-{number}"
            its = replace(settings, device=device, cores=own)
            runners.append(ClusterRunner(name, remote, actor, node, gpu, its))
        yield runners
    finally:
        stop_all(runners)
        ray.shutdown()


def _connected_ray(address: str) -> Any:
    try:
        import ray
    except ImportError:
        raise InvalidInput("--ray needs Ray: pip install 'advisor[cluster]'") from None
    try:
        ray.init(address=address, logging_level=logging.WARNING)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise GpuUnavailable(f"--ray {address}: {error}. Is the cluster up?") from None
    return ray
