"""Runners measure tasks one at a time on one device: in a process here, or on a Ray cluster."""

import logging
import os
import signal
import subprocess
from argparse import Namespace
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from importlib import import_module
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

from advisor.errors import AdvisorError, GpuUnavailable, InvalidInput
from advisor.hardware import DEFAULT_DEVICE
from advisor.hardware.machine import allowed_cores, split_cores
from advisor.measure.device import devices_in, find_device
from advisor.measure.mps import Bench, bench_on
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
        gpu: Catalogue key of the plan, or ``"cpu"``.
        device: GPU index or UUID, or ``"cpu"``.
        cores: Host cores for it and its tenants alone.
        probe: Whether profiles have an MPS probe.
        command: The user's command line.
    """

    gpu: str
    device: str
    cores: tuple[int, ...]
    timing: Timing
    probe: bool
    command: str


def serve(argv: Sequence[str]) -> int:
    """Measure what the connection of the descriptor ``argv[0]`` sends, until it closes.

    It sends settings, then tasks; an answer is a record, or an exit code and a message.
    """
    os.set_inheritable(int(argv[0]), False)
    with Connection(int(argv[0])) as connection, suppress(EOFError):
        settings: RunnerSettings = connection.recv()
        try:
            device = find_device(settings.device)
            if device.key != settings.gpu:
                raise InvalidInput(
                    f"the plan is for {settings.gpu}, and device {settings.device} is {device.key} "
                    f"({device.name}). Choose other --devices, or correct the plan's gpu."
                )
            with bench_on(device, settings.cores, settings.command) as bench:
                idle_w = idle_power_w(device)
                connection.send(None)
                while True:
                    connection.send(_answer(connection.recv(), bench, idle_w, settings))
        except AdvisorError as error:
            connection.send((error.exit_code, str(error)))
        except KeyboardInterrupt:
            return INTERRUPTED
    return 0


def _answer(
    task: Task, bench: Bench, idle_w: float | None, settings: RunnerSettings
) -> Record | tuple[int, str]:
    try:
        if isinstance(task, PlannedRun):
            return measure(task, bench, settings.timing)
        return profile_alone(task, bench, idle_w, probe=settings.probe)
    except AdvisorError as error:
        return error.exit_code, str(error)


# Claiming a GPU that a run has just released takes seconds.
_START_S = 120.0

# Longer than the timeouts that a measurement has for all its tenants.
_LONGEST_TASK_S = 1800.0

_TEARDOWN_S = 60.0


class LocalRunner:
    """A runner in a process on this host; it and all that it started die when this process does.

    Each method raises AdvisorError if the runner cannot go on, and must be started again.
    """

    def __init__(self, name: str, settings: RunnerSettings) -> None:
        self.name = name
        self.settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self._connection, _ = Pipe()
        self._lifeline = -1

    def start(self) -> None:
        """Start, or start again after `stop`."""
        self._connection, its = Pipe()
        self._process, self._lifeline = start_inner(
            "advisor.measure.campaign_runner:serve", [str(its.fileno())], keep=[its.fileno()]
        )
        its.close()  # or its death would not close the pipe
        self._ask(self.settings, _START_S)

    def measured(self, task: Task) -> Record:
        """Measure `task`; raises InvalidInput if no runner can."""
        record: Record = self._ask(task, _LONGEST_TASK_S)
        return record

    def _ask(self, message: Task | RunnerSettings, timeout_s: float) -> Any:
        """The answer of the process; raises the error that it had."""
        try:
            self._connection.send(message)
            if not self._connection.poll(timeout_s):
                raise AdvisorError(f"no answer within {timeout_s:.0f} s")
            answer = self._connection.recv()
        except (EOFError, OSError):
            reason = "it closed its connection"
            with suppress(subprocess.TimeoutExpired):
                code = self._process.wait(10) if self._process else 0
                reason = f"it ended with exit status {code}"
                if code < 0:
                    reason = f"it was killed by {signal.Signals(-code).name}"
            raise AdvisorError(reason) from None
        if isinstance(answer, tuple):
            raise error_of(*answer)
        return answer

    def stop(self) -> None:
        """End it and all that it started, at any time: by an interrupt, else by force."""
        process, self._process = self._process, None
        if process is None:
            return
        os.close(self._lifeline)
        try:
            process.wait(_TEARDOWN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._connection.close()
        sweep()  # if it was killed, its folder and its MPS daemon are left


# A cluster with free resources starts an actor in seconds, and a runner ends in seconds.
_TIMEOUT_S = 120.0


class Actor(LocalRunner):
    """A Ray actor: it holds a whole GPU, and its runner measures there.

    Its own process touches no GPU. The runner finds the GPU that Ray assigned by the driver's index
    or UUID, and shows its tenants that one by UUID; so how Ray masks GPUs does not matter.
    """

    def place(self) -> tuple[str, str, tuple[int, ...]]:
        """Return Ray's id of its node, its device there, and the host cores there."""
        context = import_module("ray").get_runtime_context()
        device = next(iter(context.get_accelerator_ids().get("GPU", ())), "cpu")
        return context.get_node_id(), device, allowed_cores()

    def start_with(self, settings: RunnerSettings) -> None:
        """Start the runner."""
        sweep()  # removes what killed runs left on this node
        self.settings = settings
        self.start()


