"""A job with another loader: more workers, or one that feeds several jobs."""

from dataclasses import replace

from advisor.prediction.host_transfer import on_host
from advisor.workload.profile import Profile


def with_loader(job: Profile, times: float, cpu: float = 1.0) -> Profile:
    """`job` with a loader whose batches take `times` as long.

    A job whose loader was not measured is unchanged.

    Args:
        job: A job with enough cores.
        times: Above 0.
        cpu: Share of the core seconds of a batch that the job itself bears.
    """
    host = job.host
    if host is None or host.loader_s is None or job.host_s is None:
        return job
    loader_s = host.loader_s * times
    other = on_host(job, max(host.main_s or 0.0, loader_s) / job.host_s)
    own_s = None if host.loader_cpu_s is None else host.loader_cpu_s * cpu
    return replace(other, host=replace(host, loader_s=loader_s, loader_cpu_s=own_s))


def with_workers(job: Profile, workers: int) -> Profile:
    """`job` with `workers` loader workers, each as fast as one of its own."""
    faster = with_loader(job, job.workload.loader_workers / workers)
    return replace(faster, workload=replace(faster.workload, loader_workers=workers))
