"""``advisor profile``: measures workloads one after another, alone on a device, then under MPS."""

import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median
from time import monotonic
from typing import Any

from advisor.errors import AdvisorError, InvalidInput, counted
from advisor.files.reading import beside_package, is_file, read_bytes, shown, user_folder
from advisor.files.records import parse_record
from advisor.files.writing import record_line, writable, writable_folder, write_whole
from advisor.hardware.gpus import Gpu, gpu
from advisor.hardware.machine import allowed_cores
from advisor.measure.bench import Bench, ask_all, bench_on, tenants_on
from advisor.measure.device import (
    Device,
    Meter,
    command_line,
    find_device,
    power_readings_w,
    recipe_of_script,
    refuse_other,
)
from advisor.measure.pace import (
    SoloPace,
    StepsTaken,
    Stopwatch,
    core_pace,
    mean_step_s,
    measured_pace,
    repeated_pace,
    settle,
)
from advisor.measure.planned_runs import Timing
from advisor.measure.process import say
from advisor.measure.tenant import LOAD_S, Tenant, living
from advisor.measure.trace import StepParts, step_parts
from advisor.sharing import Mps, Naive
from advisor.workload.catalogue import workload
from advisor.workload.minimal_profile import MinimalProfile, holds_minimal, minimal_text
from advisor.workload.profile import PROBE_LIMITS_PCT, LimitedRun, MpsProbe, Profile, Window
from advisor.workload.profile_checks import add_moment, check_power, preallocating_profiles
from advisor.workload.spec import (
    Workload,
    masked_words,
)
from advisor.workload.store import read_profile


def write_numbers(minimal: MinimalProfile, card: Gpu, out: Path | None) -> Path:
    """Write a profile of numbers on the GPU model `card`, and return its path.

    Raises:
        InvalidInput: A number cannot be on that GPU, or a fuller profile has the name.
    """
    check_power(minimal.whole(), card)
    if minimal.memory_mib > card.memory_mib:
        raise InvalidInput(
            f"--memory-mib is {minimal.memory_mib:,.0f}, and {card.key} has {card.memory_mib:,}. "
            "Check the number, or --gpu."
        )
    path, fuller = _places(out, card.key, minimal.workload)
    if fuller:
        raise InvalidInput(
            f"{shown(fuller[0])} is a fuller profile than these numbers. Choose another --name."
        )
    write_whole(path, minimal_text(minimal))
    for line in preallocating_profiles([minimal.whole()]):
        say(f"{line}.")
    return path


def _places(out: Path | None, gpu: str, name: str) -> tuple[Path, list[Path]]:
    """Return the file of a new profile, and the whole ones that it would replace or hide."""
    path = (out or user_folder("profiles") / gpu) / f"{name}.json"
    shipped = [] if out else [beside_package("profiles") / gpu / path.name]
    others = [each for each in (path, *shipped) if is_file(each)]
    return path, [each for each in others if not holds_minimal(read_bytes(each))]


# Assumed seconds of a workload before the first has been measured.
_FIRST_S, _FIRST_WITH_PROBE_S = 25.0, 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _ProfileOptions:
    """The command as typed, and its options; `measure_env` is set only while measuring."""

    words: tuple[str, ...]
    workloads: tuple[str | Workload, ...]
    device: str
    out: Path | None
    gpu: str | None
    probe: bool
    cores: str | None
    deadline: float | None
    patience: float
    skip_existing: bool
    data: Path | None
    measure_env: dict[str, str]


def run_profile(document: str) -> int:
    """Profile the workloads of the JSON `document`; return 0, or 1 after listing the failures."""
    words = parse_record(_ProfileOptions, document, "the command")
    device = find_device(words.device)
    refuse_other(device, words.gpu)
    writable_folder(words.out or user_folder("profiles") / device.key)
    batch = _Batch(words, device.key)
    if batch.todo:
        cores, line = allowed_cores(words.cores), command_line("profile", words.words)
        with bench_on(device, cores, line) as bench:
            batch.measure(bench)
    return batch.verdict()


