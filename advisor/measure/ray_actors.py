"""Actors on a Ray cluster, whose errors are the advisor's own.

Runs of plans (`advisor.run.on_ray`) and campaigns (`advisor.measure.runners`) have their own
queues: `ray.util.ActorPool` loses the task of an actor that is lost, and cannot replace the actor.
"""

import logging
import os
import re
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from advisor.errors import AdvisorError, GpuUnavailable, require_extra, with_article
from advisor.hardware.gpus import gpu
from advisor.measure.process import error_line

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
        key: Of the catalogue.
        nodes: That live, as Ray lists them.
        on_cpu: Only ``advisor:KEY``, by which a node without GPUs stands for one.

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
        AdvisorError: As the call did.
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
