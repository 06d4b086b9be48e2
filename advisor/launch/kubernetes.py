"""Plans for Kubernetes (1.34), and MIG instances as a configuration for NVIDIA's mig-parted (v1).

A pod for each GPU or MIG instance runs the script of its plan, which starts MPS itself. The MIG
manager of NVIDIA's GPU operator makes the instances: it applies mig-parted's configuration.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import nlargest
from math import ceil
from typing import Any

import yaml

from advisor.errors import InvalidInput, with_article
from advisor.hardware.gpus import Gpu
from advisor.hardware.mig import profile_of
from advisor.launch import shell
from advisor.launch.launch_plan import NOT_RUN, Allocation, LaunchPlan, Stage, Start, allocations
from advisor.sharing import Instance
from advisor.workload.spec import is_secret

Document = dict[str, Any]

_IMAGE = "IMAGE"  # Kubernetes refuses it: names of images are in lower case
_IMAGE_WANTED = (
    f"image: {_IMAGE}: a placeholder. Put your image in its place, with the programs of the jobs "
    f"and bash, awk, grep, flock and setsid."
)
_PART = "app.kubernetes.io/component"
_NODE, _TRAINING = "advisor-node", "advisor-training"
"""Parts of a file: the admin applies the one, its user the other."""
_SECRETS = "advisor-secrets"
_GPU_MEMORY = "gpu-advisor/memory-mib"
_PRODUCT = "nvidia.com/gpu.product"
_MIG = "advisor-mig"
_OPERATOR = {"mig": {"strategy": "mixed"}, "migManager": {"config": {"name": _MIG}}}
"""Changes of the GPU operator's ClusterPolicy by which it reads the file's ConfigMap."""
_FOLDER = "/advisor"
_VARIABLES = {
    "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",  # with nvidia-smi and MPS
    "XDG_STATE_HOME": "/tmp",
    "ADVISOR_GRACE_S": "10",  # Kubernetes kills a pod 30 s after it asks it to end
}
_MIG_DEVICE = "$(nvidia-smi -L | grep -om1 'MIG-[-0-9a-f]*')"


def kubernetes_text(plans: Sequence[LaunchPlan]) -> str:
    """Return a Job, with its script, for each allocation of `plans`, and the MIG instances.

    Raises:
        InvalidInput: A plan changes MIG instances between groups, or has compute instances.
    """
    for plan in plans:
        if any(part.slices is not None for part in plan.partitions):
            raise InvalidInput(
                f"{plan.sharing}: NVIDIA's device plugin does not offer compute instances. Export "
                f"the plan as commands instead."
            )
    jobs = [each for own in allocations(plans, "Kubernetes") for each in _job(own)]
    layout = mig_parted_document(plans) if any(plan.on_mig for plan in plans) else None
    documents = [*([] if layout is None else [_mig_config(layout)]), *jobs]
    text = yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, width=100, explicit_start=True)
    return "\n".join([*_head(plans, layout), text])


def image_wanted(_plans: Sequence[LaunchPlan]) -> tuple[str, ...]:
    """Return a note on the placeholder that each file has."""
    return (_IMAGE_WANTED,)


class _Dumper(yaml.SafeDumper):
    """YAML with texts of several lines as blocks, and without references between objects."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002
        return True


_Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar(
        "tag:yaml.org,2002:str", text, "|" if "\n" in text else None
    ),
)


def _head(plans: Sequence[LaunchPlan], layout: Mapping[str, Any] | None) -> Iterator[str]:
    """Comments on what to know before applying a file of `plans` with the MIG `layout`."""
    for key in dict.fromkeys(plan.gpu.key for plan in plans):
        own = [plan for plan in plans if plan.gpu.key == key]
        sharings = dict.fromkeys(str(plan.sharing) for plan in own)
        yield f"# {', '.join(sharings)} on {len(own)} x {key}."
        for others in dict.fromkeys(filter(None, (plan.estimated_from for plan in own))):
            yield f"# Its memory is estimated from {others}, not measured on {with_article(key)}."
    yield "# No cluster has run this file yet. The nodes need NVIDIA's device plugin: it gives each"
    yield "# pod a whole GPU or MIG instance, unless its configuration has a `sharing`."
    if layout is not None:
        yield f"# {NOT_RUN}"
        yield f"# As admin: kubectl apply -f FILE -l {_PART}={_NODE}"
        yield "#   kubectl patch clusterpolicies.nvidia.com/cluster-policy --type merge -p \\"
        yield f"#     '{json.dumps({'spec': _OPERATOR})}'"
        for name in layout["mig-configs"]:
            yield f"#   kubectl label node NODE nvidia.com/mig.config={name} --overwrite"
    part = "" if layout is None else f" -l {_PART}={_TRAINING}"
    yield f"# To start the jobs: kubectl apply -n NAMESPACE -f FILE{part}"
    yield f"# {_IMAGE_WANTED}"
    yield f"#   sed -i 's|image: {_IMAGE}|image: REGISTRY/NAME:TAG|' FILE"
    if any(plan.wide for plan in plans):
        yield "# A job of several GPUs starts when a node has as many free GPUs. Kubernetes may"
        yield "# start later Jobs of the plan before it."
    yield from dict.fromkeys(line for plan in plans for line in shell.own_commands_wanted(plan))
    yield from shell.power_caps_wanted(plans)
    starts = [start for plan in plans for start in plan.starts]
    if secrets := _secret_names(starts):
        words = " ".join(f"--from-literal={name}=..." for name in secrets)
        yield f"# Secrets: kubectl create secret generic {_SECRETS} {words}"
    for what, lacking in (
        ("host cores", [start for start in starts if start.cores is None]),
        ("host memory", [start for start in starts if start.job.profile.host_memory_mib is None]),
    ):
        if lacking:
            numbers = ", ".join(map(str, sorted({start.number for start in lacking})))
            which = "all jobs" if len(lacking) == len(starts) else f"job {numbers}"
            yield f"# The {what} of {which} was not measured. Add your own requests."


