"""The same runners on a Ray cluster: an actor holds a whole GPU, and a runner of its own on it.

The actor's process touches no GPU. Its runner finds the GPU that Ray gave it by the driver's
index or UUID, and shows its tenants that one by UUID; so how Ray masks GPUs does not matter.
"""

import logging
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from advisor.english import with_article
from advisor.errors import AdvisorError, GpuUnavailable, InvalidInput
from advisor.measure.campaign.campaign_options import devices_in
from advisor.measure.campaign.core_shares import split_cores
from advisor.measure.campaign.local_runner import LocalRunner, Runner, stop_all, understood
from advisor.measure.campaign.runner import Answer, Duty, Record, Task
from advisor.measure.process.claimed_device import device_at_hand
from advisor.measure.process.cores import allowed_cores
from advisor.measure.process.supervisor import sweep

# A cluster that has the room starts an actor in seconds, and a runner ends in seconds.
_PATIENCE_S = 120.0


@dataclass(frozen=True, slots=True)
class Place:
    """Where an actor is.

    Attributes:
        node: Ray's id of it.
        device: Index or UUID of the GPU that Ray gave it, or ``"cpu"``.
        key: What that is, in the catalogue's words.
        cores: All host cores that it may use.
    """

    node: str
    device: str
    key: str
    cores: tuple[int, ...]


class Actor:
    """What runs in Ray: hands on what it is told to a runner on its node."""

    def __init__(self) -> None:
        self._runner: LocalRunner | None = None

    def place(self) -> Place:
        """Where it is.

        Raises:
            AdvisorError: The device cannot be used.
        """
        import ray

        context = ray.get_runtime_context()
        device = next(iter(context.get_accelerator_ids().get("GPU", ())), "cpu")
        key = device_at_hand(device).key
        return Place(context.get_node_id(), device, key, allowed_cores())

    def start(self, duty: Duty) -> Answer:
        """Start a runner; how it answers."""
        self.stop()
        sweep()  # what was killed on this node before
        self._runner = LocalRunner(duty.device, duty)
        return self._runner.begun()

    def answer(self, task: Task) -> Answer:
        """What the runner answers to `task`."""
        if self._runner is None:
            return ("broken", AdvisorError.exit_code, "it was not started")
        return self._runner.answer(task)

    def stop(self) -> None:
        """End the runner."""
        if self._runner is not None:
            self._runner.stop()
            self._runner = None


class ClusterRunner:
    """A runner on whatever node its actor is; see `local_runner.Runner`.

    Args:
        remote: The actor's class, as Ray has it.
        actor: The first such actor.
        place: Where that is.
        duty: What it is for.
    """

    def __init__(self, remote: Any, actor: Any, place: Place, duty: Duty) -> None:
        self.name = f"{place.node[:8]}-{place.device}"
        self._remote = remote
        self._actor: Any = actor
        self._place = place
        self._duty = duty

    def start(self) -> None:
        """As `Runner` has it; anew on the same node, where that still lives."""
        if self._actor is None:
            self._actor = self._another()
        understood(_told(self._actor.start.remote(self._duty), _PATIENCE_S))

    def _another(self) -> Any:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        node = self._place.node
        nodes = ray.nodes()  # type: ignore[no-untyped-call]
        if not any(each["NodeID"] == node and each["Alive"] for each in nodes):
            raise AdvisorError(f"Ray's node {node[:8]} is gone")
        here = NodeAffinitySchedulingStrategy(node_id=node, soft=False)
        actor = self._remote.options(scheduling_strategy=here).remote()
        place = _told(actor.place.remote(), _PATIENCE_S)
        self._duty = replace(self._duty, device=place.device)
        return actor

    def measured(self, task: Task) -> Record:
        """As `Runner` has it."""
        record: Record = understood(_told(self._actor.answer.remote(task)))
        return record

    def stop(self) -> None:
        """As `Runner` has it."""
        import ray

        actor, self._actor = self._actor, None
        if actor is None:
            return
        with suppress(AdvisorError):
            _told(actor.stop.remote(), _PATIENCE_S)
        ray.kill(actor)


