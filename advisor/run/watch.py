"""Lists runs of plans, watches them to their end, serves metrics, and keeps records for `fit`."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Annotated, Any

from advisor.documents import Mark
from advisor.errors import AdvisorError, GpuUnavailable, InvalidInput, shortened
from advisor.files.reading import is_file, reason_of, user_folder
from advisor.files.writing import append_record, writable
from advisor.hardware.machine import allowed_cores
from advisor.measure.device import Meter, Origin, find_device
from advisor.measure.process import sweep, tail
from advisor.run.start import COMMAND, Say, ask_to_end, script_lives, state_home, stop
from advisor.run.watched import STATES, WatchedRun, events_in, read_about
from advisor.workload.run import Run

if TYPE_CHECKING:
    from prometheus_client import Metric


def run_folders() -> list[Path]:
    """Return the folders of all runs of this user, the oldest first."""
    return sorted(path.parent for path in (state_home() / "runs").glob("*/run.json"))


def find_run(word: str | None) -> Path:
    """Return the folder of a run by its path or the start of its name; None: the one going on.

    Raises:
        InvalidInput: There is none, or several.
    """
    if word is not None and is_file(Path(word) / "run.json"):
        return Path(word).resolve()
    if word is None:
        fitting = [each for each in run_folders() if events_in(each).over is None]
    else:
        fitting = [each for each in run_folders() if each.name.startswith(word)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise InvalidInput(f"name one run of {', '.join(each.name for each in fitting)}.")
    what = "no run is active" if word is None else f"run {word} not found"
    raise InvalidInput(f"{what}. `advisor run --list` lists runs.")


@dataclass(frozen=True, slots=True)
class ListedJob:
    """A job of a run, and the steps that it has done."""

    number: int
    job: str
    state: str
    detail: str
    done: int | None
    steps: int | None


@dataclass(frozen=True, slots=True)
class ListedRun:
    """A run of this user as `advisor run --list` shows it; `gpu` is None if it is unreadable."""

    name: str
    state: str
    gpu: str | None = None
    since: str | None = None
    jobs: tuple[ListedJob, ...] = ()
    lines: Annotated[tuple[str, ...], Mark.LEFT_OUT] = ()

    def __str__(self) -> str:
        where = "" if self.gpu is None else f" on {self.gpu} since {self.since}"
        return "\n".join([f"{self.name}{where}: {self.state}", *self.lines])


@dataclass(frozen=True, slots=True)
class ListedRuns:
    """The runs of this user, the oldest first."""

    runs: tuple[ListedRun, ...]


def listed_runs() -> Iterator[ListedRun]:
    """Return each run of this user and the state of its jobs, the oldest first."""
    for folder in run_folders():
        try:
            run = WatchedRun(folder)
        except InvalidInput as error:
            yield ListedRun(folder.name, str(error))
            continue
        run.look()
        state = "over" if run.events.over is not None else "runs"
        if state == "runs" and not script_lives(folder):
            state = f"its script was killed: advisor stop {folder.name}"
        jobs = tuple(
            ListedJob(each.number, each.planned.job, each.state, each.detail, each.done, each.steps)
            for each in run.jobs
        )
        about, lines = run.about, tuple(map(str, run.jobs))
        yield ListedRun(folder.name, state, about.gpu, about.since, jobs, lines)


LOOK_S = 0.5


class Watcher:
    """A watcher of the run in `folder`; `run` is the run as it was at the last look.

    Args:
        folder: Of the run.
        say: Receives a line about something that happened.
        deadline_s: After so many seconds the run is ended; None: never.
        patience_s: A job that counts steps and does none for so long is ended; None: never.
    """

    def __init__(
        self,
        folder: Path,
        say: Say,
        deadline_s: float | None = None,
        patience_s: float | None = None,
    ) -> None:
        self._device = find_device(read_about(folder).device, on_mig=True)
        self.run = WatchedRun(folder, Meter(self._device))
        self._say = say
        self._deadline_s, self._patience_s = deadline_s, patience_s
        self._began_s, self._ended = monotonic(), False
        self._reported = set[tuple[int, str]]()

    def look(self) -> bool:
        """Note the run as it is now, report what happened, and return whether it goes on."""
        alive = script_lives(self.run.folder)  # before the look: what it wrote last is seen then
        self.run.look()
        if self.run.events.over is not None or not alive:
            return False
        news = {}
        for job in self.run.jobs:
            if job.drifted:
                news[job.number, "pace"] = f"{job}: its pace has changed since its first second"
            if job.silent_s is not None:
                news[job.number, "silent"] = (
                    f"job {job.number}, {job.workload.name}: no step for {job.silent_s:.0f} s. To "
                    f"end it: advisor stop {self.run.folder.name} --job {job.number}"
                )
        for key in sorted(news.keys() - self._reported):
            self._say(news[key])
        self._reported |= news.keys()
        patience_s = self._patience_s
        for number in [] if patience_s is None else self.run.silent(patience_s):
            self._say(f"job {number}: no step for {patience_s:g} s")
            stop(self.run.folder, number, self._say)
        passed_s = monotonic() - self._began_s
        if self._deadline_s is not None and passed_s > self._deadline_s and not self._ended:
            self._say("ending the jobs at the time limit")
            self.end()
        return True

    def end(self) -> None:
        """Ask the jobs to end; the run goes on until they have."""
        self._ended = True
        ask_to_end(self.run.folder)

    @property
    def failure(self) -> GpuUnavailable:
        """The error of a script that ended before it started a job."""
        folder = self.run.folder
        return GpuUnavailable(f"{folder.name}: no job started. {tail(folder / 'script.log')}")

    def records(self) -> tuple[Run, ...]:
        """Return what was measured for `fit`, once the run is over.

        Raises:
            GpuUnavailable: The script ended before it started a job.
        """
        if not self.run.events.started_s:
            raise self.failure
        with suppress(InvalidInput):  # cores of another process
            origin = Origin(self._device, COMMAND, len(allowed_cores()))
            return tuple(self.run.records(origin, allowed_cores(self.run.about.cores)))
        return ()

    def exit_code(self) -> int:
        """Report how jobs ended that failed, once the run is over, and return the exit code."""
        run, bad = self.run, False
        for job in run.jobs:
            if job.state not in ("done", "stopped"):
                bad = True
                self._say(
                    f"job {job.number}, {job.workload.name}: {job.state} {job.detail} {job.log}"
                )
        if run.events.over is None:
            self._say(
                f"{run.folder.name}: its script was killed. `advisor stop {run.folder.name}` ends "
                "its jobs, and undoes its changes."
            )
            return AdvisorError.exit_code
        if run.events.over and not bad and not run.events.stopped:
            bad = True
            self._say(tail(run.folder / "script.log"))
        return AdvisorError.exit_code if bad else 0


def watch(
    watchers: Sequence[Watcher],
    *,
    say: Say,
    show: Callable[[Sequence[WatchedRun]], None],
    log: Callable[[Run], None] | None = None,
) -> int:
    """Watch runs to their end, store what was measured for `fit`, and return the exit code.

    Ctrl-C ends the runs; whatever else ends this process does not.

    Args:
        watchers: One for each run.
        say: Takes a line about something that happened.
        show: Takes the runs as they are, again and again.
        log: Takes each record for `fit`, which are stored anyway.

    Raises:
        GpuUnavailable: A script ended before it started a job; the other runs have ended too.
        KeyboardInterrupt: It was interrupted, and the runs have ended.
    """
    interrupted, ending, going = False, False, list(watchers)
    while going:
        try:
            if ending:
                say("ending the jobs")
                for watcher in watchers:
                    watcher.end()
                ending = False
            going = [watcher for watcher in going if watcher.look()]
            show([watcher.run for watcher in watchers])
            sleep(LOOK_S if going else 0)
        except KeyboardInterrupt:
            interrupted = ending = True
    sweep()
    if interrupted:
        raise KeyboardInterrupt
    started = [watcher for watcher in watchers if watcher.run.events.started_s]
    keep([record for watcher in started for record in watcher.records()], say, log)
    code = max((watcher.exit_code() for watcher in started), default=0)
    failures = [watcher.failure for watcher in watchers if watcher not in started]
    for failure in failures[:-1]:
        say(str(failure))
    if failures:
        raise failures[-1]
    return code


def keep(records: Sequence[Run], say: Say, log: Callable[[Run], None] | None) -> None:
    """Store `records` where `fit` finds them."""
    for record in records:
        file = user_folder("profiles") / record.gpu / "runs" / "validation.jsonl"
        writable(file)
        append_record(file, record)
        if log is not None:
            log(record)
    if not records:
        say("`advisor fit` cannot use this run: it needs ten seconds in which all jobs step")


# Metrics have the units of Prometheus: seconds, bytes, watts. Energy follows from power over time.
_OF_RUN: dict[str, tuple[str, Callable[[Any], float | None]]] = {
    "advisor_run_power_watts": ("Power of the whole GPU now.", lambda run: run.now_w),
    "advisor_run_remaining_seconds": (
        "Time until the last job ends if all keep their paces.",
        lambda run: run.left_s,
    ),
}
_OF_JOB: dict[str, tuple[str, Callable[[Any], float | None]]] = {
    "advisor_run_job_steps_planned": ("Steps of the whole job.", lambda job: job.steps),
    "advisor_run_job_step_seconds": ("Mean step over the last 30 s.", lambda job: job.step_s),
    "advisor_run_job_expected_step_seconds": (
        "Step to expect with the jobs that run now: planned, then by the first second.",
        lambda job: job.expected and job.expected.p50,
    ),
    "advisor_run_job_expected_step_low_seconds": (
        "Lower end of its 90 % interval.",
        lambda job: job.expected and job.expected.p05,
    ),
    "advisor_run_job_expected_step_high_seconds": (
        "Upper end of its 90 % interval.",
        lambda job: job.expected and job.expected.p95,
    ),
    "advisor_run_job_remaining_seconds": (
        "Time until the job has done its steps.",
        lambda job: job.left_s,
    ),
    "advisor_run_job_memory_bytes": (
        "Memory of its processes on the GPU.",
        lambda job: job.held_mib and job.held_mib * 2**20,
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
        families: list[Metric] = [states, done]
        for metrics, own_names, owners in (
            (_OF_RUN, names[:2], of_run),
            (_OF_JOB, names, of_job),
        ):
            for metric, (words, number) in metrics.items():
                family = GaugeMetricFamily(metric, words, labels=own_names)
                for labels, owner in owners:
                    if (value := number(owner)) is not None:
                        family.add_metric(labels, value)
                families.append(family)
        self._families = tuple(families)


def parse_address(text: str) -> tuple[str, int]:
    """Return host and port of ``PORT``, which is on this host alone, or ``HOST:PORT``.

    Raises:
        InvalidInput: It is neither.
    """
    host, colon, port = text.rpartition(":")
    host = host.strip("[]") or ("0.0.0.0" if colon else "127.0.0.1")
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
