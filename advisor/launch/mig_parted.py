"""MIG instances as a configuration for NVIDIA's mig-parted, which the GPU operator applies too.

mig-parted's format is v1, as its documentation and examples have it: by configuration, the devices,
whether MIG is on, and how many of each profile; ``3c.7g.141gb`` is a compute instance.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import yaml

from advisor.errors import InvalidInput
from advisor.hardware.mig import profile_of
from advisor.launch import shell
from advisor.launch.launch_plan import NOT_RUN, LaunchPlan, Stage
from advisor.sharing import Instance


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
