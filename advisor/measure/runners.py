"""Runners measure tasks one at a time on one device: in a process here, or on a Ray cluster.

`ray.util.ActorPool` loses the task of an actor that is lost, so the queues are our own.
"""

import logging
import os
import re
import signal
import subprocess
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import import_module
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

from advisor.errors import AdvisorError, GpuUnavailable, InvalidInput, require_extra, with_article
from advisor.hardware import DEFAULT_DEVICE
from advisor.hardware.gpus import gpu
from advisor.hardware.machine import allowed_cores, split_cores
from advisor.measure.bench import bench_on
from advisor.measure.device import devices_in, find_device
from advisor.measure.planned_runs import Campaign, PlannedRun
from advisor.measure.process import INTERRUPTED, error_line, start_own, sweep
from advisor.measure.profile import idle_power_w, profile_alone
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
    """A campaign and the user's command, and a runner's device, with host cores of its own."""

    campaign: Campaign
    command: str
    device: str = "cpu"
    cores: tuple[int, ...] = ()


def serve(descriptor: str) -> int:
    """Measure what the connection with this `descriptor` sends, until it closes.

    It sends settings, then tasks; an answer is a record, or an exit code and a message.
    """
    os.set_inheritable(int(descriptor), False)
    with Connection(int(descriptor)) as connection, suppress(EOFError):
        settings: RunnerSettings = connection.recv()
        campaign = settings.campaign
        try:
            device = find_device(settings.device)
            if device.key != campaign.gpu:
                raise InvalidInput(
                    f"the plan is for {campaign.gpu}, and device {settings.device} is {device.key} "
                    f"({device.name}). Choose another --device, or correct the plan's gpu."
                )
            with bench_on(device, settings.cores, settings.command) as bench:
                idle_w = idle_power_w(device)
                answer: Record | tuple[int, str] | None = None
                while True:
                    connection.send(answer)
                    task: Task = connection.recv()
                    try:
                        if isinstance(task, PlannedRun):
                            answer = measure(task, bench, campaign.timing)
                        else:
                            answer = profile_alone(
                                task, bench, idle_w, probe=campaign.profile.probe
                            )
                    except AdvisorError as error:
                        answer = error.exit_code, str(error)
        except AdvisorError as error:
            connection.send((error.exit_code, str(error)))
        except KeyboardInterrupt:
            return INTERRUPTED
    return 0


