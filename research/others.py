"""Predictions compared with what others measured on GPUs that we do not have.

    python -m research.others DIR

reads the tables of others in DIR, which this repository does not contain, and writes
``others.json``, from which documents are rendered: `make report OTHERS=DIR`. Sources: PEACE (pairs
of training loops on a V100), MISO (SoCC 2022) and MIGPerf (slices of an A100), timm (an RTX 3090).
"""

import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from advisor.errors import InvalidInput
from advisor.files.records import parse_record
from advisor.files.writing import write_whole
from advisor.hardware.gpus import gpu
from advisor.learn.scores import JobComparison
from advisor.prediction.find_profile import find_profile
from advisor.prediction.host import is_gpu_bound
from advisor.prediction.model import load_model
from advisor.prediction.other_gpu import on_gpu
from advisor.prediction.predictor import Predictor
from advisor.report.format import percent
from advisor.sharing import Concurrent, Instance, Mig, Mps, Naive, Serial
from advisor.workload.minimal_profile import MinimalProfile
from advisor.workload.profile import Profile
from advisor.workload.store import model_path
from research.bare import (
    BY_DCGM,
    BY_DRIVER,
    ERROR_HEADINGS,
    GPUS,
    WITH_LIMITS,
    Errors,
    FirstPlans,
    errors_of,
    first_plans,
    matching,
)
from research.files import PROFILES, csv_rows, profiles_in, rounded
from research.regret import MODEL, Panel, PanelOption
from research.score_tables import MODE_WORDS, markdown
from research.steps import joined

FILE = Path(__file__).with_suffix(".json")
V100, A100, RTX_3090 = "v100-32gb", "a100-40gb", "rtx-3090-24gb"

ALL_SLICES, ALONE, GPU_BOUND = "all slices", "alone", "alone, GPU-bound"
TRANSLATED = "trace of another GPU"

# The limits of a bare probe, of those that PEACE and MISO measured alone.
_V100_LIMITS, _A100_LIMITS = (30, 50), (14, 50)


@dataclass(frozen=True, slots=True, kw_only=True)
class Others:
    """Errors of steps on GPUs of others, and regret of first plans there.

    Attributes:
        errors: By what is known of a job, and by mode, slice or kind.
    """

    schema: int = 1
    errors: tuple[Errors, ...]
    first: tuple[FirstPlans, ...]


def others(folder: Path) -> Others:
    """Predict all of it by the shipped model."""
    errors, first = v100_scores(folder)
    return Others(
        errors=(*errors, *slice_errors(folder), *rtx_errors(folder), *translated_errors()),
        first=first,
    )


@cache
def _predictor(key: str) -> Predictor:
    return Predictor(gpu(key), load_model(model_path()))


def _numbers(key: str, name: str, step_s: float, busy_percent: float) -> MinimalProfile:
    """A job of which the step and the GPU utilisation are known; its memory is made up."""
    return MinimalProfile(
        schema=1,
        workload=name,
        gpu=key,
        batch_size=1,
        step_s=step_s,
        memory_mib=1000.0,
        gpu_utilization=busy_percent / 100,
        power_w=None,
        memory_utilization=None,
    )


# Pairs on a V100


def v100_profiles(folder: Path) -> Mapping[str, Mapping[str, Profile]]:
    """Return the profiles of PEACE's loops by what is known of them and by name."""
    profiles: dict[str, dict[str, Profile]] = defaultdict(dict)
    for row in csv_rows(folder / "v100_solo.csv"):
        number = {name: float(value) for name, value in row.items() if name != "job" and value}

        def step_s(limit: float, number: Mapping[str, float] = number) -> float:
            return 1 / number[f"steps_per_s_at_{limit:.0f}_percent"]

        by_driver = replace(
            _numbers(V100, row["job"], step_s(100), number["gpu_utilization_percent"]),
            memory_utilization=number["memory_utilization_percent"] / 100,
            memory_mib=1024 * number["memory_gib"],
            power_w=number["power_w"],
        )
        by_dcgm = replace(
            by_driver,
            sm_active=number["sm_active_percent"] / 100,
            sm_occupancy=number["sm_occupancy_percent"] / 100,
            dram_active=number["dram_active_percent"] / 100,
        )
        under_limits = {f"{limit}": step_s(limit) for limit in _V100_LIMITS}
        with_limits = replace(by_driver, step_s_under_limit=under_limits)
        for known, minimal in (
            (BY_DRIVER, by_driver),
            (BY_DCGM, by_dcgm),
            (WITH_LIMITS, with_limits),
        ):
            profiles[known][row["job"]] = minimal.whole()
    return profiles