def idle_power_w(device: Device) -> float | None:
    """Measure the power of a claimed device before anything runs on it; None if not metered."""
    readings_w = power_readings_w(device, 5, 0.1)
    return median(readings_w) if readings_w else None


class _Batch:
    """The workloads still `todo`, each with the file of its profile, and what failed."""

    def __init__(self, words: _ProfileOptions, gpu: str) -> None:
        self._words = words
        self._failures: list[tuple[str, AdvisorError]] = []
        self.todo: list[tuple[Workload, Path]] = []
        for name in words.workloads:
            try:
                job = workload(name) if isinstance(name, str) else name
                if words.data is not None:
                    from advisor.zoo.images import find_images

                    job = job.reading(words.data, find_images(words.data).count)
                path, others = _places(words.out, gpu, job.name)
                for other in others:
                    _refuse_to_replace(other, job)
            except InvalidInput as error:
                self._fail(str(name), error)
                continue
            if not (words.skip_existing and path.exists()):
                self.todo.append((job, path))
        for _, path in self.todo:
            writable(path)

    def measure(self, bench: Bench) -> None:
        """Measure and write each, until all are done or the next would pass the deadline."""
        words, began = self._words, monotonic()
        idle_w = idle_power_w(bench.session.device)
        for number, (job, path) in enumerate(self.todo):
            took_s = monotonic() - began
            first_s = _FIRST_WITH_PROBE_S if words.probe else _FIRST_S
            next_s = took_s / number if number else first_s
            if words.deadline is not None and took_s + next_s > words.deadline:
                say(f"{len(self.todo) - number} left at the deadline; --skip-existing does them")
                return
            say(f"{number + 1}/{len(self.todo)} {job.name}")
            measured = job
            if job.script is not None:
                environment = {**job.script.environment, **words.measure_env}
                measured = replace(job, script=replace(job.script, environment=environment))
            try:
                profile = profile_alone(
                    measured,
                    bench,
                    idle_w,
                    probe=words.probe,
                    patience_s=words.patience,
                )
                kept = replace(profile.workload, script=job.script)
                lines: Sequence[str] = ()
                profile = replace(profile, workload=kept)
                with suppress(InvalidInput, OSError):  # there is none before, or a damaged one
                    profile, lines = add_moment(read_profile(path), profile)
                write_whole(path, record_line(profile))
                for line in (*lines, path):
                    say(f"  {line}")
            except AdvisorError as error:
                self._fail(job.name, error)
                # A client that was killed can leave an MPS server that accepts no new clients.
                bench.session.close()

    def verdict(self) -> int:
        """Print what failed; return the exit code, or raise the error of the only workload."""
        if not self._failures:
            return 0
        if len(self._words.workloads) == 1:
            raise self._failures[0][1]
        listed = self._failures if self.todo else []  # else these lines are the last ones
        say(f"{len(self._failures)} of {len(self._words.workloads)} failed{':' * bool(listed)}")
        for name, error in listed:
            say(f"  {name}: {error}")
        return AdvisorError.exit_code

    def _fail(self, name: str, error: AdvisorError) -> None:
        if len(self._words.workloads) > 1:  # a single workload's error is printed at the end
            say(f"  {name} failed: {error}")
        self._failures.append((name, error))


def _refuse_to_replace(path: Path, job: Workload) -> None:
    """Check that the profile in `path` is of the same command in the same folder as `job`."""
    try:
        other = read_profile(path).workload
    except InvalidInput:  # a damaged file
        return
    if _start_of(other) != _start_of(job):
        remedy = "choose another --out DIR" if job.script is None else "add --name NAME"
        raise InvalidInput(
            f"{shown(path)} is the profile of {_start_of(other)}, and this one is of "
            f"{_start_of(job)}. To keep both, {remedy}."
        )


def _start_of(job: Workload) -> str:
    """Name the command of a job and its folder, for a message; secrets are hidden."""
    if job.script is None:
        return f"the bundled workload {job.name}"
    return f"`{shlex.join(masked_words(job.script.command))}` in {job.script.folder}"


