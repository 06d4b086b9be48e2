"""``advisor profile --from-mlflow``: what MLflow or radT tracked, as profiles and runs."""

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from advisor.errors import InvalidInput
from advisor.hardware.catalogue import Gpu, gpu_meant
from advisor.measure.process.supervisor import say
from advisor.measure.solo.from_numbers import refuse_fuller
from advisor.workload.files import user_folder
from advisor.workload.measured import Provenance
from advisor.workload.minimal_profile import LEAST_MEMORY_MIB, MinimalProfile, minimal_text
from advisor.workload.run import Run, Tenant
from advisor.workload.tracked_numbers import Reading, TrackedNumbers, numbers_of
from advisor.workload.tracked_runs import TrackedRun, tracked_runs
from advisor.workload.tracked_sharing import TogetherOnGpu, together_on_gpus
from advisor.workload.writing import new_path, run_line, write_whole

_NO_NAME = re.compile(r"[^A-Za-z0-9._+-]+")
# radT puts the workload and its letter before a run's name.
_RADT_PREFIX = re.compile(r"^\([^)]*\) ")
_LONGEST = 100
RUNS = "from-mlflow.jsonl"


def run(argv: Sequence[str]) -> int:
    """Write a profile of each run that was alone, and a record of those that were together.

    Raises:
        InvalidInput: The store is none, a run is none of it, or none of them can be read.
        SystemExit: The words ask for help (0), or cannot be parsed (2).
    """
    asked = _parser().parse_args(argv)
    card = gpu_meant(asked.gpu)
    folder = (asked.out or user_folder("profiles")) / card.key
    found = _read(_chosen(tracked_runs(asked.store), asked.run), card, asked)
    for why in found.refused:
        say(f"left out: {why}")
    if not found.profiles and not found.shared:
        raise InvalidInput(f"{asked.store}: no run of it can be read; each says why above.")
    for name in found.profiles:
        refuse_fuller(folder / f"{name}.json")
    for name, profile in found.profiles.items():
        write_whole(folder / f"{name}.json", minimal_text(profile))
        say(f"  {folder / name}.json")
    if found.shared:
        runs = folder / "runs" / RUNS
        write_whole(runs, "".join(map(run_line, found.shared)))
        say(f"  {runs}: `advisor validate --from {runs}` sets predictions beside it")
    return 0


@dataclass(frozen=True, slots=True)
class _Found:
    """What a store holds: profiles by name, shared runs, and why others are left out."""

    profiles: dict[str, MinimalProfile] = field(default_factory=dict)
    shared: list[Run] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)


def _read(runs: Sequence[TrackedRun], card: Gpu, asked: argparse.Namespace) -> _Found:
    found = _Found()
    for each in together_on_gpus(runs):
        try:
            if len(each.runs) > 1 and not asked.alone:
                found.shared.append(_together(each, card, asked))
                continue
            for profile in _alone(each, card, asked):
                if profile.workload in found.profiles:
                    found.refused.append(f"an earlier run of the name {profile.workload}")
                found.profiles[profile.workload] = profile
        except InvalidInput as error:
            found.refused.append(f"{', '.join(run.name for run in each.runs)}: {error}")
    return found


def _chosen(found: Sequence[TrackedRun], names: Sequence[str] | None) -> list[TrackedRun]:
    chosen = [each for each in found if not names or each.id in names or each.name in names]
    if unknown := [
        name for name in names or () if name not in {word for e in found for word in (e.id, e.name)}
    ]:
        known = ", ".join(each.name for each in found[:8])
        raise InvalidInput(f"--run {unknown[0]}: the store has none of that name or id: {known}")
    return chosen


def _reading(asked: argparse.Namespace) -> Reading:
    return Reading(
        batch_size=asked.batch_size, examples_per_epoch=asked.examples_per_epoch,
        step_metric=asked.step_metric, epoch_metric=asked.epoch_metric,
    )  # fmt: skip


def _alone(each: TogetherOnGpu, card: Gpu, asked: argparse.Namespace) -> list[MinimalProfile]:
    if each.sharing is not None and each.sharing.startswith("mig="):
        raise InvalidInput(f"it was on an instance ({each.sharing}); profiles are of a whole GPU")
    return [_profile(run, numbers_of(run, _reading(asked)), card, asked) for run in each.runs]


def _profile(
    run: TrackedRun, known: TrackedNumbers, card: Gpu, asked: argparse.Namespace
) -> MinimalProfile:
    memory_mib = asked.memory_mib or known.memory_mib
    if memory_mib is None:
        raise InvalidInput(
            "its memory was not tracked. Track it (MLflow's system metrics, radT's smi), or say "
            "--memory-mib"
        )
    busy = known.gpu_utilization
    return MinimalProfile(
        schema=1, workload=_name(run, known.batch_size), gpu=card.key, batch_size=known.batch_size,
        step_s=known.step_s, memory_mib=memory_mib, power_w=known.power_w, gpu_utilization=busy,
        memory_utilization=None if busy is None else known.memory_utilization,
        examples_per_epoch=asked.examples_per_epoch,
        read_from=f"{_source(run)}; pace by {known.paced_by}",
    )  # fmt: skip


