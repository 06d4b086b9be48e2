"""Profiles one workload alone on a device."""

import argparse
import re
import shlex
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import sleep
from typing import Any

from advisor.errors import AdvisorError, InvalidInput, counted
from advisor.hardware.machine import cores_of_each, leave_to_tenants
from advisor.measure.device import Meter, Origin, recipe_of_script
from advisor.measure.mps import MpsSession
from advisor.measure.pace import (
    ProbedJob,
    SoloPace,
    StepParts,
    Stopwatch,
    Timing,
    mps_probe,
    repeated_pace,
    settled_step_s,
    step_parts,
)
from advisor.measure.process import say
from advisor.measure.tenants import tenants_on
from advisor.measure.trace import profiling_verbs
from advisor.measure.worker import LOAD_S, living
from advisor.sharing import Naive
from advisor.workload.profile import Profile, pace_spread, unsteady
from advisor.workload.spec import Script, Workload, is_name

# What a command begins with; no workload is called so.
_STARTS = re.compile(r"(.*/)?(python[0-9.]*|torchrun|accelerate|deepspeed|bash|sh)|.*\.(py|sh)")


def split_command(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the words before the first ``--``, and the command after it.

    Raises:
        InvalidInput: There is no ``--``, and a command among the words.
    """
    words = list(argv)
    if "--" in words:
        at = words.index("--")
        return words[:at], words[at + 1 :]
    at = next((at for at, word in enumerate(words) if _STARTS.fullmatch(word)), len(words))
    if at < len(words):
        started = ["python"] if words[at].endswith(".py") else []
        line = shlex.join(["advisor", "profile", *words[:at], "--", *started, *words[at:]])
        raise InvalidInput(f"put -- before a command of your own: `{line}`")
    return words, []


def add_script_options(group: "argparse._ArgumentGroup") -> None:
    """Add what describes a script to the words of a command line."""
    add = group.add_argument
    add("--name", help="what its profile is called [its file's]")
    add("--folder", type=Path, metavar="DIR", help="where it runs [here]; it sees a copy, in which "
        "what it writes by relative paths is not kept")  # fmt: skip
    add("--env", action="append", default=[], metavar="NAME=VALUE", help="set for it, and kept in "
        "its profile")  # fmt: skip
    add("--steps-per-epoch", type=int, metavar="N", help="optimizer steps of a pass [its loader's]")
    add("--throughput", metavar="REGEX", help="for what is not PyTorch: finds, as its one group, "
        "the examples a second that it prints")  # fmt: skip


_OF_SCRIPTS = ("name", "folder", "env", "steps_per_epoch", "throughput")


def script_workload(words: Namespace, command: Sequence[str]) -> list[Workload]:
    """Return the script that `words` describe, if there is a `command`.

    Raises:
        InvalidInput: They contradict each other, or it cannot be started so.
    """
    if not command:
        # An option counts also with an empty word or 0.
        values = {name: getattr(words, name) for name in _OF_SCRIPTS}
        for name, value in values.items():
            if value is not None and value != []:
                flag = "--" + name.replace("_", "-")
                raise InvalidInput(
                    f"{flag} describes a script: give its command after --, e.g. -- python train.py"
                )
        return []
    if words.workloads or words.timm is not None:
        raise InvalidInput("a script is profiled by itself: name no workload before the --")
    environment = {}
    for text in words.env:
        variable, equals, value = text.partition("=")
        if not equals:
            raise InvalidInput(f"--env {text}: write NAME=VALUE")
        environment[variable] = value
    script = Script(
        command=tuple(command),
        folder=str((words.folder or Path()).resolve()),
        environment=environment,
        throughput=words.throughput,
    )
    name = words.name
    if name is None:
        name = Path(script.file or script.command[0]).stem
        if not is_name(name):
            raise InvalidInput(f"{name!r} cannot be what its profile is called: say --name NAME")
    batch = 1 if words.batch is None else words.batch
    steps = words.steps_per_epoch
    return [
        Workload(
            name=name, source="script", model=name, family=name, batch=batch, script=script,
            loader_workers=words.loader_workers or 0,
            examples_per_epoch=None if steps is None else steps * batch,
        )
    ]  # fmt: skip


def training_text(workload: Workload) -> str:
    """Describe a script's batch and epoch, with the options for those that it does not show."""
    examples = (
        f"{workload.batch:,} examples" if workload.batch > 1 else "no loader's batch: --batch N"
    )
    steps = workload.steps_per_epoch
    epoch = "of unknown length: --steps-per-epoch N" if steps is None else f"{steps:,} steps"
    return f"a step has {examples}; an epoch, {epoch}; loader workers: {workload.loader_workers}"


def complete_workload(workload: Workload, seen: Mapping[str, Any] | None) -> Workload:
    """Complete `workload` by what the hook has `seen` of its script; the user's options go first.

    Args:
        workload: With a batch of 1 and without loader workers if the user gave neither.
        seen: The hook's answer; None without a hook.
    """
    if seen is None:
        return workload
    batch = workload.batch if workload.batch > 1 else seen["batch"] or 1
    steps = workload.steps_per_epoch or seen["steps_per_epoch"]
    return replace(
        workload,
        batch=batch,
        examples_per_epoch=None if steps is None else steps * batch,
        loader_workers=workload.loader_workers or seen["loader_workers"],
        precision=seen["precision"],
        execution=seen["execution"],
    )


# A loader starts with prefetched batches, which must be used up before a window begins.
_TIMING = Timing(settle_s=0.0, window_s=0.5, windows=5, lead_s=0.4)
_TIMING_WITH_LOADER = Timing(settle_s=0.0, window_s=0.5, windows=5, lead_s=1.5)

# Before a workload is measured again: a virtual core can be slow for seconds.
_PAUSE_S = 5.0

# Kernels take longer in the profiler, short ones most; a trace beyond this ratio gets a warning.
_TRACE_MAY_EXCEED = 1.05


@dataclass(frozen=True, slots=True, kw_only=True)
class SoloRunSettings:
    """Settings that all workloads of a batch share.

    Attributes:
        session: MPS session on the claimed device.
        origin: The provenance that all figures share.
        host_cores: All host cores that this process may use.
        cores: Cores that tenants may have.
        probe: Whether to measure under MPS too.
        idle_power_w: Power of the device before anything ran; None if not metered.
        patience_s: Seconds that a workload may take no step.
    """

    session: MpsSession
    origin: Origin
    host_cores: tuple[int, ...]
    cores: tuple[int, ...]
    probe: bool
    idle_power_w: float | None
    patience_s: float = LOAD_S


@dataclass(frozen=True, slots=True)
class _Alone:
    """The measurements of one process; `workload` completed by its own answers."""

    workload: Workload
    cores: tuple[int, ...]
    pace: SoloPace
    parts: StepParts
    versions: Mapping[str, str | None]


def profile_alone(workload: Workload, settings: SoloRunSettings) -> Profile:
    """Measure `workload` in new processes: alone, again if its windows disagree, then under MPS.

    Raises:
        InvalidInput: It cannot be built, or needs more cores than are allowed.
        AdvisorError: It ran out of memory or died.
    """
    session, watch = settings.session, Stopwatch()
    session.switch_to(Naive())
    leave_to_tenants([cores_for(workload, settings)], settings.host_cores)
    alone = _steadier_alone(workload, settings, watch)
    _report(alone.pace, alone.parts)
    profile = _profile(alone, settings)
    if settings.probe and session.device.kind == "cuda":
        job = ProbedJob(
            workload=alone.workload, cores=alone.cores,
            starting_cores=_starting_cores(alone.workload, alone.cores, settings),
            step_s=alone.pace.mean_step_s, held_mib=alone.pace.memory.device_mib,
        )  # fmt: skip
        profile = replace(profile, mps=mps_probe(job, session, watch))
    return replace(profile, took=watch.took(alone.pace.meter_s))


def _profile(alone: _Alone, settings: SoloRunSettings) -> Profile:
    """The profile of `alone`, without an MPS probe."""
    pace, parts, script = alone.pace, alone.parts, alone.workload.script
    power_w = pace.activity.power_w
    provenance = settings.origin.provenance(alone.versions, pace.clocks_mhz)
    if script is not None:
        provenance = replace(provenance, recipes=recipe_of_script(script))
    return Profile(
        workload=alone.workload,
        gpu=settings.session.device.key,
        windows=pace.windows,
        host_s=parts.host_s,
        gpu_s=parts.gpu_s,
        host_cpu_share=pace.host_cpu_share,
        memory=pace.memory,
        counters=pace.activity.counters,
        power_w=power_w,
        energy_j=None if power_w is None else power_w * pace.mean_step_s,
        idle_power_w=settings.idle_power_w,
        cores=alone.cores,
        mps=None,
        trace=parts.trace,
        provenance=provenance,
        host_check_s=pace.host_check_s,
        host=pace.host and replace(pace.host, main_s=parts.main_s, loader_s=parts.loader_s),
    )


def _steadier_alone(workload: Workload, settings: SoloRunSettings, watch: Stopwatch) -> _Alone:
    """Measure it; if its windows disagree, again later on other cores, and keep the steadier."""
    first = _trained_alone(workload, settings, watch)
    varied = unsteady(first.pace.windows)
    if varied is None:
        return first
    say(f"  its steps varied by {varied:.0%}; measuring it again at another moment")
    sleep(_PAUSE_S)
    others = tuple(core for core in settings.cores if core not in first.cores)
    moved = replace(settings, cores=others + first.cores)
    leave_to_tenants([cores_for(first.workload, moved)], settings.host_cores)
    try:
        second = _trained_alone(first.workload, moved, watch)
    except AdvisorError as error:
        say(f"  {error}; the first measurement is kept")
        settings.session.close()  # a client that died can leave an MPS server that accepts none
        settings.session.switch_to(Naive())
        second = first
    kept = min(first, second, key=lambda each: pace_spread(each.pace.windows))
    leave_to_tenants([kept.cores], settings.host_cores)
    if (varied := unsteady(kept.pace.windows)) is not None:
        say(f"  its steps vary by {varied:.0%}; intervals are wider for it")
    return kept


def _trained_alone(workload: Workload, settings: SoloRunSettings, watch: Stopwatch) -> _Alone:
    session, cores = settings.session, cores_for(workload, settings)
    starting = _starting_cores(workload, cores, settings)
    setups = session.setups(Naive(), [starting], [workload])
    with tenants_on(setups, session.folder, profiling_verbs) as (tenant,):
        answer = tenant.ask("load", timeout_s=settings.patience_s, workload=workload)
        loaded = living(answer)
        workload = complete_workload(workload, loaded.get("found"))
        if workload.script is not None:
            say(f"  {training_text(workload)}")
        cores = cores_for(workload, settings)
        tenant.pin(cores)
        watch.lap("start_s")
        step_s = settled_step_s(tenant, loaded["warm_step_s"], settings.patience_s)
        watch.lap("settle_s")
        timing = _TIMING_WITH_LOADER if workload.loader_workers else _TIMING
        meter = Meter(session.device)
        pace = repeated_pace(tenant, meter, timing, step_s, settings.patience_s)
        watch.lap("windows_s")
        parts = step_parts(tenant, pace, session.device, watch)
        versions = tenant.versions
    watch.lap("start_s")
    return _Alone(workload, cores, pace, parts, versions)


def _starting_cores(
    workload: Workload, cores: tuple[int, ...], settings: SoloRunSettings
) -> tuple[int, ...]:
    """All cores for a script: its loader workers show only when it trains."""
    return cores if workload.script is None else settings.cores


def cores_for(workload: Workload, settings: SoloRunSettings) -> tuple[int, ...]:
    """Return the cores to which the processes of `workload` are pinned.

    Raises:
        InvalidInput: It needs more than are allowed.
    """
    share = settings.session.device.kind == "cpu"
    return cores_of_each([workload.cores], settings.cores, share=share)[0]


def _report(pace: SoloPace, parts: StepParts) -> None:
    step_s = pace.mean_step_s
    host, on_gpu = (
        "" if each is None else f", {name} {each * 1e3:.2f} ms"
        for name, each in (("host", parts.host_s), ("GPU", parts.gpu_s))
    )
    say(f"  {step_s * 1e3:.2f} ms a step{host}{on_gpu}")
    if parts.trace is not None and parts.trace.waits_us:
        say(f"  its host waits for the GPU {counted(len(parts.trace.waits_us), 'time')} a step")
    if parts.gpu_s is not None and parts.gpu_s > _TRACE_MAY_EXCEED * step_s:
        say("  its kernels add up to more than the step measured without a profiler")
