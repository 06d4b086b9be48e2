"""Runners on a Ray cluster: an actor holds a whole GPU, and starts a runner on it.

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

from advisor.errors import AdvisorError, GpuUnavailable, InvalidInput, with_article
from advisor.hardware.machine import allowed_cores, split_cores
from advisor.measure.campaign_runner import (
    Answer,
    LocalRunner,
    Record,
    Runner,
    RunnerSettings,
    Task,
    result_of,
    stop_all,
)
from advisor.measure.device import devices_in, find_device
from advisor.measure.process import sweep

# A cluster with free resources starts an actor in seconds, and a runner ends in seconds.
_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class GpuOnNode:
    """The place of an actor.

    Attributes:
        node: Ray's id of the node.
        device: Index or UUID of the GPU that Ray assigned, or ``"cpu"``.
        key: Catalogue key of the device.
        cores: All host cores that it may use.
    """

    node: str
    device: str
    key: str
    cores: tuple[int, ...]


class Actor:
    """The Ray actor: passes tasks to a runner on its node."""

    def __init__(self) -> None:
        self._runner: LocalRunner | None = None

    def place(self) -> GpuOnNode:
        """Return its place; raises AdvisorError if the device cannot be used."""
        import ray

        context = ray.get_runtime_context()
        device = next(iter(context.get_accelerator_ids().get("GPU", ())), "cpu")
        key = find_device(device).key
        return GpuOnNode(context.get_node_id(), device, key, allowed_cores())

    def start(self, settings: RunnerSettings) -> Answer:
        """Start a runner; its first answer."""
        self.stop()
        sweep()  # removes what killed runs left on this node
        self._runner = LocalRunner(settings.device, settings)
        return self._runner.begun()

    def answer(self, task: Task) -> Answer:
        """The runner's answer to `task`."""
        if self._runner is None:
            return ("failed", AdvisorError.exit_code, "it was not started")
        return self._runner.answer(task)

    def stop(self) -> None:
        """End the runner."""
        if self._runner is not None:
            self._runner.stop()
            self._runner = None


class ClusterRunner:
    """A runner on its actor's node; see `runner.Runner`."""

    def __init__(self, remote: Any, actor: Any, place: GpuOnNode, settings: RunnerSettings) -> None:
        self.name = f"{place.node[:8]}-{place.device}"
        self._remote = remote
        self._actor: Any = actor
        self._place = place
        self._settings = settings

    def start(self) -> None:
        """See `Runner`; a lost actor is started again on the same node, if that is still alive."""
        if self._actor is None:
            self._actor = self._another()
        result_of(_result_from_ray(self._actor.start.remote(self._settings), _TIMEOUT_S))

    def _another(self) -> Any:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        node = self._place.node
        nodes = ray.nodes()  # type: ignore[no-untyped-call]
        if not any(each["NodeID"] == node and each["Alive"] for each in nodes):
            raise AdvisorError(f"Ray's node {node[:8]} is gone")
        here = NodeAffinitySchedulingStrategy(node_id=node, soft=False)
        actor = self._remote.options(scheduling_strategy=here).remote()
        place = _result_from_ray(actor.place.remote(), _TIMEOUT_S)
        self._settings = replace(self._settings, device=place.device)
        return actor

    def measured(self, task: Task) -> Record:
        """See `Runner`."""
        record: Record = result_of(_result_from_ray(self._actor.answer.remote(task)))
        return record

    def stop(self) -> None:
        """See `Runner`."""
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
    words: Namespace, key: str, settings: RunnerSettings
) -> Iterator[tuple[Sequence[Runner], tuple[int, ...]]]:
    """Start runners on a Ray cluster; yield them, and the cores of the smallest.

    Args:
        words: The parsed command line.
        key: The GPU model of the plan, or ``"cpu"``.
        settings: Of all runners; device and cores are replaced by those of each place.

    Raises:
        InvalidInput: Ray is not installed, or devices or cores were given.
        GpuUnavailable: There is no such cluster, or it has no GPU free.
    """
    ray = _connect(words, key)
    runners: list[ClusterRunner] = []
    try:
        count = len(devices_in(words.devices or "cpu"))
        if key != "cpu":
            count = int(ray.available_resources().get("GPU", 0))
        if not count:
            raise GpuUnavailable(
                "the Ray cluster has no GPU free. `ray status` says who uses them."
            )
        # Ray must not restart a lost actor: its task is measured again by the campaign.
        remote = ray.remote(
            num_cpus=1,
            num_gpus=0 if key == "cpu" else 1,
            max_restarts=0,
            max_concurrency=2,  # it can be stopped while it waits for an answer
            scheduling_strategy="SPREAD",
        )(Actor)
        actors = [remote.remote() for _ in range(count)]
        places = [_result_from_ray(actor.place.remote(), _TIMEOUT_S) for actor in actors]
        settings_of_each = _settings_of_each(places, key, settings)
        runners += map(ClusterRunner, [remote] * len(actors), actors, places, settings_of_each)
        names: Counter[str] = Counter()
        for runner in runners:  # on the CPU of one node, several have one name
            name = runner.name
            runner.name += f"-{names[name]}" * bool(names[name])
            names[name] += 1
        yield runners, min((each.cores for each in settings_of_each), key=len)
    finally:
        stop_all(runners)
        ray.shutdown()


def _connect(words: Namespace, key: str) -> Any:
    try:
        import ray
    except ImportError:
        raise InvalidInput("--ray needs Ray: pip install 'advisor[cluster]'") from None
    if words.cores or (words.devices and key != "cpu"):
        raise InvalidInput("--ray takes all free GPUs of Ray: leave out --devices and --cores")
    try:
        ray.init(address=words.ray, logging_level=logging.WARNING)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise GpuUnavailable(f"--ray {words.ray}: {error}. Is the cluster up?") from None
    return ray


def _settings_of_each(
    places: Sequence[GpuOnNode], key: str, settings: RunnerSettings
) -> list[RunnerSettings]:
    """The settings of each runner: a node's cores are split among the places on it."""
    on_node = Counter(place.node for place in places)
    seen: Counter[str] = Counter()
    settings_of_each = []
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
        settings_of_each.append(replace(settings, device=place.device, cores=cores))
    return settings_of_each
