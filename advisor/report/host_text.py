"""Jobs that wait for their hosts whatever they share the GPU with, in a sentence."""

from collections.abc import Sequence

from advisor.plan.host_bound import HostBound
from advisor.report import units

_MEASURE = (
    "To see what torch.compile, a CUDA graph or more loader workers bring, profile the job so and "
    "compare the two profiles."
)


def host_path(jobs: Sequence[HostBound], *, first: bool) -> str:
    """The jobs whose host path to shorten, and how much faster a measured variant was."""
    said = []
    for each in jobs:
        said.append(f"kernels run in {each.gpu_share:.0%} of a step of {each.job} alone")
        if each.variant is not None and each.variant_step_s is not None:
            said[-1] += (
                f" ({each.variant} was measured at {units.duration(each.variant_step_s)} a step "
                f"instead of {units.duration(each.step_s)})"
            )
    lead = "Make the host's part faster first" if first else "The host holds jobs back"
    return f"{lead}: {'; '.join(said)}. {_MEASURE}"