def _source(run: TrackedRun) -> str:
    by = "radT" if "letter" in run.params else "MLflow"
    return f"{by} run {run.id} of experiment {run.experiment}"


def _name(run: TrackedRun, batch: int) -> str:
    """Of radT's runs, what was started; of others, what they were called."""
    if "letter" in run.params and "file" in run.params:
        words = f"{Path(run.params['file']).stem} {run.params.get('params', '')}"
        text = re.sub(r"-+(?:batch[-_]size|bs|b)[ =]\d+", "", words)
        return f"{_plain(text)}-bs{batch}"
    return _plain(_RADT_PREFIX.sub("", run.name))


def _plain(text: str) -> str:
    return _NO_NAME.sub("-", re.sub(r"(?:^| )-+", " ", text)).strip("-._+")[:_LONGEST] or "run"


def _together(each: TogetherOnGpu, card: Gpu, asked: argparse.Namespace) -> Run:
    if each.sharing is None:
        raise InvalidInput(
            "they ran at the same time, and nothing says how they shared a GPU. Name those that "
            "had one each with --run and --alone"
        )
    known = [numbers_of(run, _reading(asked)) for run in each.runs]
    powers = [one.power_w for one in known if one.power_w is not None]
    return Run(
        id=f"mlflow-{each.runs[0].id[:12]}",
        gpu=card.key,
        sharing=each.sharing,
        purpose="chosen",
        repeats=None,
        tenants=tuple(
            _tenant(run, one, card, asked) for run, one in zip(each.runs, known, strict=True)
        ),
        mps_clients=len(known) if each.sharing == "mps" else 0,
        power_w=max(powers, default=None),
        counters=None,
        provenance=_provenance(each.runs, card),
    )


def _tenant(run: TrackedRun, known: TrackedNumbers, card: Gpu, asked: argparse.Namespace) -> Tenant:
    # What was metered is of the whole GPU, so of nobody alone: the memory is not kept.
    whole = MinimalProfile(
        schema=1, workload=_name(run, known.batch_size), gpu=card.key, batch_size=known.batch_size,
        step_s=known.step_s, memory_mib=LEAST_MEMORY_MIB, power_w=None, gpu_utilization=None,
        memory_utilization=None, examples_per_epoch=asked.examples_per_epoch,
    ).whole()  # fmt: skip
    return Tenant(
        workload=whole.workload, outcome="ok", detail=None, windows=whole.windows, memory=None,
        cores=(), sms=None,
    )  # fmt: skip


def _provenance(runs: Sequence[TrackedRun], card: Gpu) -> Provenance:
    began = datetime.fromtimestamp(min(run.start_s or 0.0 for run in runs), UTC)
    return Provenance(
        device=card.products[0] if card.products else card.key, driver=None, cuda=None,
        torch="unknown", timm=None, python="unknown", sm_clock_mhz=None, memory_clock_mhz=None,
        host_cpu="unknown", host_cores=1, date=began.isoformat(timespec="seconds"),
        command=f"read from {', '.join(map(_source, runs))}",
    )  # fmt: skip


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="advisor profile --from-mlflow",
        description="Reads what MLflow, or radT on top of it, tracked of jobs on a GPU, from a "
        "folder (mlruns) or an SQLite database; MLflow itself is not needed. Writes a profile of "
        "bare numbers of each run that was alone, DIR/GPU/NAME.json, labelled with its source; of "
        f"runs that radT started together, DIR/GPU/runs/{RUNS}.",
    )
    add = parser.add_argument
    add("--from-mlflow", dest="store", type=Path, required=True, metavar="STORE",
        help="folder or database")  # fmt: skip
    add("--gpu", required=True, metavar="KEY", help="on which they ran, as `advisor gpus` lists it")
    add("--run", action="append", metavar="NAME", help="only this one, by name or id [all]")
    add("--alone", action="store_true", help="each had a GPU to itself, whatever else ran then")
    add("--batch-size", type=int, metavar="N", help="examples a step [its parameters say]")
    add("--examples-per-epoch", type=int, metavar="N", help="where the pace is known by epochs")
    add("--step-metric", metavar="METRIC", help="logged with the number of training steps")
    add("--epoch-metric", metavar="METRIC", help="logged once an epoch")
    add("--memory-mib", type=float, metavar="MIB", help="what its process held, if not tracked")
    add(
        "--out", type=new_path, metavar="DIR", help="folder of profiles [your own, read by advisor]"
    )
    return parser