def _mig_config(layout: Mapping[str, Any]) -> Document:
    """The ConfigMap of the operator's MIG manager."""
    off = {"all-disabled": [{"devices": "all", "mig-enabled": False}]}  # its default
    document = {**layout, "mig-configs": off | layout["mig-configs"]}
    data = {"config.yaml": yaml.safe_dump(document, sort_keys=False)}
    metadata = {"name": _MIG, "namespace": "gpu-operator", "labels": {_PART: _NODE}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def _job(own: Allocation) -> tuple[Document, Document]:
    """The script of `own`, and the Job whose pod runs it; it is not tried again if it fails."""
    name = job_name(own.name)
    metadata = {"name": name, "labels": {_PART: _TRAINING}}
    if own.gpus == 1:
        text = shell.commands_text([own.plan], "0" if own.profile is None else _MIG_DEVICE)
    else:
        command = shell.without_mps(own.starts[0])
        text = "\n".join(["#!/usr/bin/env bash", *shell.secrets(own.starts), command, ""])
    data = {"plan.sh": text}
    variables: list[Document] = [{"name": key, "value": value} for key, value in _VARIABLES.items()]
    for secret in _secret_names(own.starts):
        source = {"secretKeyRef": {"name": _SECRETS, "key": secret}}
        variables.append({"name": secret, "valueFrom": source})
    folders: dict[str, Document] = {_FOLDER: {"configMap": {"name": name}}}
    if any(start.job.profile.workload.loader_workers or own.gpus > 1 for start in own.starts):
        # Loader workers and processes of several GPUs hand over data here; a container has 64 MiB.
        folders["/dev/shm"] = {"emptyDir": {"medium": "Memory"}}
    names = {path: path.strip("/").replace("/", "-") for path in folders}
    container = {
        "name": "training",
        "image": _IMAGE,
        "command": ["bash", f"{_FOLDER}/plan.sh"],
        "env": variables,
        "resources": _resources(own),
        "volumeMounts": [{"name": names[path], "mountPath": path} for path in folders],
    }
    models = {"key": _PRODUCT, "operator": "In", "values": product_labels(own.plan.gpu)}
    nodes = {"nodeSelectorTerms": [{"matchExpressions": [models]}]}
    memory_mib = max(
        sum(nlargest(stage.at_once, (start.memory_mib for start in stage.starts)))
        for stage in own.plan.stages
    )
    pod = {
        "restartPolicy": "Never",
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": nodes}},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "containers": [container],
        "volumes": [{"name": names[path], **source} for path, source in folders.items()],
    }
    annotated = {"labels": metadata["labels"], "annotations": {_GPU_MEMORY: str(memory_mib)}}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {"backoffLimit": 0, "template": {"metadata": annotated, "spec": pod}},
    }
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}, job


def _resources(own: Allocation) -> Document:
    """Cores are requested and not limited: a limit would stop a job that needs one more briefly."""
    resource = "gpu" if own.profile is None else f"mig-{own.profile.replace('+', '.')}"
    requests = {"cpu": str(own.cores)} if own.cores else {}
    limits: Document = {f"nvidia.com/{resource}": own.gpus}  # as the device plugin names it
    if own.host_mib is not None:
        requests["memory"] = limits["memory"] = f"{ceil(own.host_mib)}Mi"
    return {**({"requests": requests} if requests else {}), "limits": limits}


def _secret_names(starts: Iterable[Start]) -> list[str]:
    """The variables of jobs that are secret by their names; pods get them from a secret."""
    scripts = (start.job.profile.workload.script for start in starts)
    names = (name for script in scripts if script for name in script.environment)
    return list(dict.fromkeys(filter(is_secret, names)))


