"""How far kernel traces tell what parts of a GPU cost, and what ranges that earns.

    python -m research.slice_traces THEIRS > benchmarks/slices/traces.json

Each MPS limit of the profiles' probes is predicted from the trace and the other limits, and from
the trace alone. On MIG hardware only others measured: THEIRS holds steps of two networks on slices
of an A100 (MIGPerf), for which profiles of an H100 are translated kernel by kernel. At the batch at
which their host sets the pace (`research.translation_score`) the slices are scored, and not the
whole.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from advisor.hardware.catalogue import gpu
from advisor.hardware.gpu_partition import Partition, limited_sms, partition_of, whole_gpu
from advisor.prediction.estimate_doubt import estimate_spread
from advisor.prediction.gpu_transfer import on_gpu
from advisor.prediction.interval import Interval, interval_around
from advisor.prediction.memory import Z95
from advisor.prediction.mix_pace import around_alone
from advisor.prediction.model_file import Model, load_model
from advisor.prediction.partition_transfer import on_partition, step_on
from advisor.workload.profile import Profile
from advisor.workload.store import load_profiles
from research.files import PROFILES, csv_rows, profiles_in, rounded
from research.slice_cases import A100, HOPPER
from research.translation_score import FOLDER, OF_THEIR_HOST, VISION

_TRANSLATED = "slices of an A100, translated"


@dataclass(frozen=True, slots=True)
class TracedStep:
    """One job alone on a part of a GPU; `part` as a person calls it, e.g. ``"14 %"``."""

    check: str
    part: str
    predicted_s: Interval
    measured_s: float

    @property
    def log_error(self) -> float:
        return float(np.log(self.predicted_s.p50 / self.measured_s))


def under_limits(key: str, model: Model, *, probed: bool) -> Iterator[TracedStep]:
    """Each limit of each probe on the GPU `key`, left out of the probe that is known."""
    said = f"limits of {key}, {'the others known' if probed else 'none known'}"
    card = gpu(key)
    for each in load_profiles(key, PROFILES).values():
        if each.mps is None or each.trace is None:
            continue
        for run in each.mps.limited:
            others = tuple(other for other in each.mps.limited if other is not run)
            known = replace(each, mps=replace(each.mps, limited=others) if probed else None)
            part = replace(whole_gpu(card), sms=run.sms or limited_sms(run.limit_pct, card.sms))
            slower = max(1.0, run.step_s / each.mps.unlimited.step_s)
            found = _there(known, part, model)
            yield TracedStep(said, f"{run.limit_pct:g} %", found, each.step_s * slower)


def _there(profile: Profile, part: Partition, model: Model) -> Interval:
    physics = model.of(part.gpu).physics
    step_s = step_on(profile, part, physics)
    moved = around_alone(on_partition(profile, part, physics), step_s.p50, model)
    return moved.times(step_s.scaled(1 / step_s.p50))


def on_slices(theirs: Path, model: Model) -> Iterator[TracedStep]:
    """The A100's slices, by profiles that were translated from an H100."""
    known = profiles_in(FOLDER)
    for row in csv_rows(theirs / "a100_mig_training.csv"):
        profile = known.get(VISION[row["model"]].format(row["batch_size"]))
        hosted = row["batch_size"] == OF_THEIR_HOST and row["mig_profile"] == "7g.40gb"
        if profile is None or row["status"] != "ok" or hosted:
            continue
        moved = on_gpu(profile, A100)
        end = Z95 * estimate_spread(moved)
        found = _there(moved, partition_of(A100, row["mig_profile"]), model)
        found = found.times(interval_around(1.0, -end, end))
        measured_s = 1e-3 * float(row["step_ms"])
        yield TracedStep(_TRANSLATED, row["mig_profile"][:2], found, measured_s)


def scored(steps: Sequence[TracedStep]) -> dict[str, Any]:
    """Errors and coverage of `steps` of one check, all and by part."""
    found: dict[str, Any] = {"check": steps[0].check, "steps": len(steps)}
    parts = {
        part: [each for each in steps if each.part == part] for part in {s.part for s in steps}
    }
    found |= {"mape": _mape(steps), "bias": mean(np.expm1(each.log_error) for each in steps)}
    found["of_part"] = {part: _mape(parts[part]) for part in sorted(parts)}
    found["inside"] = _inside(steps)
    found["inside_of_part"] = {part: _inside(parts[part]) for part in sorted(parts)}
    return found


def _mape(steps: Sequence[TracedStep]) -> float:
    return float(mean(abs(np.expm1(each.log_error)) for each in steps))


def _inside(steps: Sequence[TracedStep]) -> float:
    return float(mean(each.predicted_s.contains(each.measured_s) for each in steps))


def scores(theirs: Path | None = None) -> list[dict[str, Any]]:
    """Of the profiles' probes, and of what is in the folder `theirs`, if given."""
    model = load_model(PROFILES.parent / "models" / "sharing.json")
    checks = [
        list(under_limits(key, model, probed=probed)) for key in HOPPER for probed in (True, False)
    ]
    if theirs is not None:
        checks.append(list(on_slices(theirs, model)))
    return [scored(each) for each in checks]


def main(words: Sequence[str]) -> None:
    found = scores(Path(words[0]) if words else None)
    print(json.dumps({"schema": 1, "scores": rounded(found, ".3f")}, indent=1))


if __name__ == "__main__":
    main(sys.argv[1:])
