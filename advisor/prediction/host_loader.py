"""A job with another loader: more workers, or one that feeds several jobs."""

from dataclasses import replace

from advisor.prediction.host_transfer import on_host
from advisor.workload.profile import Profile


def with_loader(job: Profile, times: float, cpu: float = 1.0) -> Profile:
    """`job` with a loader whose batches come after so many times as long.

    A job of whose loader nothing was measured stays as it is.

    Args:
        job: With cores enough.
        times: Above 0.
        cpu: Of the core seconds of a batch, what it bears itself.
    """
    host = job.host
    if host is None or host.loader_s is None or job.host_s is None:
        return job
    loader_s = host.loader_s * times
    other = on_host(job, max(host.main_s or 0.0, loader_s) / job.host_s)
    own_s = None if host.loader_cpu_s is None else host.loader_cpu_s * cpu
    return replace(other, host=replace(host, loader_s=loader_s, loader_cpu_s=own_s))


def with_workers(job: Profile, workers: int) -> Profile:
    """`job` with so many loader workers, each as fast as one of its own."""
    faster = with_loader(job, job.workload.loader_workers / workers)
    return replace(faster, workload=replace(faster.workload, loader_workers=workers))