class ClusterRunner:
    """A runner of a Ray actor; a lost actor is made again on the same `node`, if that still lives.

    Its methods are those of `LocalRunner`.
    """

    def __init__(self, name: str, actor: Any, node: str, settings: RunnerSettings) -> None:
        self.name = name
        self._actor, self._node = actor, node
        self._settings = settings

    def start(self) -> None:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        if self._actor is None:
            here = NodeAffinitySchedulingStrategy(node_id=self._node, soft=False)
            self._actor = _remote(self._settings.gpu != "cpu", here).remote("", self._settings)
            _, device, _ = _result(self._actor.place.remote(), _TIMEOUT_S)
            self._settings = replace(self._settings, device=device)
        _result(self._actor.start_with.remote(self._settings), _TIMEOUT_S)

    def measured(self, task: Task) -> Record:
        record: Record = _result(self._actor.measured.remote(task))
        return record

    def stop(self) -> None:
        actor, self._actor = self._actor, None
        if actor is not None:
            with suppress(AdvisorError):
                _result(actor.stop.remote(), _TIMEOUT_S)
            import_module("ray").kill(actor)


Runner = LocalRunner | ClusterRunner


def _remote(on_gpu: bool, strategy: Any) -> Any:
    """Make the class of actors; the campaign, not Ray, replaces a lost one."""
    decorate = import_module("ray").remote(
        num_cpus=1, num_gpus=int(on_gpu), max_restarts=0, scheduling_strategy=strategy,
        max_concurrency=2,  # it can be stopped while it waits for an answer
    )  # fmt: skip
    return decorate(Actor)


def _result(reference: Any, timeout_s: float | None = None) -> Any:
    """The result of a remote call; an AdvisorError if the actor is lost or does not answer."""
    ray = import_module("ray")
    try:
        return ray.get(reference, timeout=timeout_s)
    except ray.exceptions.RayTaskError as error:
        cause = error.cause
        if isinstance(cause, AdvisorError):
            raise cause from None
        raise AdvisorError(f"its Ray actor: {cause!r}") from None
    except (ray.exceptions.RayError, ray.exceptions.GetTimeoutError) as error:
        raise AdvisorError(f"its Ray actor is lost ({type(error).__name__})") from None


def stop_all(runners: Sequence[Runner]) -> None:
    """Stop all at once."""
    with ThreadPoolExecutor(max(1, len(runners))) as pool:
        list(pool.map(lambda runner: runner.stop(), runners))


@contextmanager
def local_runners(words: Namespace, settings: RunnerSettings) -> Iterator[list[Runner]]:
    """Yield runners for the devices of this host; stop them when the block ends.

    In `settings`, device and cores are replaced by those of each.
    """
    devices = devices_in(words.devices or ("cpu" if settings.gpu == "cpu" else DEFAULT_DEVICE))
    shares = _shares(allowed_cores(words.cores), len(devices), devices[0])
    runners: list[Runner] = [
        LocalRunner(
            f"cpu{number}" if name == "cpu" else name, replace(settings, device=name, cores=cores)
        )
        for number, (name, cores) in enumerate(zip(devices, shares, strict=True))
    ]
    try:
        yield runners
    finally:
        stop_all(runners)


@contextmanager
def cluster_runners(words: Namespace, settings: RunnerSettings) -> Iterator[list[Runner]]:
    """Yield runners on a Ray cluster; stop them when the block ends.

    In `settings`, device and cores are replaced by those of each place.

    Raises:
        InvalidInput: Ray is not installed, devices or cores were given, or a GPU is another model.
        GpuUnavailable: There is no such cluster, or it has no GPU free.
    """
    on_gpus = settings.gpu != "cpu"
    if words.cores or (words.devices and on_gpus):
        raise InvalidInput("--ray takes all free GPUs of Ray: leave out --devices and --cores")
    try:
        ray = import_module("ray")
    except ImportError:
        raise InvalidInput("--ray needs Ray: pip install 'advisor[cluster]'") from None
    try:
        ray.init(address=words.ray, logging_level=logging.WARNING)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise GpuUnavailable(f"--ray {words.ray}: {error}. Is the cluster up?") from None
    runners: list[Runner] = []
    try:
        count = len(devices_in(words.devices or "cpu"))
        if on_gpus:
            count = int(ray.available_resources().get("GPU", 0))
        if not count:
            raise GpuUnavailable(
                "the Ray cluster has no GPU free. `ray status` shows who has them."
            )
        remote = _remote(on_gpus, "SPREAD")
        actors = [remote.remote("", settings) for _ in range(count)]
        on_node = defaultdict[str, list[tuple[Any, str, tuple[int, ...]]]](list)
        for actor in actors:
            node, device, cores = _result(actor.place.remote(), _TIMEOUT_S)
            on_node[node].append((actor, device, cores))
        for node, placed in on_node.items():
            shares = _shares(placed[0][2], len(placed), device)
            for number, ((actor, device, _), cores) in enumerate(zip(placed, shares, strict=True)):
                name = f"{node[:8]}-{device}" + (f"-{number}" if number and not on_gpus else "")
                its = replace(settings, device=device, cores=cores)
                runners.append(ClusterRunner(name, actor, node, its))
        yield runners
    finally:
        stop_all(runners)
        ray.shutdown()


def _shares(cores: Sequence[int], runners: int, device: str) -> tuple[tuple[int, ...], ...]:
    """Cores of each runner of a host; on the CPU, whose figures are not kept, all share all."""
    return (tuple(cores),) * runners if device == "cpu" else split_cores(cores, runners)
