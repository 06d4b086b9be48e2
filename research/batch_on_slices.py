"""What a batch size that was left out costs on a slice: estimated twice, beside measured.

    python -m research.batch_on_slices THEIRS > benchmarks/batch-sizes/on-slices.json

MISO (SoCC'22 artifact) timed four models at four batch sizes on an A100 and its MIG slices. Each is
described by its bare numbers on the whole GPU, at all batch sizes but one; the step at that one on
a slice is estimated from these, and from its own bare numbers. How slices slow such jobs was learnt
on the same models, so only what the batch size adds to the error is news.
"""

import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from advisor.hardware.catalogue import gpu
from advisor.prediction.batch_profile import at_batch
from advisor.prediction.interval import Interval
from advisor.prediction.model_file import load_model
from advisor.prediction.predictor import Predictor
from advisor.prediction.surrogate_answers import Predicts
from advisor.sharing import Instance, Mig
from advisor.workload.minimal_profile import MinimalProfile
from advisor.workload.profile import Profile
from advisor.workload.store import model_path
from research.files import csv_rows

A100, _WHOLE = gpu("a100-40gb"), "7g.40gb"


@dataclass(frozen=True, slots=True, kw_only=True)
class OnSlice:
    """One model at one batch size on one slice; steps in seconds.

    Attributes:
        left_out: Estimated from other batch sizes.
        known: Estimated from its own numbers on the whole GPU.
    """

    model: str
    batch: int
    slice: str
    measured_s: float
    left_out: Interval
    known: Interval


def bare_profiles(theirs: Path) -> dict[str, dict[int, Profile]]:
    """Each model at each batch size on the whole GPU, as nvidia-smi and a log would show it."""
    shown = {
        (row["model"], row["batch_size"]): row
        for row in csv_rows(theirs / "a100_solo_counters.csv")
    }
    found: dict[str, dict[int, Profile]] = defaultdict(dict)
    for row in csv_rows(theirs / "a100_mig_slice_steptime.csv"):
        if row["mig_profile"] != _WHOLE or row["ran"] != "1":
            continue
        seen, batch = shown[row["model"], row["batch_size"]], int(row["batch_size"])
        found[row["model"]][batch] = MinimalProfile(
            schema=1, workload=f"{row['model']}-bs{batch}", gpu=A100.key, batch_size=batch,
            step_s=float(row["step_s_median"]),
            # Their memory is TensorFlow's pool, not the need; any that fits does for times.
            memory_mib=1000.0 + batch,
            power_w=float(seen["power_w"]), gpu_utilization=float(seen["util_gpu_pct"]) / 100,
            memory_utilization=float(seen["util_mem_pct"]) / 100,
        ).whole()  # fmt: skip
    return found


def on_slices(theirs: Path, predictor: Predicts) -> Iterator[OnSlice]:
    """Every step on a slice of a model at a batch size with two others or more near enough."""
    profiles = bare_profiles(theirs)
    for row in csv_rows(theirs / "a100_mig_slice_steptime.csv"):
        if row["mig_profile"] == _WHOLE or row["ran"] != "1":
            continue
        own, batch = profiles[row["model"]], int(row["batch_size"])
        others = [each for size, each in own.items() if size != batch]
        sharing = Mig((Instance(row["mig_profile"]),))
        left_out, known = (
            predictor.predict([each], sharing).jobs[0].step_s
            for each in (at_batch(others, batch), own[batch])
        )
        yield OnSlice(
            model=row["model"], batch=batch, slice=row["mig_profile"],
            measured_s=float(row["step_s_median"]), left_out=left_out, known=known,
        )  # fmt: skip


def summary(steps: Sequence[OnSlice]) -> Mapping[str, float]:
    """Mean absolute errors, and the share of measurements in the 90 % intervals."""
    return {
        "steps": len(steps),
        "mape_left_out": mean(abs(s.left_out.p50 / s.measured_s - 1) for s in steps),
        "mape_known": mean(abs(s.known.p50 / s.measured_s - 1) for s in steps),
        "inside_left_out": mean(s.left_out.contains(s.measured_s) for s in steps),
        "inside_known": mean(s.known.contains(s.measured_s) for s in steps),
    }


def main() -> None:
    predictor = Predictor(A100, load_model(model_path(None)))
    found = list(on_slices(Path(sys.argv[1]), predictor))
    print(json.dumps(summary(found), indent=1))


if __name__ == "__main__":
    main()
