"""``advisor profile``: profiles workloads one after another, and writes each file as it is done."""

import shlex
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from time import monotonic

from advisor.errors import AdvisorError, InvalidInput
from advisor.files.reading import beside_package, is_file, read_bytes, shown, user_folder
from advisor.files.records import parse_record
from advisor.files.writing import record_line, writable, writable_folder, write_whole
from advisor.hardware.gpus import Gpu
from advisor.hardware.machine import allowed_cores
from advisor.measure.alone import profile_alone
from advisor.measure.bench import Bench, bench_on
from advisor.measure.device import (
    Device,
    command_line,
    find_device,
    power_readings_w,
    refuse_other,
)
from advisor.measure.process import say
from advisor.workload.catalogue import workload
from advisor.workload.minimal_profile import MinimalProfile, holds_minimal, minimal_text
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
            f"--memory-mib is {minimal.memory_mib:,.0f}, and {card.key} has {card.memory_mib:,}: "
            "no job held that there. Check the number, or --gpu."
        )
    path, fuller = _places(out, card.key, minimal.workload)
    if fuller:
        raise InvalidInput(
            f"{shown(fuller[0])}: that profile says more than these numbers. Choose another --name."
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
class _Words:
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
    words = parse_record(_Words, document, "the command")
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

    def __init__(self, words: _Words, gpu: str) -> None:
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
                # A client that died can leave an MPS server that accepts no new clients.
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
        there = read_profile(path).workload
    except InvalidInput:  # a damaged file
        return
    if _start_of(there) != _start_of(job):
        remedy = "choose another --out DIR" if job.script is None else "add --name NAME"
        raise InvalidInput(
            f"{shown(path)} is the profile of {_start_of(there)}, and this is {_start_of(job)}. To "
            f"keep both, {remedy}."
        )


def _start_of(job: Workload) -> str:
    """Name the command of a job and its folder, for a message; secrets are hidden."""
    if job.script is None:
        return f"the bundled workload {job.name}"
    return f"`{shlex.join(masked_words(job.script.command))}` in {job.script.folder}"