def v100_scores(folder: Path) -> tuple[list[Errors], tuple[FirstPlans, ...]]:
    """Return errors of steps by mode, and regret of the plan that comes first of all measured."""
    rows = list(csv_rows(folder / "v100_pairs.csv"))
    errors, first = [], []
    for known, profiles in v100_profiles(folder).items():
        jobs: dict[str, list[JobComparison]] = defaultdict(list)
        ways: dict[tuple[str, ...], list[PanelOption]] = defaultdict(lambda: [_ONE_BY_ONE])
        for row in rows:
            sharing: Concurrent = Naive() if row["mode"] == "naive" else Mps()
            if row["mode"] == "mps-limits":
                sharing = Mps((float(row["limit_1_percent"]), float(row["limit_2_percent"])))
            both = row["job_1"], row["job_2"]
            paces = float(row["steps_per_s_1"]), float(row["steps_per_s_2"])
            ran = _compared([profiles[name] for name in both], sharing, [1 / p for p in paces])
            jobs[MODE_WORDS[sharing.mode]] += ran
            ways[both].append(_option(sharing, ran))
        errors += [errors_of(known, V100, mode, own) for mode, own in sorted(jobs.items())]
        sets = [Panel(both, tuple(options)) for both, options in ways.items()]
        first.append(first_plans(known, V100, "time-slicing, MPS, nine splits of limits", sets))
    return errors, tuple(first)


_ONE_BY_ONE = PanelOption(sharing=Serial(), measured=1.0, times=1, predicted={MODEL: 1.0})


def _option(sharing: Concurrent, jobs: Iterable[JobComparison]) -> PanelOption:
    """Throughput by which `jobs` ran, and by which they were predicted to run."""
    measured = sum(job.alone_s / job.measured_s for job in jobs)
    predicted = sum(job.alone_s / job.predicted_s.p50 for job in jobs)
    return PanelOption(sharing=sharing, measured=measured, times=1, predicted={MODEL: predicted})


def _compared(
    profiles: Sequence[Profile], sharing: Concurrent, steps_s: Sequence[float]
) -> tuple[JobComparison, ...]:
    predicted = _predictor(V100).predict(profiles, sharing).jobs
    return tuple(
        JobComparison(
            job=profile.name,
            family=profile.workload.family,
            alone_s=profile.step_s,
            measured_s=step_s,
            predicted_s=job.step_s,
            baselines_s={},
        )
        for profile, step_s, job in zip(profiles, steps_s, predicted, strict=True)
    )


# Slices of an A100


def slice_errors(folder: Path) -> Iterator[Errors]:
    """Yield errors of steps alone on slices, by what is known of a job and by size of the slice."""
    for known, jobs in {**_miso(folder), **_migperf(folder)}.items():
        by_size: dict[str, list[JobComparison]] = defaultdict(list)
        for size, job in jobs:
            by_size[size].append(job)
            by_size[ALL_SLICES].append(job)
        for size, own in sorted(by_size.items()):
            yield errors_of(known, A100, size, own)


OnSlices = Sequence[tuple[str, JobComparison]]
"""Jobs alone on slices, each with the size of its slice."""


