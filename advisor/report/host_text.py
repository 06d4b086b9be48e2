"""What holds jobs back whatever they share with, and which remedies pay, in sentences."""

from collections.abc import Iterator, Sequence
from typing import assert_never

from advisor.plan.host_bound import HostBound, Remedy
from advisor.report import units

_PINNED = (
    "Keep each job on CPU cores of its own, as the commands do: one that runs alone was up to 1.5 "
    "times as fast as free to move; of several together as many gained by it as lost."
)
"""Measured on the hosts of an H200 and an H100; docs/accuracy.md has the runs."""


def remedies(found: Sequence[Remedy], *, brief: bool = False) -> Iterator[str]:
    """Remedies and their predicted gains in sentences; torch.compile is told of all jobs in one.

    What was not measured of it is left out if `brief`.
    """
    compiled = [each for each in found if each.kind == "torch.compile"]
    for each in found:
        if each not in compiled[1:]:
            yield _remedy(each, compiled, brief=brief)


def _remedy(found: Remedy, compiled: Sequence[Remedy], *, brief: bool) -> str:
    job, by = found.job, f"{_gains(found)}, predicted"
    match found.kind:
        case "loader workers":
            return f"{job} waits for its loader: with {found.workers} workers {by}."
        case "shared loading":
            return (
                f"{job} waits for its loader, and its mates read the same: one loader for all "
                f"(TensorSocket) makes it {by}."
            )
        case "no waits":
            return (
                f"{job} waits in every step until the GPU is done, as loss.item() does: reading "
                f"such numbers every few dozen steps makes it {by}."
            )
        case "CUDA graph":
            return (
                f"{job} waits for its kernels to be launched: its whole step captured as a CUDA "
                f"graph is {by}."
            )
        case "torch.compile":
            gains = "; ".join(f"{each.job} {_gains(each)}" for each in compiled)
            beyond = '; its mode="reduce-overhead", which captures graphs, was not measured'
            return f"torch.compile makes {gains}, predicted{'' if brief else beyond}."
        case "fusing":
            return f"All copies of {job} fused into one process (as HFTA does) are {by}."
        case _:
            assert_never(found.kind)


def _gains(found: Remedy) -> str:
    """How much faster a job gets in the plan, and alone where that is another number."""
    said = f"{units.times(found.gain)} as fast"
    if found.alone is None or units.times(found.alone) == units.times(found.gain):
        return said
    return f"{said} in this plan, alone {units.times(found.alone)}"


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
    return f"{lead}: {'; '.join(said)}. {_PINNED}"
