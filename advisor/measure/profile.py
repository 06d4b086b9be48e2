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
from advisor.hardware.host_cores import cores_of_each, leave_to_tenants
from advisor.measure.device import Meter, Origin, recipe_of_script
from advisor.measure.mps import MpsSession
from advisor.measure.pace import (
    ProbedJob,
    SoloPace,
    StepParts,
    Stopwatch,
    asked,
    mps_probe,
    repeated_pace,
    settled_step_s,
    step_parts,
)
from advisor.measure.process import say
from advisor.measure.tenants import tenants_on
from advisor.measure.windows import Timing, profiling_verbs
from advisor.measure.worker import LOAD_S
from advisor.sharing import Naive
from advisor.workload.profile import Profile, Provenance, pace_spread, unsteady
from advisor.workload.spec import Script, Workload, is_name

# What a command begins with; no workload is called so.
_STARTS = re.compile(r"(.*/)?(python[0-9.]*|torchrun|accelerate|deepspeed|bash|sh)|.*\.(py|sh)")


def split_command(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words before the first ``--``, and the command after it.

    Raises:
        InvalidInput: There is no ``--``, and a command among the words.
    """
    words = list(argv)
    if "--" not in words:
        _refuse_command(words)
        return words, []
    at = words.index("--")
    return words[:at], words[at + 1 :]


def _refuse_command(words: Sequence[str]) -> None:
    at = next((at for at, word in enumerate(words) if _STARTS.fullmatch(word)), None)
    if at is None:
        return
    started = [] if not words[at].endswith(".py") else ["python"]
    asked = shlex.join(["advisor", "profile", *words[:at], "--", *started, *words[at:]])
    raise InvalidInput(f"put -- before a command of your own: `{asked}`")


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


def script_workload(asked: Namespace, command: Sequence[str]) -> list[Workload]:
    """The script that the words describe, if there is a `command`.

    Raises:
        InvalidInput: They contradict each other, or it cannot be started so.
    """
    if not command:
        _refuse_script_options(asked)
        return []
    if asked.workloads or asked.timm is not None:
        raise InvalidInput("a script is profiled by itself: name no workload before the --")
    script = Script(
        command=tuple(command),
        folder=str((asked.folder or Path()).resolve()),
        environment=dict(map(_variable, asked.env)),
        throughput=asked.throughput,
    )
    name = _name_of_file(script) if asked.name is None else asked.name
    batch = 1 if asked.batch is None else asked.batch
    steps = asked.steps_per_epoch
    return [
        Workload(
            name=name, source="script", model=name, family=name, batch=batch, script=script,
            loader_workers=asked.loader_workers or 0,
            examples_per_epoch=None if steps is None else steps * batch,
        )
    ]  # fmt: skip


def _refuse_script_options(asked: Namespace) -> None:
    given = [name for name in _OF_SCRIPTS if _is_said(getattr(asked, name))]
    if given:
        flag = "--" + given[0].replace("_", "-")
        raise InvalidInput(
            f"{flag} describes a script: give its command after --, e.g. -- python train.py"
        )


def _name_of_file(script: Script) -> str:
    found = Path(script.file or script.command[0]).stem
    if not is_name(found):
        raise InvalidInput(f"{found!r} cannot be what its profile is called: say --name NAME")
    return found


def _is_said(value: object) -> bool:
    """Whether an option was given, also where it says nothing, as an empty word or 0."""
    return value is not None and value != []


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise InvalidInput(f"--env {text}: write NAME=VALUE")
    return name, value


def training_text(workload: Workload) -> str:
    """What a script was found to train on, in words, or how to say it where nothing tells."""
    examples = (
        f"{workload.batch:,} examples" if workload.batch > 1 else "no loader's batch: --batch N"
    )
    steps = workload.steps_per_epoch
    epoch = "of unknown length: --steps-per-epoch N" if steps is None else f"{steps:,} steps"
    return f"a step has {examples}; an epoch, {epoch}; loader workers: {workload.loader_workers}"


def described(workload: Workload, found: Mapping[str, Any] | None) -> Workload:
    """`workload` with what was `found` of a script where the user did not say it.

    Args:
        workload: Of a batch of 1 and without loader workers where these were not said.
        found: As the hook of a script answers; None: there is none.
    """
    if found is None:
        return workload
    batch = workload.batch if workload.batch > 1 else found["batch"] or 1
    steps = workload.steps_per_epoch or found["steps_per_epoch"]
    return replace(
        workload,
        batch=batch,
        examples_per_epoch=None if steps is None else steps * batch,
        loader_workers=workload.loader_workers or found["loader_workers"],
        precision=found["precision"],
        execution=found["execution"],
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
        session: Of the claimed device.
        origin: The provenance that all figures share.
        host_cores: All host cores that this process may use.
        cores: Those that tenants may have.
        probe: Whether to measure under MPS too.
        idle_power_w: Of the device before anything ran; None if not metered.
        patience_s: How long a workload may take no step.
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
    """What one process showed; `workload` as it describes itself."""

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
    """The profile that `alone` amounts to, without an MPS probe."""
    pace, parts = alone.pace, alone.parts
    power_w = pace.activity.power_w
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
        provenance=_provenance(alone, settings),
        host_check_s=pace.host_check_s,
        host=pace.host and replace(pace.host, main_s=parts.main_s, loader_s=parts.loader_s),
    )


def _provenance(alone: _Alone, settings: SoloRunSettings) -> Provenance:
    found = settings.origin.provenance(alone.versions, alone.pace.clocks_mhz)
    script = alone.workload.script
    return found if script is None else replace(found, recipes=recipe_of_script(script))


def _steadier_alone(workload: Workload, settings: SoloRunSettings, watch: Stopwatch) -> _Alone:
    """As `_trained_alone`; where its windows disagree, the steadier of two such measurements.

    The second is at another moment, on other cores if there are any.
    """
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
        settings.session.close()  # a client that died can leave an MPS server that serves nobody
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
        loaded = asked(tenant, "load", timeout_s=settings.patience_s, workload=workload)
        workload = described(workload, loaded.get("found"))
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
    """All for a script: how many loader workers it has shows when it trains."""
    return cores if workload.script is None else settings.cores


def cores_for(workload: Workload, settings: SoloRunSettings) -> tuple[int, ...]:
    """The cores to which the processes of `workload` are pinned.

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