def _on_slice(profile: Profile, whole_s: float, step_s: float, slice_name: str) -> JobComparison:
    """A job on a slice; `whole_s` is its predicted step where `step_s` is relative to a second."""
    (job,) = _predictor(A100).predict([profile], Mig((Instance(slice_name),))).jobs
    return JobComparison(
        job=profile.name,
        family=profile.workload.family,
        alone_s=profile.step_s,
        measured_s=step_s,
        predicted_s=job.step_s.scaled(whole_s),
        baselines_s={},
    )


def _miso(folder: Path) -> Mapping[str, OnSlices]:
    """Four networks at four batch sizes, relative to the whole GPU with MIG off."""
    limits = {
        (row["model"], row["batch_size"]): row
        for row in csv_rows(folder / "a100_mps_limit_vs_mig.csv")
    }
    alone = {
        (row["model"], row["batch_size"]): row
        for row in csv_rows(folder / "a100_solo_counters.csv")
    }
    jobs: dict[str, list[tuple[str, JobComparison]]] = defaultdict(list)
    for row in csv_rows(folder / "a100_mig_slice_steptime.csv"):
        key, name = (row["model"], row["batch_size"]), row["mig_profile"]
        if row["ran"] != "1" or name.startswith("7g"):
            continue
        whole_s = float(row["step_s_median"]) * float(row["speed_rel_7g_median"])
        number = {each: float(value) for each, value in alone[key].items() if each != "model"}
        busy, power_w = number["util_gpu_pct"], number["power_w"]
        under = {
            f"{limit}": whole_s * float(limits[key][f"mps{limit}_over_mps100"])
            for limit in _A100_LIMITS
        }
        by_busy = _numbers(A100, row["model"], whole_s, busy)
        by_power = replace(by_busy, power_w=power_w)
        for known, minimal in {
            BY_DRIVER: replace(by_power, memory_utilization=number["util_mem_pct"] / 100),
            "nvidia-smi without memory utilisation": by_power,
            "GPU utilisation": by_busy,
            "the same, steps under two limits": replace(by_power, step_s_under_limit=under),
        }.items():
            measured_s = float(row["step_s_median"])
            jobs[known].append((name[:2], _on_slice(minimal.whole(), 1.0, measured_s, name)))
    return jobs


def _migperf(folder: Path) -> Mapping[str, OnSlices]:
    """Two networks relative to the largest instance, of whose counters GRACT alone is known."""
    rows = [row for row in csv_rows(folder / "a100_mig_training.csv") if row["status"] == "ok"]
    whole = {
        (row["model"], row["batch_size"]): row for row in rows if row["mig_profile"] == "7g.40gb"
    }
    jobs: list[tuple[str, JobComparison]] = []
    for row in rows:
        if (name := row["mig_profile"]) != "7g.40gb":
            alone = whole[row["model"], row["batch_size"]]
            step_s, busy = float(alone["step_ms"]) / 1000, 100 * float(alone["gract"])
            profile = _numbers(A100, row["model"], step_s, busy).whole()
            largest = _on_slice(profile, 1.0, 1.0, "7g.40gb").predicted_s.p50
            own = _on_slice(profile, step_s / largest, float(row["step_ms"]) / 1000, name)
            jobs.append((name[:2], own))
    return {"GPU utilisation (MIGPerf)": jobs}


# Networks on an RTX 3090


def rtx_errors(folder: Path) -> Iterator[Errors]:
    """Yield errors of seconds an example, of networks that we profiled with 16-bit arithmetic.

    They are estimated from the shipped profiles for the nearest batch size that the product
    accepts, since a large batch hardly changes the time of an example.
    """
    jobs = []
    for row in csv_rows(folder / "rtx3090_timm_training.csv"):
        if profile := _rtx_profile(row["model"], int(row["train_batch_size"])):
            measured_s = 1 / float(row["train_samples_per_sec"])
            jobs.append(_alone(profile, RTX_3090, measured_s, profile.workload.batch))
    yield errors_of(TRANSLATED, RTX_3090, ALONE, jobs)


