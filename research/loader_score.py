"""How far predictions are off for jobs whose loaders decode images.

    python -m research.loader_score benchmarks/loaders > benchmarks/loaders/score.json

The folder is one that `benchmarks/loader_study.py` filled. **Workers**: a step with so many loader
workers, from the profile of the same job with the fewest, as `advisor.plan.remedies` foretells
it. **Together**: jobs with cores of their own, by the shipped model. **Crowded**: jobs
that share few cores, as `advisor.plan.shared_cores` predicts them, and as if there were enough.
"""

import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean

from advisor.hardware.catalogue import gpu
from advisor.plan.shared_cores import SharedCores
from advisor.prediction.host_loader import with_workers
from advisor.prediction.model_file import load_model
from advisor.prediction.predictor import Predictor
from advisor.prediction.surrogate_answers import Predicts
from advisor.sharing import parse_sharing
from advisor.sharing.traversal import without_phases
from advisor.validate.score_tables import percent
from advisor.workload.measured import median_step_s
from advisor.workload.profile import Profile
from advisor.workload.run import Run
from advisor.workload.store import model_path
from advisor.workload.stored_runs import read_runs
from research.files import profiles_in


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderStep:
    """A step of one job in one case, seconds; `enough_s` as if each had cores of its own."""

    case: str
    what: str
    measured_s: float
    predicted_s: float
    enough_s: float

    @property
    def error(self) -> float:
        return self.predicted_s / self.measured_s - 1


def by_workers(profiles: Iterable[Profile]) -> Iterator[LoaderStep]:
    """Each number of workers from the fewest that the same job was measured with."""
    jobs: dict[str, list[Profile]] = defaultdict(list)
    for each in profiles:
        jobs[each.workload.model].append(each)
    for same in jobs.values():
        first, *others = sorted(same, key=lambda each: each.workload.loader_workers)
        for each in others:
            found = with_workers(first, each.workload.loader_workers)
            yield LoaderStep(
                case="workers", what=each.name, measured_s=each.step_s,
                predicted_s=found.step_s, enough_s=found.step_s,
            )  # fmt: skip


def of_runs(
    case: str, runs: Iterable[Run], profiles: Mapping[str, Profile], predictor: Predicts
) -> Iterator[LoaderStep]:
    """Each job of each run; the cores that its tenants had are all that there were."""
    for run in runs:
        sharing = without_phases(parse_sharing(run.sharing))
        if sharing is None or any(tenant.outcome != "ok" for tenant in run.tenants):
            continue
        jobs = [profiles[tenant.workload.name] for tenant in run.tenants]
        cores = len({core for tenant in run.tenants for core in tenant.cores})
        free = predictor.predict(jobs, sharing)
        found = SharedCores(predictor, cores).predict(jobs, sharing)
        for tenant, own, other in zip(run.tenants, found.jobs, free.jobs, strict=True):
            yield LoaderStep(
                case=case, what=f"{run.id}: {own.job}", measured_s=median_step_s(tenant.windows),
                predicted_s=own.step_s.p50, enough_s=other.step_s.p50,
            )  # fmt: skip


def steps_in(folder: Path, predictor: Predicts | None = None) -> list[LoaderStep]:
    """Everything that was measured into `folder`; the shipped model answers if nobody else does."""
    profiles = profiles_in(folder / "profiles")
    if predictor is None:
        (key,) = {each.gpu for each in profiles.values()}
        predictor = Predictor(gpu(key), load_model(model_path(None)))
    found = list(by_workers(profiles.values()))
    for case, file in (("together", "runs.jsonl"), ("crowded", "runs-crowded.jsonl")):
        if (path := folder / file).is_file():
            found += of_runs(case, read_runs(path), profiles, predictor)
    return found


def main() -> None:
    found = steps_in(Path(sys.argv[1]))
    print(json.dumps([asdict(each) | {"error": each.error} for each in found], indent=1))
    for case in dict.fromkeys(each.case for each in found):
        steps = [each for each in found if each.case == case]
        enough = [replace(each, predicted_s=each.enough_s) for each in steps]
        off, without = (percent(mean(abs(s.error) for s in those)) for those in (steps, enough))
        said = f"{case}: {len(steps)} steps, {off} off; as if with cores enough {without}"
        print(said, file=sys.stderr)


if __name__ == "__main__":
    main()
