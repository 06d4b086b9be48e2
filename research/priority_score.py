"""How far steps under client priorities are off by a model of all GPUs' runs, families left out.

    python -m research.priority_score > benchmarks/campaign-priority/score.json

As the shipped model is, each model is taught by every GPU, of runs under MPS with priorities and
without; other ways of sharing say nothing of priorities and are passed over. Runs on a GPU are
predicted from the profiles made there. Takes minutes.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median
from typing import Any

from advisor.hardware.catalogue import gpu
from advisor.prediction.fit.fit_model import fit
from advisor.prediction.fit.observation import MeasuredGpu
from advisor.prediction.fit.replay_cache import ReplayCache
from advisor.prediction.job_features import is_gpu_bound
from advisor.sharing import parse_sharing
from advisor.validate.folds import Folds, Held
from advisor.validate.predicted_and_measured import JobComparison
from advisor.validate.score_tables import markdown, percent
from advisor.validate.selection import families_of, select
from advisor.workload.profile import Profile
from advisor.workload.run import Run
from research.files import PROFILES, measured
from research.script_table import Scores, committed

# Of the GPUs on which jobs ran with priorities.
GPUS = ("h200-141gb", "h100-sxm-80gb")
_TEACH = ("serial", "mps", "mps-priority")
_COLUMNS = ("on", "jobs", "n", "MAPE", "median", "in 90 % interval", "replay alone")
_WORDS = {"all": "all", "gpu": "GPU-bound", "host": "host-bound"}


@dataclass(frozen=True, slots=True)
class _OnGpu:
    """What ran under MPS on one GPU, and which of it is predicted."""

    measured: MeasuredGpu
    wanted: Sequence[Run]

    def without(self, family: str) -> MeasuredGpu:
        """What a model may see that shall not know `family`."""
        profiles = self.measured.profiles
        seen = {name: each for name, each in profiles.items() if each.workload.family != family}
        runs = [run for run in self.measured.runs if family not in families_of([run])]
        return MeasuredGpu(self.measured.gpu, seen, runs)


def on_gpu(profiles: Mapping[str, Profile], runs: Iterable[Run], key: str) -> _OnGpu:
    """Of `runs` on the GPU called `key` those that teach, and those drawn with priorities."""
    teach = [run for run in runs if parse_sharing(run.sharing).mode in _TEACH]
    drawn = select(profiles, teach, gpu(key)).scored
    wanted = [run for run in drawn if parse_sharing(run.sharing).mode == "mps-priority"]
    return _OnGpu(MeasuredGpu(gpu(key), profiles, teach), wanted)


def held_out(gpus: Sequence[_OnGpu]) -> list[Held]:
    """Of each of `gpus` every job of its wanted runs, by a model without the job's family."""
    families = families_of([run for each in gpus for run in each.wanted])
    cache, found = ReplayCache(), [Held() for _ in gpus]
    for family in families:
        model = fit([each.without(family) for each in gpus], cache)
        for held, each in zip(found, gpus, strict=True):
            ran = each.measured
            folds = Folds(ran.profiles, ran.runs, each.wanted, (), ran.gpu, cache)
            held.update(folds.predicted_by(model, family).raw)
    return found


def rows(key: str, jobs: Sequence[JobComparison], profiles: Mapping[str, Profile]) -> Iterator[Any]:
    """The errors on the GPU called `key`: of all jobs, and of those that the GPU or host paces."""
    paced = {"gpu": True, "host": False}
    for bound, words in _WORDS.items():
        of_it = [
            each for each in jobs
            if bound == "all" or is_gpu_bound(profiles[each.job]) == paced[bound]
        ]  # fmt: skip
        if of_it:
            yield {"gpu": key, "jobs": words, **errors(of_it)}


def errors(jobs: Sequence[JobComparison]) -> dict[str, Any]:
    """Mean and median of absolute errors, the share of steps in their ranges, and replay's."""
    off = [abs(each.error) for each in jobs]
    replayed = [abs(error) for each in jobs if (error := each.baseline_error("replay")) is not None]
    return {"n": len(jobs), "mape": mean(off), "median": median(off),
            "inside": mean(each.inside for each in jobs), "replay": mean(replayed)}  # fmt: skip


def priority_table() -> str:
    """In Markdown, from the committed score."""
    return markdown(_COLUMNS, _cells(committed("campaign-priority")))


def _cells(scores: Scores) -> Iterator[tuple[str, ...]]:
    for each in scores:
        shares = (percent(each[name]) for name in ("mape", "median", "inside", "replay"))
        yield each["gpu"], each["jobs"], str(each["n"]), *shares


def main() -> None:
    gpus = [on_gpu(*measured(PROFILES / key), key) for key in GPUS]
    found = held_out(gpus)
    lines = [
        line for each, held in zip(gpus, found, strict=True)
        for line in rows(each.measured.gpu.key, [*held.values()], each.measured.profiles)
    ]  # fmt: skip
    together = [job for held in found for job in held.values()]
    lines.append({"gpu": "both", "jobs": "all", **errors(together)})
    print(json.dumps(lines, indent=1))


if __name__ == "__main__":
    main()