def product_labels(gpu: Gpu) -> list[str]:
    """Return the names that GPU feature discovery has for `gpu` (`sanitise` in its resource.go)."""
    kept = (re.sub(r"[^A-Za-z0-9-_. ]", "", product) for product in gpu.products)
    return ["-".join(name.split()) for name in kept]


def job_name(words: str) -> str:
    """Return the name of a Job: a DNS label of at most 63 characters."""
    name = re.sub(r"[^a-z0-9]+", "-", f"advisor-{words}".lower())
    return name[:63].strip("-")


def mig_parted_text(plans: Sequence[LaunchPlan]) -> str:
    """Return a configuration: ``advisor``; one of each stage: ``advisor-1``, ...; or of each host.

    Raises:
        InvalidInput: mig-parted would put compute instances into other GPU instances, or one of
            several GPUs would change its instances between groups of jobs.
    """
    document = mig_parted_document(plans)
    sharings = dict.fromkeys(str(plan.sharing) for plan in plans)
    keys = dict.fromkeys(plan.gpu.key for plan in plans)
    lines = [f"# {', '.join(sharings)} on {' and '.join(keys)}."]
    if any(plan.on_mig for plan in plans):
        lines += [f"# {NOT_RUN}", "# mig-parted chooses the places: the file cannot set them."]
    if any(plan.under_mps for plan in plans):
        lines.append("# It does not start MPS: the script of `advisor export` does.")
    lines += shell.power_caps_wanted(plans)
    name = next(iter(document["mig-configs"]))
    lines.append(f"# Apply: nvidia-mig-parted apply -f FILE -c {name}")
    return "\n".join([*lines, yaml.safe_dump(document, sort_keys=False)])


def mig_parted_document(plans: Sequence[LaunchPlan]) -> dict[str, Any]:
    """Return the content of the file; errors are those of `mig_parted_text`."""
    for plan in plans:
        for stage in plan.stages:
            _check_compute_instances(plan, stage)
    if len(plans) == 1:
        (plan,) = plans
        stages = [[_entry(stage, [plan.device])] for stage in plan.stages]
        return _named(stages, "advisor")
    by_host: dict[int, list[LaunchPlan]] = defaultdict(list)
    for plan in plans:
        if plan.on_mig and len(plan.stages) > 1:
            raise InvalidInput(
                f"GPU {plan.number}, {plan.sharing}: several GPUs cannot change their MIG "
                f"instances at different times. Plan without MIG: --no-root."
            )
        by_host[plan.host].append(plan)
    hosts = []
    for host in sorted(by_host):  # an entry for all GPUs of a host that have equal instances
        equal: dict[str, list[LaunchPlan]] = defaultdict(list)
        for plan in by_host[host]:
            equal[str(_entry(plan.stages[0], []))].append(plan)
        devices = [[plan.device for plan in own] for own in equal.values()]
        firsts = [own[0].stages[0] for own in equal.values()]
        hosts.append(list(map(_entry, firsts, devices)))
    return _named(hosts[:1] if all(own == hosts[0] for own in hosts) else hosts, "advisor-host")


def _named(configurations: Sequence[list[dict[str, Any]]], name: str) -> dict[str, Any]:
    """Return a document with the names ``advisor``, or NAME-1, ..."""
    numbered = {f"{name}-{number}": own for number, own in enumerate(configurations, start=1)}
    named = numbered if len(numbered) > 1 else {"advisor": configurations[0]}
    return {"version": "v1", "mig-configs": named}


def _entry(stage: Stage, devices: list[int]) -> dict[str, Any]:
    entry: dict[str, Any] = {"devices": devices, "mig-enabled": stage.on_mig}
    if stage.on_mig:
        entry["mig-devices"] = dict(Counter(str(part.profile) for part in stage.partitions))
    return entry


def _check_compute_instances(plan: LaunchPlan, stage: Stage) -> None:
    """Check that mig-parted puts the compute instances of `stage` together as planned.

    It makes them by profile, the largest first, and opens a GPU instance when the last one of that
    profile is full (`SetMigConfig` in its pkg/mig/config/config.go).
    """
    planned: dict[Instance, list[int]] = defaultdict(list)
    for part in stage.partitions:
        if part.instance:
            whole = profile_of(plan.gpu, part.instance.profile).compute_slices
            planned[part.instance].append(part.slices or whole)
    for profile in {instance.profile for instance in planned}:
        wanted = sorted(sorted(own) for one, own in planned.items() if one.profile == profile)
        room, made = 0, list[list[int]]()
        for slices in sorted((size for own in wanted for size in own), reverse=True):
            if slices > room:
                room = profile_of(plan.gpu, profile).compute_slices
                made.append([])
            made[-1].append(slices)
            room -= slices
        if sorted(map(sorted, made)) != wanted:
            raise InvalidInput(
                f"{plan.sharing}: mig-parted would divide the {profile} instances differently. "
                f"Export the plan as commands instead."
            )