class LocalRunner:
    """A runner in a process on this host; it and its processes end when this process does.

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
        entry, connection = "advisor.measure.runners:serve", its.fileno()
        self._process, self._lifeline = start_own(
            "inner", entry, str(connection), keep=[connection]
        )
        its.close()  # or its death would not close the pipe
        self._ask(self.settings, 120.0)  # claiming a GPU that was just released takes seconds

    def measured(self, task: Task) -> Record:
        """Measure `task`; raises InvalidInput if no runner can."""
        # Longer than the timeouts that a measurement has for all its tenants.
        return self._ask(task, 1800.0)  # type: ignore[no-any-return]

    def _ask(self, message: Task | RunnerSettings, timeout_s: float) -> Any:
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
            process.wait(60.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._connection.close()
        sweep()  # if it was killed, its folder and its MPS daemon are left


TIMEOUT_S = 120.0
"""A cluster with free resources starts an actor in seconds."""


class ActorLost(AdvisorError):
    """An actor that ended, or whose node is lost."""


def connect(address: str) -> Any:
    """Connect to the cluster at `address`, ``"auto"`` for the running one, and return Ray.

    Raises:
        AdvisorError: Ray is not installed.
        GpuUnavailable: There is no such cluster.
    """
    require_extra("--ray", "ray", "ray")
    # Ray prints what happens to its nodes on stdout, among answers; it reads this when imported.
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".")
    ray = import_module("ray")
    try:
        ray.init(address=address, logging_level=logging.WARNING, log_to_driver=False)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise GpuUnavailable(
            f"--ray {address}: {str(error).rstrip('.')}. Is the cluster up?"
        ) from None
    return ray


def gpu_resource(
    key: str, nodes: Sequence[Mapping[str, Any]], *, on_cpu: bool = False
) -> dict[str, float]:
    """Return the resource, with its amount, by which Ray places an actor on a GPU model.

    That is ``advisor:KEY`` if a node has it, else Ray's own, which marks nodes: it has 1 on each.

    Args:
        key: Key of the catalogue.
        nodes: Living nodes, as Ray lists them.
        on_cpu: Whether only ``advisor:KEY`` counts, which a node without GPUs may have.

    Raises:
        GpuUnavailable: No node has either.
    """
    own, names = f"advisor:{key}", {name for node in nodes for name in node["Resources"]}
    if own in names:
        return {own: 1.0}
    products = [_words(product) for product in gpu(key).products]
    for name in sorted(names):
        kind, _, product = name.partition(":")
        named = kind == "accelerator_type" and any(_words(product) in each for each in products)
        if named and not on_cpu:
            return {name: 0.001}
    raise GpuUnavailable(
        f"no node of the Ray cluster has {own}{'' if on_cpu else ' or an accelerator_type of it'}. "
        f"Start Ray on a node with {with_article(key)}: `ray start --address HEAD "
        f"--resources='{{\"{own}\": N}}'`."
    )


def _words(product: str) -> str:
    """Words of a product between blanks: Ray joins them, as in ``GeForce-RTX-4090``."""
    return f" {product.replace('-', ' ').lower()} "


def make_actor(kind: type, *args: Any, **options: Any) -> Any:
    """Make an actor of the class `kind` with Ray's `options`; Ray does not replace a lost one."""
    return import_module("ray").remote(max_restarts=0, **options)(kind).remote(*args)


def result(reference: Any, timeout_s: float | None = None) -> Any:
    """Return the result of a remote call.

    Raises:
        ActorLost: The actor is lost, or does not answer within `timeout_s`.
        AdvisorError: The call raised it.
    """
    ray = import_module("ray")
    try:
        return ray.get(reference, timeout=timeout_s)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, AdvisorError):
            raise error.cause from None
        raise AdvisorError(f"its Ray actor: {error.cause!r}") from None
    except ray.exceptions.RayError as error:
        raised = re.match(r"[\w.]+Error: .*", error_line(str(error)))  # where it cannot start
        why = raised[0] if raised else type(error).__name__
        raise ActorLost(f"its Ray actor is lost ({why})") from None


def assigned_device() -> str:
    """Return the index or UUID of the GPU that Ray assigned to this actor; ``"cpu"`` without one.

    The driver finds a GPU by these; so how Ray masks GPUs does not matter.
    """
    context = import_module("ray").get_runtime_context()
    return next(iter(context.get_accelerator_ids().get("GPU", ())), "cpu")


def node_name() -> str:
    """Return the start of Ray's id of this node, by which `ray list nodes` shows it."""
    return str(import_module("ray").get_runtime_context().get_node_id())[:8]


class Actor(LocalRunner):
    """A Ray actor: it holds a whole GPU, and its runner measures there.

    Its own process touches no GPU; the runner shows its tenants the GPU by UUID.
    """

    def place(self) -> tuple[str, str, tuple[int, ...]]:
        """Return Ray's id of its node, its device there, and the host cores there."""
        node = import_module("ray").get_runtime_context().get_node_id()
        return node, assigned_device(), allowed_cores()

    def start_with(self, settings: RunnerSettings) -> None:
        """Start the runner on the device that Ray assigned."""
        sweep()  # removes what killed runs left on this node
        self.settings = replace(settings, device=assigned_device())
        self.start()


