"""Plans as Kubernetes Jobs whose GPUs NVIDIA's device plugin gives out, with its sharing and MIG.

After the READMEs of NVIDIA's k8s-device-plugin (api/config/v1) and the documents of its GPU
operator. The plugin divides all GPUs of a node into equal replicas. Shared resources get another
name here, ``nvidia.com/gpu.shared``: so no other pod takes a replica for a whole GPU, and nodes
keep the label of their GPU. Under MPS a replica has 1/N of the memory and 100/N percent of the SMs,
rounded down. The plugin does not share MIG instances by MPS.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from advisor.hardware.machine import client_variables
from advisor.launch.kubernetes import (
    MIG,
    NODE,
    PLUGIN,
    Document,
    apply_lines,
    config_map,
    head,
    manifest,
    on_product,
    shared_memory,
    training_job,
)
from advisor.launch.kubernetes_places import (
    GPU,
    Places,
    placed_starts,
    places_by_kind,
    refusal,
    resource_of,
)
from advisor.launch.launch_plan import LaunchPartition, LaunchPlan
from advisor.launch.mig_parted import mig_parted_document

_FORM = "kubernetes"
_NAMESPACE = "gpu-operator"
_NO_ORDER = (
    "# Kubernetes starts pods in any order, each on any GPU of its kind with a free place: jobs",
    "# may meet in other groups than planned. --format kubernetes-script keeps order and groups.",
)


def kubernetes_text(plans: Sequence[LaunchPlan]) -> str:
    """Return a Job for each training, and how the device plugin shares or MIG divides the GPUs.

    Raises:
        InvalidInput: The device plugin cannot express it.
    """
    kinds = places_by_kind(plans, _FORM)
    for plan in plans:
        for part in plan.partitions:
            kind = kinds[plan.gpu.key]
            _check_replicas(plan, part, kind[resource_of(part)], cut=bool(kind.keys() - {GPU}))
    set_up = [*_plugin_config(kinds), *mig_config(plans)]
    labels = [
        ("nvidia.com/device-plugin.config", key) for key, own in kinds.items() if _sharing(own)
    ]
    labels += mig_labels(plans)
    lines = [*_NO_ORDER, *apply_lines(set_up, labels)]
    jobs = [
        training_job(
            start,
            {"limits": {_shared_name(resource_of(part), own): start.job.gpus}},
            variables=client_variables(None, start.memory_cap_mib or start.memory_mib)
            if own.strategy == "mps"
            else {},
            pod=on_product(plan.gpu),
            folders={} if own.strategy == "mps" else shared_memory([start]),
        )
        for plan, part, start in placed_starts(plans)
        for own in [kinds[plan.gpu.key][resource_of(part)]]
    ]
    return manifest(head(plans, lines), [*set_up, *jobs])


def _check_replicas(plan: LaunchPlan, part: LaunchPartition, places: Places, *, cut: bool) -> None:
    """Check that the plugin's replicas under MPS are what `part` was predicted with.

    `cut`: Whether other GPUs of this model have MIG instances.
    """
    if places.strategy != "mps":
        return
    if cut:
        raise refusal(plan, _FORM, "share GPUs by MPS on nodes with MIG instances")
    percent = 100 // places.replicas
    for start in part.starts:
        if start.limit is None or abs(start.limit - percent) >= 1:
            equal = f"give {places.replicas} jobs under MPS other limits than {percent}% each"
            raise refusal(plan, _FORM, equal)
        if start.memory_mib > plan.gpu.memory_mib // places.replicas:
            lacking = f"give job {start.number} more than 1/{places.replicas} of the memory"
            raise refusal(plan, _FORM, lacking)


def _shared_name(resource: str, places: Places) -> str:
    return f"{resource}.shared" if places.strategy else resource


def _sharing(places: Mapping[str, Places]) -> dict[str, Any]:
    """The `sharing` of the plugin's configuration; empty if nothing is shared."""
    strategies: dict[str, Any] = {}
    for resource, own in places.items():
        if own.strategy:
            # Under MPS the plugin refuses requests for more than one replica by itself.
            refuses = {"failRequestsGreaterThanOne": True} if own.strategy == "timeSlicing" else {}
            fresh = {"renameByDefault": True, **refuses, "resources": []}
            entry = {"name": resource, "replicas": own.replicas}
            strategies.setdefault(own.strategy, fresh)["resources"].append(entry)
    return strategies


def _plugin_config(kinds: Mapping[str, Mapping[str, Places]]) -> Iterator[Document]:
    """Yield the plugin's configuration of each kind of GPU, and one for all other nodes."""
    data = {
        key: yaml.safe_dump({"version": "v1", "sharing": sharing}, sort_keys=False)
        for key, places in kinds.items()
        if (sharing := _sharing(places))
    }
    if data:
        yield config_map(PLUGIN, NODE, {"default": "version: v1\n", **data}, _NAMESPACE)


def mig_config(plans: Sequence[LaunchPlan]) -> Iterator[Document]:
    """Yield the configuration for the operator's MIG manager, if a plan has MIG instances."""
    if any(plan.on_mig for plan in plans):
        document = mig_parted_document(plans)
        off = {"all-disabled": [{"devices": "all", "mig-enabled": False}]}  # its default
        document["mig-configs"] = off | document["mig-configs"]
        data = {"config.yaml": yaml.safe_dump(document, sort_keys=False)}
        yield config_map(MIG, NODE, data, _NAMESPACE)


def mig_labels(plans: Sequence[LaunchPlan]) -> list[tuple[str, str]]:
    """Return labels of nodes by which the MIG manager chooses a configuration."""
    if not any(plan.on_mig for plan in plans):
        return []
    return [("nvidia.com/mig.config", name) for name in mig_parted_document(plans)["mig-configs"]]
