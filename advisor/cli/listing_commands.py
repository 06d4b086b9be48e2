"""``advisor gpus``, ``advisor workloads`` and ``advisor profiles``."""

from advisor.cli.options import DEFAULT_GPU, AsJson, GpuKey, Profiles
from advisor.cli.output import leave_out, show, show_found, show_json, show_text
from advisor.errors import GpuUnavailable


def gpus(profiles: Profiles = None, as_json: AsJson = False) -> None:
    """List the GPU models known, and the GPU at hand."""
    from advisor.hardware.catalogue import catalogue
    from advisor.hardware.gpu_state import BrokenGpu, LiveGpu
    from advisor.hardware.live_gpu import live_gpus
    from advisor.report.listing_text import gpus_document, gpus_table, live_lines
    from advisor.workload.store import profiled_gpus

    found: tuple[LiveGpu | BrokenGpu, ...] = ()
    problem = None
    try:
        found = live_gpus()
    except GpuUnavailable as error:
        problem = str(error)
    if as_json:
        show_json(gpus_document(catalogue().values(), profiled_gpus(profiles), found, problem))
        return
    show(gpus_table(catalogue().values(), profiled_gpus(profiles)))
    show_text(f"\nNo GPU at hand: {problem}" if problem else "\n".join(["", *live_lines(found)]))


def workloads(as_json: AsJson = False) -> None:
    """List the workloads that can be measured by name."""
    from advisor.report.listing_text import workloads_document, workloads_table
    from advisor.workload.named_workloads import zoo

    show_found(zoo(), as_json, workloads_table, workloads_document)


def profiles(gpu: GpuKey = DEFAULT_GPU, folder: Profiles = None, as_json: AsJson = False) -> None:
    """List what was measured alone on a GPU: what a JOB can name."""
    from advisor.hardware.catalogue import gpu as known
    from advisor.report.listing_text import profiles_document, profiles_table
    from advisor.workload.store import load_profiles

    measured = load_profiles(known(gpu).key, folder, leave_out)
    if as_json:
        show_json(profiles_document(gpu, measured))
    elif measured:
        show(profiles_table(measured))
    else:
        show_text(f"Nothing was measured on {gpu} yet: `advisor profile WORKLOAD...`.")