def _rtx_profile(model: str, batch: int) -> Profile | None:
    for arithmetic in ("amp", "fp16"):
        for size in (batch, 256, 128, 64, 32):
            name = f"{model}-imagenet-bs{size}-{arithmetic}"
            try:
                return find_profile(name, gpu(RTX_3090))
            except InvalidInput:
                continue
    return None


def translated_errors(folder: Path = PROFILES) -> Iterator[Errors]:
    """Yield errors of steps alone on an H100, of workloads that were profiled on an H200 too.

    The first are of those that fill the H100: most of the others' are differences between hosts.
    """
    source, target = (profiles_in(folder / key) for key in GPUS)
    pairs = [
        (profile, _alone(on_gpu(source[name], gpu(GPUS[1])), GPUS[1], profile.step_s))
        for name, profile in target.items()
        if name in source
    ]
    filling = [job for profile, job in pairs if is_gpu_bound(profile)]
    yield errors_of(TRANSLATED, GPUS[1], GPU_BOUND, filling)
    yield errors_of(TRANSLATED, GPUS[1], ALONE, [job for _, job in pairs])


def _alone(profile: Profile, key: str, measured_s: float, examples: int = 1) -> JobComparison:
    """A job alone; `measured_s` are of one of so many `examples`."""
    (job,) = _predictor(key).predict([profile], Serial()).jobs
    return JobComparison(
        job=profile.name,
        family=profile.workload.family,
        alone_s=profile.step_s,
        measured_s=measured_s,
        predicted_s=job.step_s.scaled(1 / examples),
        baselines_s={},
    )


# Tables


def read_others(file: Path = FILE) -> Others:
    """Return the scores that were written last."""
    return parse_record(Others, file.read_bytes(), str(file), "Run python -m research.others.")


def others_section(scores: Others) -> str:
    """Return the section of the report."""
    errors = [
        (
            each.gpu,
            each.group,
            each.known,
            str(each.n),
            *map(percent, (each.mape, each.median, each.inside)),
            f"{each.width:.2f}",
        )
        for each in scores.errors
    ]
    chosen = [
        (
            each.gpu,
            each.known,
            str(each.sets),
            *map(percent, (each.mean, each.worst, each.always_mps)),
        )
        for each in scores.first
    ]
    return joined(
        "## GPUs that others measured",
        "PEACE: pairs of training loops on a V100. MISO and MIGPerf: steps alone on slices of an "
        "A100. timm: networks on an RTX 3090. Steps:",
        markdown(ERROR_HEADINGS, errors),
        "The first plan for the pairs on a V100, of all that were measured:",
        markdown(("GPU", "known", "sets", "regret", "worst", "always MPS"), chosen),
    )


def slices_table(scores: Others) -> str:
    """Return errors on slices of an A100 by what is known of a job, in Markdown."""
    rows = []
    for known in dict.fromkeys(row.known for row in scores.errors if row.gpu == A100):
        by_size = {row.group: row for row in matching(scores.errors, gpu=A100, known=known)}
        whole = by_size[ALL_SLICES]
        sizes = (row.mape if (row := by_size.get(size)) else None for size in _SIZES)
        rows.append(
            (
                known,
                str(whole.n),
                *map(percent, (whole.mape, *sizes, whole.inside)),
                f"{whole.width:.2f}",
            )
        )
    columns = "known", "steps", "mean error", *(f"on {size}" for size in _SIZES)
    return markdown((*columns, "in 90 % interval", "p95/p05, median"), rows)


_SIZES = ("1g", "2g", "3g", "4g")


def main() -> None:
    """Write the scores and print the tables."""
    scores = others(Path(sys.argv[1]))
    document: Any = rounded(asdict(scores), ".6g")
    write_whole(FILE, json.dumps(document, indent=1) + "\n")
    print(others_section(scores))


if __name__ == "__main__":
    main()
