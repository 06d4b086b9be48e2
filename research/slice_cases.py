"""Steps alone on parts of a GPU against steps on more of it: what slices and limits cost.

An A100's are others': four models on MIG slices and under MPS limits (MISO's artifact, SoCC'22),
two on slices (MIGPerf). An H200's and an H100's are the committed profiles' MPS probes.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from advisor.hardware.catalogue import gpu
from advisor.hardware.gpu_partition import Partition, limited_sms, partition_of, whole_gpu
from advisor.prediction.utilisation_model import power_share
from advisor.workload.store import load_profiles
from research.files import PROFILES, csv_rows

A100 = gpu("a100-40gb")
HOPPER = ("h200-141gb", "h100-sxm-80gb")
SLICES, LIMITS, MIG_MODE = "slices of an A100", "limits of an A100", "slices in MIG mode"


@dataclass(frozen=True, slots=True)
class Case:
    """One job alone on a part of a GPU, compared with a larger part.

    Attributes:
        data: Which set of measurements; each has the same weight in the fit.
        model: What is left out together.
        job: Model and batch size.
        part: As a person calls it: ``"1g"``, ``"14 %"``.
        shares: Of SMs and bandwidth.
        compared: The same of the part with which it is compared.
        slowdown: Step over the step there.
        shown: Memory utilisation, power over its limit and GPU utilisation of the job alone, as
            nvidia-smi shows them, 0..1; nan: not known.
    """

    data: str
    model: str
    job: str
    part: str
    shares: tuple[float, float]
    compared: tuple[float, float]
    slowdown: float
    shown: tuple[float, float, float]


def _shares(part: Partition) -> tuple[float, float]:
    return part.sm_share, part.bandwidth_share


def miso_cases(theirs: Path) -> Iterator[Case]:
    """Four models on slices of an A100 and under limits, against the whole GPU with MIG off."""
    limits = {_key(row): row for row in csv_rows(theirs / "a100_mps_limit_vs_mig.csv")}
    shown = {
        _key(row): (
            float(row["util_mem_pct"]) / 100,
            float(row["power_w"]) / (A100.power_limit_w or 1),
            float(row["util_gpu_pct"]) / 100,
        )
        for row in csv_rows(theirs / "a100_solo_counters.csv")
    }
    steps = [row for row in csv_rows(theirs / "a100_mig_slice_steptime.csv") if row["ran"] == "1"]
    whole = (1.0, 1.0)
    for row in steps:
        if (profile := row["mig_profile"]) != "7g.40gb":
            yield Case(
                SLICES, row["model"], _key(row), profile[:2],
                _shares(partition_of(A100, profile)), whole,
                1 / float(row["speed_rel_7g_median"]), shown[_key(row)],
            )  # fmt: skip
    for key, row in limits.items():
        for pct in (50, 14):
            part = _shares(whole_gpu(A100).limited(pct))
            slower = max(1.0, float(row[f"mps{pct}_over_mps100"]))
            yield Case(LIMITS, row["model"], key, f"{pct} %", part, whole, slower, shown[key])


def _key(row: Mapping[str, str]) -> str:
    return f"{row['model']} {row['batch_size']}"


def migperf_cases(theirs: Path) -> Iterator[Case]:
    """Two models on slices of an A100 against the largest; DCGM stands for nvidia-smi."""
    ran = [row for row in csv_rows(theirs / "a100_mig_training.csv") if row["status"] == "ok"]
    largest = {_key(row): row for row in ran if row["mig_profile"] == "7g.40gb"}
    compared = _shares(partition_of(A100, "7g.40gb"))
    for row in ran:
        if (profile := row["mig_profile"]) != "7g.40gb":
            first = largest[_key(row)]
            yield Case(
                MIG_MODE, row["model"], _key(row), profile[:2],
                _shares(partition_of(A100, profile)), compared,
                float(row["step_ms"]) / float(first["step_ms"]),
                (np.nan, np.nan, float(first["gract"])),
            )  # fmt: skip


def limit_cases() -> Iterator[Case]:
    """The committed profiles' own steps under MPS limits."""
    for key in HOPPER:
        for name, each in load_profiles(key, PROFILES).items():
            power, counters = power_share(each, gpu(key)), each.counters
            if each.mps is None or power is None or counters is None:
                continue
            for run in each.mps.limited:
                sms = run.sms or limited_sms(run.limit_pct, gpu(key).sms)
                yield Case(
                    f"limits of {key}", each.workload.family, name, f"{run.limit_pct:g} %",
                    (sms / gpu(key).sms, 1.0), (1.0, 1.0),
                    max(1.0, run.step_s / each.mps.unlimited.step_s),
                    (np.nan, power, counters.gract),
                )  # fmt: skip


def cases(theirs: Path) -> list[Case]:
    """All of them; `theirs` is the folder of what others measured."""
    return [*miso_cases(theirs), *migperf_cases(theirs), *limit_cases()]
