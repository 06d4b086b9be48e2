"""Objects that every format for Kubernetes has: the Job of a training, and files of them.

As in the documentation of Kubernetes 1.34: a Job is of ``batch/v1``, its name is a DNS label, and
``$`` begins a reference in commands and variables. GPU feature discovery labels nodes with NVML's
name of their GPU, without special characters and with ``-`` for blanks.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import ceil
from typing import Any

import yaml

from advisor.errors import with_article
from advisor.hardware.gpus import Gpu
from advisor.launch import shell
from advisor.launch.launch_plan import NOT_RUN, LaunchPlan, Start, host_needs
from advisor.workload.spec import is_secret

Document = dict[str, Any]

IMAGE = "IMAGE"  # Kubernetes refuses it: names of images are in lower case
IMAGE_WANTED = (
    f"image: {IMAGE}: a placeholder. Put your image, with the programs of the jobs, in its place."
)
NODE, TRAINING = "advisor-node", "advisor-training"
"""Parts of a file: the admin applies the one, its user the other."""
_PART = "app.kubernetes.io/component"
_SECRETS = "advisor-secrets"
_GPU_MEMORY = "gpu-advisor/memory-mib"
_PRODUCT = "nvidia.com/gpu.product"
PLUGIN, MIG = "advisor-device-plugin", "advisor-mig"
_OPERATOR: dict[str, Document] = {
    PLUGIN: {"devicePlugin": {"config": {"name": PLUGIN, "default": "default"}}},
    MIG: {"mig": {"strategy": "mixed"}, "migManager": {"config": {"name": MIG}}},
}
"""Changes of the GPU operator's ClusterPolicy by which it reads a ConfigMap, by its name."""
_TOLERATION = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}


class _Dumper(yaml.SafeDumper):
    """YAML with texts of several lines as blocks, and without references between objects."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    # Kubernetes reads 1e-4 as a number and y as a truth value, which PyYAML leaves unquoted.
    if _OTHERS_READ_AS_NO_TEXT.match(text):
        style = "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style)


_OTHERS_READ_AS_NO_TEXT = re.compile(r"[-+]?\.?\d|[yYnN]$")
_Dumper.add_representer(str, _text)


def manifest(head: Iterable[str], documents: Iterable[Document]) -> str:
    """Return a file of `documents` below the comments `head`."""
    text = yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, width=100, explicit_start=True)
    return "\n".join([*head, text])


def head(plans: Sequence[LaunchPlan], format_lines: Iterable[str]) -> Iterator[str]:
    """Yield comments on what to know before applying a file of `plans`."""
    for key in dict.fromkeys(plan.gpu.key for plan in plans):
        own = [plan for plan in plans if plan.gpu.key == key]
        sharings = dict.fromkeys(str(plan.sharing) for plan in own)
        yield f"# {', '.join(sharings)} on {len(own)} x {key}."
        for others in dict.fromkeys(filter(None, (plan.estimated_from for plan in own))):
            yield f"# Its memory is estimated from {others}, not measured on {with_article(key)}."
    yield "# No cluster has run this file yet."
    if any(plan.on_mig for plan in plans):
        yield f"# {NOT_RUN}"
    yield from format_lines
    yield f"# {IMAGE_WANTED}"
    yield f"#   sed -i 's|image: {IMAGE}|image: REGISTRY/NAME:TAG|' FILE"
    yield from dict.fromkeys(line for plan in plans for line in shell.own_commands_wanted(plan))
    yield from shell.power_caps_wanted(plans)
    starts = [start for plan in plans for start in plan.starts]
    if secrets := secret_names(starts):
        words = " ".join(f"--from-literal={name}=..." for name in secrets)
        yield f"# Secrets: kubectl create secret generic {_SECRETS} {words}"
    for what, lacking in (
        ("host cores", [start for start in starts if start.cores is None]),
        ("host memory", [start for start in starts if start.job.profile.host_memory_mib is None]),
    ):
        if lacking:
            numbers = ", ".join(map(str, sorted({start.number for start in lacking})))
            which = "all jobs" if len(lacking) == len(starts) else f"job {numbers}"
            yield f"# The {what} of {which} was not measured: add requests of your own."


def config_map(name: str, part: str, data: Mapping[str, str], namespace: str = "") -> Document:
    """Return a ConfigMap of the `part` of a file."""
    where = {"namespace": namespace} if namespace else {}
    metadata = {"name": name, **where, "labels": {_PART: part}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": dict(data)}


def apply_lines(set_up: Sequence[Document], labels: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Yield comments on how to apply a file.

    Args:
        set_up: The ConfigMaps in it, which the GPU operator reads.
        labels: Labels of nodes, by which its parts choose from them.
    """
    if set_up:
        yield f"# As admin: kubectl apply -f FILE -l {_PART}={NODE}"
    for document in set_up:
        spec = json.dumps({"spec": _OPERATOR[document["metadata"]["name"]]})
        yield "#   kubectl patch clusterpolicies.nvidia.com/cluster-policy --type merge -p \\"
        yield f"#     '{spec}'"
    for label, value in labels:
        yield f"#   kubectl label node NODE {label}={value} --overwrite"
    parted = f" -l {_PART}={TRAINING}" if set_up else ""
    yield f"# To start the jobs: kubectl apply -n NAMESPACE -f FILE{parted}"