# A loader starts with prefetched batches, which must be used up before a window begins.
_TIMING = Timing(settle_s=0.0, window_s=0.5, windows=5, lead_s=0.4)
_TIMING_WITH_LOADER = replace(_TIMING, lead_s=1.5)

# Alone, a step takes no longer than as the only client of MPS: more than this share is the host's.
_MPS_FASTER = 1.3


def profile_alone(
    workload: Workload,
    bench: Bench,
    idle_power_w: float | None,
    *,
    probe: bool,
    patience_s: float = LOAD_S,
) -> Profile:
    """Measure `workload` in new processes: alone, then under MPS if `probe`.

    It may take no step for `patience_s`. `idle_power_w` is of the device before anything ran.
    """
    watch = Stopwatch()
    profile, taken = _measured_alone(workload, bench, patience_s, watch)
    if probe and bench.session.device.kind == "cuda":
        profile = replace(profile, mps=mps_probe(profile, taken, bench, watch))
        under_mps = profile.mps
        if under_mps is not None and profile.step_s > _MPS_FASTER * under_mps.unlimited.step_s:
            say("  the job was slower alone than under MPS; measuring it alone again")
            check_s = profile.host_check_s
            again, _ = _measured_alone(profile.workload, bench, patience_s, watch, check_s=check_s)
            profile = min(profile, replace(again, mps=profile.mps), key=lambda each: each.step_s)
    return replace(profile, idle_power_w=idle_power_w, took=watch.took())


def _measured_alone(
    workload: Workload,
    bench: Bench,
    patience_s: float,
    watch: Stopwatch,
    *,
    check_s: float | None = None,
) -> tuple[Profile, list[StepsTaken]]:
    """Return its profile without an MPS probe, and its steps until it was steady.

    Windows are at the pace of a core on which a check takes `check_s`; None: as in the mean.
    """
    session = bench.session
    session.switch_to(Naive())
    with tenants_on(session.setups(Naive(), [workload]), session.folder) as (tenant,):
        say("  starting the job")
        loaded = living(tenant.ask("load", timeout_s=patience_s, partly=True))
        workload = _completed(workload, loaded.get("found"))
        _say_training(workload, loaded.get("found"), tenant)
        watch.lap("start_s")
        taken = settle(tenant, loaded, patience_s)
        watch.lap("settle_s")
        timing = _TIMING_WITH_LOADER if workload.loader_workers else _TIMING
        pace = repeated_pace(tenant, Meter(session.device), timing, taken, patience_s)
        host_memory_mib = None if pace.over else tenant.running.resident_mib()
        watch.meter_s += pace.meter_s
        watch.lap("windows_s")
        say(f"  {_pace_text(pace)}")
        parts = StepParts()
        if pace.over:
            tenant.let_end()
            steps = sum(window.steps for window in pace.windows)
            say(f"  the job ended by itself: measured by {steps:.0f} steps, without a kernel trace")
        elif session.device.kind == "cuda":
            parts = step_parts(tenant, pace, session.device, watch)
        versions = tenant.versions
    watch.lap("start_s")
    for name, part_s in (("host", parts.host_s), ("GPU", parts.gpu_s)):
        if part_s is not None:
            say(f"  {name} {part_s * 1e3:.2f} ms a step")
    if parts.trace is not None and parts.trace.waits_us:
        waits = len(parts.trace.waits_us) / parts.trace.steps
        say(f"  the host waits for the GPU {waits:.3g} times a step")
    if check_s is None and pace.checks_s:
        check_s = fmean(pace.checks_s)
    power_w = pace.activity.power_w
    provenance = bench.origin.provenance(versions, pace.clocks_mhz)
    if workload.script is not None:
        provenance = replace(provenance, recipes=recipe_of_script(workload.script))
    profile = Profile(
        workload=workload,
        gpu=session.device.key,
        windows=pace.windows,
        host_s=parts.host_s,
        gpu_s=parts.gpu_s,
        host_cpu_share=pace.cpu_share / len(bench.cores),
        memory=pace.memory,
        counters=pace.activity.counters,
        power_w=power_w,
        energy_j=None if power_w is None else power_w * mean_step_s(pace.windows),
        idle_power_w=None,
        cores=bench.cores,
        mps=None,
        trace=parts.trace,
        provenance=provenance,
        host_check_s=check_s,
        host=pace.host and replace(pace.host, main_s=parts.main_s, loader_s=parts.loader_s),
        epoch_end=pace.rounds.epoch_end,
        host_memory_mib=host_memory_mib,
    )
    return replace(profile, windows=at_check(profile, pace.windows)), taken