class ClusterRunner:
    """A runner of a Ray actor; a lost actor is made again on the same `node`, if that still lives.

    Its methods are those of `LocalRunner`.
    """

    def __init__(
        self,
        name: str,
        settings: RunnerSettings,
        resource: Mapping[str, float],
        node: str,
        actor: Any,
    ) -> None:
        self.name, self._settings, self._resource = name, settings, resource
        self._node, self._actor = node, actor

    def start(self) -> None:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        if self._actor is None:
            here = NodeAffinitySchedulingStrategy(node_id=self._node, soft=False)
            self._actor = _actor(self._settings, self._resource, here)
        result(self._actor.start_with.remote(self._settings), TIMEOUT_S)

    def measured(self, task: Task) -> Record:
        return result(self._actor.measured.remote(task))  # type: ignore[no-any-return]

    def stop(self) -> None:
        actor, self._actor = self._actor, None
        if actor is not None:
            with suppress(AdvisorError):
                result(actor.stop.remote(), TIMEOUT_S)
            import_module("ray").kill(actor)


Runner = LocalRunner | ClusterRunner


def _actor(settings: RunnerSettings, resource: Mapping[str, float], strategy: Any) -> Any:
    return make_actor(
        Actor,
        "",
        settings,
        num_cpus=1,
        num_gpus=int(settings.campaign.gpu != "cpu"),
        resources=resource,
        scheduling_strategy=strategy,
        max_concurrency=2,  # it can be stopped while it waits for an answer
    )


def local_runners(device: str | None, cores: str | None, settings: RunnerSettings) -> list[Runner]:
    """Return runners for the devices of this host, each with its device and its share of cores."""
    default = "cpu" if settings.campaign.gpu == "cpu" else DEFAULT_DEVICE
    devices = devices_in(device or default)
    shares = _shares(allowed_cores(cores), len(devices), devices[0])
    return [
        LocalRunner(
            f"cpu{number}" if name == "cpu" else name, replace(settings, device=name, cores=share)
        )
        for number, (name, share) in enumerate(zip(devices, shares, strict=True))
    ]


def cluster_runners(address: str, settings: RunnerSettings, most: int) -> list[Runner]:
    """Return runners on a Ray cluster, each with its share of the cores of its node.

    Args:
        address: Address of the cluster.
        settings: Settings of each runner.
        most: Most runners; on CPUs their number.

    Raises:
        AdvisorError: Ray is not installed.
        GpuUnavailable: There is no such cluster, or it has no GPU of the campaign free.
    """
    on_gpus = settings.campaign.gpu != "cpu"
    ray, resource = connect(address), dict[str, float]()
    if on_gpus:
        nodes = [node for node in ray.nodes() if node["Alive"]]
        resource = gpu_resource(settings.campaign.gpu, nodes)
        having = [
            node["Resources"] for node in nodes if resource.keys() <= node["Resources"].keys()
        ]
        gpus = sum(each.get("GPU", 0) for each in having)
        most = int(min(most, gpus, ray.available_resources().get("GPU", 0)))
    if not most:
        raise GpuUnavailable("the Ray cluster has no GPU free. `ray status` shows who has them.")
    on_node = defaultdict[str, list[tuple[Any, str, tuple[int, ...]]]](list)
    for actor in [_actor(settings, resource, "SPREAD") for _ in range(most)]:
        node, device, cores = result(actor.place.remote(), TIMEOUT_S)
        on_node[node].append((actor, device, cores))
    runners: list[Runner] = []
    for node, placed in on_node.items():
        shares = _shares(placed[0][2], len(placed), placed[0][1])
        for number, ((actor, device, _), cores) in enumerate(zip(placed, shares, strict=True)):
            name = f"{node[:8]}-{device}" + (f"-{number}" if number and not on_gpus else "")
            own = replace(settings, cores=cores)
            runners.append(ClusterRunner(name, own, resource, node, actor))
    return runners


def _shares(cores: Sequence[int], runners: int, device: str) -> tuple[tuple[int, ...], ...]:
    """Cores of each runner of a host; on the CPU, whose figures are not kept, all share all."""
    return (tuple(cores),) * runners if device == "cpu" else split_cores(cores, runners)