def training_job(
    start: Start,
    devices: Document,
    *,
    variables: Mapping[str, str],
    pod: Document,
    folders: Mapping[str, Document],
) -> Document:
    """Return the Job of one training.

    Args:
        start: The start of the training.
        devices: The GPU or MIG instance in the resources of its container.
        variables: Variables of its container, besides its own.
        pod: What its pod has besides its container.
        folders: Volumes of its pod by path.
    """
    script = start.job.profile.workload.script
    container: Document = {"command": [f"./{start.job.name}.sh"]}
    own = {"ADVISOR_JOB": str(start.number), **variables}
    if script is not None:
        container = {"command": list(map(_literal, script.command)), "workingDir": script.folder}
        plain = {name: text for name, text in script.environment.items() if not is_secret(name)}
        own |= {name: _literal(text) for name, text in plain.items()}
    container["env"] = [{"name": name, "value": value} for name, value in own.items()]
    container["env"] += secret_variables([start])
    processes = [start] * start.job.gpus  # one for each GPU
    container["resources"] = resources([(processes, start.job.gpus)], devices)
    return job_document(
        job_name(f"{start.number}-{start.job.name}"),
        container,
        pod=pod,
        annotations={_GPU_MEMORY: str(start.memory_mib)},
        folders=folders,
    )


def job_document(
    name: str,
    container: Document,
    *,
    pod: Document,
    annotations: Mapping[str, str],
    folders: Mapping[str, Document],
) -> Document:
    """Return a Job of one pod with one container, which is not tried again if it fails."""
    labels = {_PART: TRAINING}
    names = {path: path.strip("/").replace("/", "-") for path in folders}
    mounts = [{"name": names[path], "mountPath": path} for path in folders]
    volumes = [{"name": names[path], **source} for path, source in folders.items()]
    own = {"name": "training", "image": IMAGE, **container}
    spec = {"restartPolicy": "Never", **pod, "tolerations": [_TOLERATION], "containers": [own]}
    if folders:
        own["volumeMounts"] = mounts
        spec["volumes"] = volumes
    metadata = {"labels": labels, **({"annotations": dict(annotations)} if annotations else {})}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": labels},
        "spec": {"backoffLimit": 0, "template": {"metadata": metadata, "spec": spec}},
    }


def resources(groups: Iterable[tuple[Sequence[Start], int]], devices: Document) -> Document:
    """Return the resources of a container that runs `groups` in turn.

    Cores are requested and not limited: a limit would stop a job that needs one more for a moment.

    Args:
        groups: The jobs of each group, and how many of them run at the same time.
        devices: The GPU or MIG instance among the resources.
    """
    cores, held_mib = host_needs(groups)
    requests = {"cpu": str(cores)} if cores else {}
    limits = dict(devices.get("limits", {}))
    if held_mib is not None:
        requests["memory"] = limits["memory"] = f"{ceil(held_mib)}Mi"
    chosen = {"requests": requests, "limits": limits}
    return devices | {name: own for name, own in chosen.items() if own}


def shared_memory(starts: Iterable[Start]) -> dict[str, Document]:
    """Return the folder in which loader workers and processes of several GPUs hand over data.

    A container has 64 MiB of it. Pods under an MPS daemon of NVIDIA's have the daemon's instead.
    """
    jobs = [start.job for start in starts]
    used = any(job.profile.workload.loader_workers or job.gpus > 1 for job in jobs)
    return {"/dev/shm": {"emptyDir": {"medium": "Memory"}}} if used else {}


def secret_names(starts: Iterable[Start]) -> list[str]:
    """Return the variables of jobs that are secret by their names."""
    scripts = (start.job.profile.workload.script for start in starts)
    names = (name for script in scripts if script for name in script.environment)
    return list(dict.fromkeys(filter(is_secret, names)))


def secret_variables(starts: Iterable[Start]) -> list[Document]:
    """Return variables of a container that Kubernetes reads from a secret."""
    return [
        {"name": name, "valueFrom": {"secretKeyRef": {"name": _SECRETS, "key": name}}}
        for name in secret_names(starts)
    ]


def on_product(gpu: Gpu) -> Document:
    """Return what puts a pod on a node with `gpu`."""
    products = product_labels(gpu)
    if len(products) == 1:
        return {"nodeSelector": {_PRODUCT: products[0]}}
    expression = {"key": _PRODUCT, "operator": "In", "values": products}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    return {"affinity": {"nodeAffinity": required}}


def product_labels(gpu: Gpu) -> list[str]:
    """Return the names that GPU feature discovery has for `gpu` (`sanitise` in its resource.go)."""
    kept = (re.sub(r"[^A-Za-z0-9-_. ]", "", product) for product in gpu.products)
    return ["-".join(name.split()) for name in kept]


def job_name(words: str) -> str:
    """Return the name of a Job: a DNS label of at most 63 characters."""
    name = re.sub(r"[^a-z0-9]+", "-", f"advisor-{words}".lower())
    return name[:63].strip("-")


def _literal(text: str) -> str:
    """`text` for a field in which Kubernetes replaces $(NAME), and $$ by $."""
    return text.replace("$", "$$")