# A step that takes so many times as long under a limit as alone is paced by the limit.
_LIMITED = 1.3


def at_check(
    profile: Profile, windows: Sequence[Window], *, limited: bool = False
) -> tuple[Window, ...]:
    """Bring `windows` to the pace of a core on which a check takes the mean of `profile`.

    Only the host's part of a step changes: all of it where the host sets the pace, what is left of
    the GPU's where the host waits for it, and nothing where the GPU sets the pace, or a limit: then
    a step takes much longer than alone.
    """
    check_s, gpu_s = profile.host_check_s, profile.gpu_s or 0.0
    waits = profile.trace is not None and profile.trace.waits_us
    paced_by_host = profile.host_s is None or profile.host_s >= gpu_s

    def brought(window: Window) -> Window:
        step_s = window.step_s
        by_limit = limited and step_s > _LIMITED * profile.step_s
        if check_s is None or window.check_s is None or by_limit:
            return window
        ratio = core_pace(check_s / window.check_s)
        if waits:
            step_s += max(0.0, step_s - gpu_s) * (ratio - 1)
        elif paced_by_host:
            step_s = max(min(gpu_s, step_s), step_s * ratio)
        return replace(window, seconds=step_s * window.steps)

    return tuple(map(brought, windows))


def _pace_text(pace: SoloPace) -> str:
    rounds, words = pace.rounds, [f"{mean_step_s(pace.windows) * 1e3:.2f} ms a step"]
    if rounds.steps > 1:
        words.append(
            f"a round of {rounds.steps} steps takes {sum(rounds.steps_s):.2f} s "
            f"({counted(rounds.whole, 'round')} seen)"
        )
    if rounds.epoch_end is not None:
        words.append(
            f"{rounds.epoch_end.seconds:.2f} s more at the end of an epoch "
            f"({rounds.epoch_ends} seen)"
        )
    if rounds.unclear:
        words.append("too few rounds were seen: the job may do more than these steps")
    return "; ".join(words)


# More training steps than an epoch has; minGPT's sampler has 10 billion examples.
_MOST_STEPS = 10_000_000


def _completed(workload: Workload, seen: Mapping[str, Any] | None) -> Workload:
    """Return `workload` with what its hook has `seen`; the user's options go first."""
    if seen is None:
        return workload
    batch = workload.batch if workload.batch > 1 else seen["batch"] or 1
    steps = workload.steps_per_epoch or seen["steps_per_epoch"]
    endless = steps is not None and steps > _MOST_STEPS  # a sampler that is never through
    return replace(
        workload,
        batch=batch,
        examples_per_epoch=None if steps is None or endless else steps * batch,
        loader_workers=workload.loader_workers or seen["loader_workers"],
        precision=seen["precision"],
        execution=seen["execution"],
    )


def _say_training(workload: Workload, seen: Mapping[str, Any] | None, tenant: Tenant) -> None:
    """Print a script's batch and epoch, what is doubtful, and options for what it does not show."""
    if workload.script is None:
        return
    examples = (
        f"{workload.batch:,} examples"
        if workload.batch > 1
        else "no loader's batch: --batch-size N"
    )
    steps = workload.steps_per_epoch
    epoch = "of unknown length: --steps-per-epoch N" if steps is None else f"{steps:,} steps"
    if others := [each for each in (seen or {}).get("other_epochs", ()) if each != steps]:
        listed = " and ".join(f"{each:,}" for each in others)
        epoch += f", and by other loaders {listed}: --steps-per-epoch N if that is the epoch"
    say(f"  a step has {examples}; an epoch, {epoch}; loader workers: {workload.loader_workers}")
    if note := tenant.first_of_several():
        say(f"  {note}")