def _told(reference: Any, patience_s: float | None = None) -> Any:
    """What Ray brings.

    Raises:
        AdvisorError: The actor or its node is gone, or keeps silent.
    """
    import ray

    try:
        return ray.get(reference, timeout=patience_s)
    except ray.exceptions.RayTaskError as error:
        raise _cause(error) from None
    except (ray.exceptions.RayError, ray.exceptions.GetTimeoutError) as error:
        raise AdvisorError(f"its Ray actor is lost ({type(error).__name__})") from None


def _cause(error: Any) -> AdvisorError:
    cause = error.cause
    return cause if isinstance(cause, AdvisorError) else AdvisorError(f"its Ray actor: {cause!r}")


@contextmanager
def cluster_runners(
    asked: Namespace, key: str, duty: Duty
) -> Iterator[tuple[Sequence[Runner], tuple[int, ...]]]:
    """Runners on a Ray cluster, stopped when the block ends, and the cores of the smallest.

    Args:
        asked: The words of the command line.
        key: The GPU model of the plan, or ``"cpu"``.
        duty: What all are for; its device and cores are each place's own.

    Raises:
        InvalidInput: Ray is not installed, or devices or cores were asked for by number.
        GpuUnavailable: No such cluster, or it has no GPU free.
    """
    ray = _connected(asked, key)
    runners: list[ClusterRunner] = []
    try:
        remote = _remote_class(ray, key)
        actors = [remote.remote() for _ in range(_how_many(ray, asked, key))]
        places = [_told(actor.place.remote(), _PATIENCE_S) for actor in actors]
        duties = _duties(places, key, duty)
        runners += map(ClusterRunner, [remote] * len(actors), actors, places, duties)
        yield _named_apart(runners), min((each.cores for each in duties), key=len)
    finally:
        stop_all(runners)
        ray.shutdown()


def _connected(asked: Namespace, key: str) -> Any:
    try:
        import ray
    except ImportError:
        raise InvalidInput("--ray needs Ray: pip install 'advisor[cluster]'") from None
    if asked.cores or (asked.devices and key != "cpu"):
        raise InvalidInput(
            "--ray takes all GPUs that Ray has free: leave out --devices and --cores"
        )
    try:
        ray.init(address=asked.ray, logging_level=logging.WARNING)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise GpuUnavailable(f"--ray {asked.ray}: {error}. Is the cluster up?") from None
    return ray


def _how_many(ray: Any, asked: Namespace, key: str) -> int:
    if key == "cpu":
        return len(devices_in(asked.devices or "cpu"))
    free = int(ray.available_resources().get("GPU", 0))
    if not free:
        raise GpuUnavailable("the Ray cluster has no GPU free. `ray status` says who uses them.")
    return free


def _remote_class(ray: Any, key: str) -> Any:
    # A lost actor is not Ray's to restart: what it held must be done again, and it says where.
    return ray.remote(
        num_cpus=1,
        num_gpus=0 if key == "cpu" else 1,
        max_restarts=0,
        max_concurrency=2,  # it can be stopped while it waits for an answer
        scheduling_strategy="SPREAD",
    )(Actor)


def _duties(places: Sequence[Place], key: str, duty: Duty) -> list[Duty]:
    """The duty of each: a node's cores are split among the places on it."""
    on_node = Counter(place.node for place in places)
    seen: Counter[str] = Counter()
    duties = []
    for place in places:
        if place.key != key:
            raise InvalidInput(
                f"the plan is for {key}, and Ray's node {place.node[:8]} has "
                f"{with_article(place.key)}"
            )
        cores = place.cores
        if key != "cpu":
            cores = split_cores(place.cores, on_node[place.node])[seen[place.node]]
        seen[place.node] += 1
        duties.append(replace(duty, device=place.device, cores=cores))
    return duties


def _named_apart(runners: Sequence[ClusterRunner]) -> Sequence[ClusterRunner]:
    """`runners`, several of one name (on the CPU of one node) numbered."""
    seen: Counter[str] = Counter()
    for runner in runners:
        name = runner.name
        if seen[name]:
            runner.name += f"-{seen[name]}"
        seen[name] += 1
    return runners
