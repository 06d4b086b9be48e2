"""A file for nvidia-mig-parted, which cuts up GPUs as a file says.

Format: v1, as its documentation and examples have it: by configuration, the devices, whether
MIG is on, and how many of each profile; ``3c.7g.141gb`` is a compute instance. It has no word for
a place: mig-parted tries the orders in turn until one fits.
"""

from collections import Counter
from collections.abc import Iterator

from advisor.launch.launch_plan import NOT_RUN, LaunchPlan, Stage


def mig_parted_text(plan: LaunchPlan) -> str:
    """One configuration of GPU 0 for each stage of `plan`: ``advisor``, or ``advisor-1``, ..."""
    return "\n".join([*_lines(plan), ""])


def _lines(plan: LaunchPlan) -> Iterator[str]:
    several = len(plan.stages) > 1
    yield f"# {plan.sharing} on one {plan.gpu.key}."
    if plan.on_mig:
        yield f"# {NOT_RUN}"
        yield "# Places are left to mig-parted: the file has no word for them."
    yield "# Apply: nvidia-mig-parted apply -f FILE -c " + ("advisor-1" if several else "advisor")
    yield "version: v1"
    yield "mig-configs:"
    for number, stage in enumerate(plan.stages, start=1):
        yield f"  advisor-{number}:" if several else "  advisor:"
        yield "    - devices: [0]"
        yield from _device(stage)


def _device(stage: Stage) -> Iterator[str]:
    yield f"      mig-enabled: {'true' if stage.on_mig else 'false'}"
    if stage.on_mig:
        yield "      mig-devices:"
        for profile, count in Counter(str(part.profile) for part in stage.partitions).items():
            yield f'        "{profile}": {count}'