_UNLIMITED_PCT = 100.0
_PROBE_TIMING = Timing(settle_s=0.0, window_s=0.35, windows=3, lead_s=0.25, longest_s=4.0)

# Slow steps take seconds each under a limit, so fewer of them warm up.
_SLOW_STEP_S, _WARM_STEPS, _WARM_STEPS_WHEN_SLOW = 0.2, 10, 2

# Processes that together hold more of the GPU's memory are started one after another: an allocator
# that runs short trains more slowly.
_MOST_HELD = 0.9


def mps_probe(
    profile: Profile, taken: Sequence[StepsTaken], bench: Bench, watch: Stopwatch
) -> MpsProbe | None:
    """Measure the workload of `profile` alone under MPS; None, after a message, if that fails.

    `taken` are steps that show its round.
    """
    session = bench.session
    try:
        session.switch_to(Mps())
        (unlimited, pace), *limited = _limited_runs(profile, taken, bench, watch)
    except AdvisorError as error:
        # The daemon does not start, or a client failed: the profile without MPS is still valid.
        say(f"  no MPS probe: {error}")
        session.close()  # a killed client can leave an MPS server that accepts no clients
        return None
    return MpsProbe(unlimited, tuple(run for run, _ in limited), pace.memory)


def _limited_runs(
    profile: Profile, taken: Sequence[StepsTaken], bench: Bench, watch: Stopwatch
) -> list[tuple[LimitedRun, SoloPace]]:
    limits_pct = (_UNLIMITED_PCT, *PROBE_LIMITS_PCT)
    session, held_mib = bench.session, profile.memory.device_mib
    most_mib = _MOST_HELD * gpu(session.device.key).memory_mib
    holds_all = held_mib is not None and len(limits_pct) * held_mib <= most_mib
    script = profile.workload.script
    # A program takes long to start, and can wait between its steps: all start at once if possible.
    if (script is None or script.by_steps) and holds_all:
        try:
            return _in_turn(limits_pct, profile, taken, bench, watch)
        except AdvisorError as error:  # two that want one port, say
            say(f"  {error}; under MPS, its processes are started one after another")
            session.close()
            session.switch_to(Mps())
    return [run for limit in limits_pct for run in _in_turn([limit], profile, taken, bench, watch)]


def _in_turn(
    limits_pct: Sequence[float],
    profile: Profile,
    taken: Sequence[StepsTaken],
    bench: Bench,
    watch: Stopwatch,
) -> list[tuple[LimitedRun, SoloPace]]:
    """Runs under `limits_pct` of clients that start at once and then train one after another."""
    session, workload, runs = bench.session, profile.workload, []
    patience_s, meter = watch.patience_s(), Meter(session.device)
    modes = [Mps() if limit == _UNLIMITED_PCT else Mps((limit,)) for limit in limits_pct]
    setups = [setup for mode in modes for setup in session.setups(mode, [workload])]
    slow = mean_step_s(profile.windows) >= _SLOW_STEP_S
    warm_steps = _WARM_STEPS_WHEN_SLOW if slow else _WARM_STEPS
    with tenants_on(setups, session.folder) as tenants:
        answers = ask_all(tenants, "load", patience_s, warm_steps=warm_steps)
        loads = [living(answer) for answer in answers]
        session.proved_clients(Mps(), [tenant.pid for tenant in tenants])
        for limit_pct, tenant, loaded in zip(limits_pct, tenants, loads, strict=True):
            pace = measured_pace(tenant, meter, _PROBE_TIMING, taken, patience_s)
            windows = at_check(profile, pace.windows, limited=True)
            run = LimitedRun(limit_pct, loaded["sms"], windows)
            say(f"  MPS {limit_pct:g} %: {run.step_s * 1e3:.2f} ms a step on {run.sms} SMs")
            watch.lap("mps_s" if limit_pct == _UNLIMITED_PCT else "limits_s")
            runs.append((run, pace))
    return runs
