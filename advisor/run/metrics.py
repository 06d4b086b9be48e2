"""Metrics of watched runs for Prometheus, which scrapes them over HTTP: ``advisor run --metrics``.

Units are Prometheus's: seconds, bytes, watts. Energy follows from power over time.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from advisor.errors import AdvisorError, InvalidInput, shortened
from advisor.files.reading import reason_of
from advisor.run.watched import STATES, WatchedJob, WatchedRun

if TYPE_CHECKING:
    from prometheus_client import Metric

_Watched = TypeVar("_Watched", WatchedRun, WatchedJob)

_HERE = "127.0.0.1"

_OF_RUN: dict[str, tuple[str, Callable[[WatchedRun], float | None]]] = {
    "advisor_run_power_watts": ("Power of the whole GPU now.", lambda run: run.now_w),
    "advisor_run_remaining_seconds": (
        "Time until the last job ends if all keep their paces.",
        lambda run: run.left_s,
    ),
}
_OF_JOB: dict[str, tuple[str, Callable[[WatchedJob], float | None]]] = {
    "advisor_run_job_steps_planned": ("Steps of the whole job.", lambda job: job.steps),
    "advisor_run_job_step_seconds": ("Mean step over the last 30 s.", lambda job: job.step_s),
    "advisor_run_job_expected_step_seconds": (
        "Step to expect with the jobs that run now: planned, then by the first second.",
        lambda job: job.expected.p50 if job.expected else None,
    ),
    "advisor_run_job_expected_step_low_seconds": (
        "Lower end of its 90 % interval.",
        lambda job: job.expected.p05 if job.expected else None,
    ),
    "advisor_run_job_expected_step_high_seconds": (
        "Upper end of its 90 % interval.",
        lambda job: job.expected.p95 if job.expected else None,
    ),
    "advisor_run_job_remaining_seconds": (
        "Time until the job has done its steps.",
        lambda job: job.left_s,
    ),
    "advisor_run_job_memory_bytes": (
        "Memory of its processes on the GPU.",
        lambda job: None if job.held_mib is None else job.held_mib * 2**20,
    ),
}


class RunMetrics:
    """Collector of the metrics of runs as they were last shown; a scrape is of one moment."""

    def __init__(self) -> None:
        self._families: tuple[Metric, ...] = ()

    def collect(self) -> "Iterable[Metric]":
        """Return the metrics, as `prometheus_client` wants them of a collector."""
        return self._families

    def show(self, runs: Sequence[WatchedRun]) -> None:
        """Collect from the runs as they are now."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        of_run = [([run.folder.name, run.about.device], run) for run in runs]
        of_job = [
            ([*labels, str(job.number), job.workload.name], job)
            for labels, run in of_run
            for job in run.jobs
        ]
        names = ("run", "gpu", "job", "workload")
        states = GaugeMetricFamily(
            "advisor_run_job_state", "1 for the state of the job.", labels=(*names, "state")
        )
        done = CounterMetricFamily("advisor_run_job_steps_done", "Steps done.", labels=names)
        for labels, job in of_job:
            for state in STATES:
                states.add_metric([*labels, state], float(job.state == state))
            if job.done is not None:
                done.add_metric(labels, job.done)
        self._families = (
            *_gauges(_OF_RUN, names[:2], of_run),
            states,
            done,
            *_gauges(_OF_JOB, names, of_job),
        )


def _gauges(
    metrics: Mapping[str, tuple[str, Callable[[_Watched], float | None]]],
    names: Sequence[str],
    watched: Sequence[tuple[list[str], _Watched]],
) -> "Iterator[Metric]":
    """Yield `metrics` of runs or jobs, which have these labels."""
    from prometheus_client.core import GaugeMetricFamily

    for metric, (words, number) in metrics.items():
        family = GaugeMetricFamily(metric, words, labels=names)
        for labels, owner in watched:
            if (value := number(owner)) is not None:
                family.add_metric(labels, value)
        yield family


def parse_address(text: str) -> tuple[str, int]:
    """Return host and port of ``PORT``, which is on this host alone, or ``HOST:PORT``.

    Raises:
        InvalidInput: It is neither.
    """
    host, colon, port = text.rpartition(":")
    host = host.strip("[]") or ("0.0.0.0" if colon else _HERE)
    if not (port.isascii() and port.isdigit() and int(port) < 2**16):
        raise InvalidInput(f"expected PORT or HOST:PORT, such as 9400, got {shortened(text)}")
    return host, int(port)


@contextmanager
def serving(address: str) -> Iterator[tuple[str, RunMetrics]]:
    """Serve metrics while the block runs; yield the address to scrape, and the metrics to update.

    Raises:
        InvalidInput: The address is not one.
        AdvisorError: Another program has the port, or it is not allowed.
    """
    from prometheus_client import CollectorRegistry, start_http_server

    host, port = parse_address(address)
    metrics, registry = RunMetrics(), CollectorRegistry()
    registry.register(metrics)
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        raise AdvisorError(
            f"--metrics {address}: {reason_of(error)}. Choose another port, or an address of this "
            "host."
        ) from None
    try:
        yield f"http://{host}:{server.server_port}/metrics", metrics
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
