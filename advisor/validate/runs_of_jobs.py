"""Real runs of jobs against their predictions, and how much two runs of the same jobs differ."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from advisor.errors import InvalidInput
from advisor.prediction.predictor import Predictor
from advisor.sharing import Mode
from advisor.validate.predicted_and_measured import JobComparison, RunComparison, sharing_of
from advisor.validate.validate import compared
from advisor.workload.documents import read_json
from advisor.workload.files import is_file
from advisor.workload.profile import Profile
from advisor.workload.run import Run
from advisor.workload.store import shipped_folder
from advisor.workload.stored_runs import runs_by_owner


@dataclass(frozen=True, slots=True)
class MeasuredRuns:
    """Real runs whose tenants are all among some jobs, with their predictions.

    Attributes:
        shipped: Runs that came with the advisor, from which its model learnt.
        own: The user's own runs.
        same: Number of these runs that have exactly these jobs and copies.
        noise: By mode: median share by which a step differs between two runs of the same jobs with
            fresh processes; modes without repeats are absent.
    """

    shipped: tuple[RunComparison, ...]
    own: tuple[RunComparison, ...]
    same: int
    noise: Mapping[Mode, float]

    @property
    def runs(self) -> tuple[RunComparison, ...]:
        """All of them, the user's own last."""
        return *self.shipped, *self.own

    @property
    def jobs(self) -> tuple[JobComparison, ...]:
        """All tenants of all runs."""
        return tuple(job for run in self.runs for job in run.jobs)


def runs_of_jobs(
    profiles: Sequence[Profile], predictor: Predictor, given: Path | None = None
) -> MeasuredRuns:
    """The runs in which some of the jobs of `profiles`, and no others, share the GPU.

    Each is predicted for the cores that it had, as `advisor.validate.validate.compared` does.

    Args:
        profiles: A profile for each job, copies as often as there are.
        predictor: Of the GPU that they were measured on.
        given: Folder of profiles; None: the shipped ones and the user's own.

    Raises:
        InvalidInput: A file of runs, or the noise file beside them, is malformed.
    """
    by_name = {each.name: each for each in profiles}
    gpu = predictor.gpu
    shipped, own = (
        compared([run for run in runs if _shared_by(run, by_name)], by_name, predictor, gpu)
        for runs in runs_by_owner(gpu.key, given)
    )
    asked = Counter(each.name for each in profiles)
    same = sum(_tenants(each.run) == asked for each in (*shipped, *own))
    return MeasuredRuns(shipped, own, same, noise_floors(gpu.key, given))


def noise_floors(gpu: str, given: Path | None = None) -> dict[Mode, float]:
    """Return the noise floor of each mode on that GPU, from ``runs/noise.json``; empty without it.

    Raises:
        InvalidInput: The file is malformed.
    """
    path = shipped_folder("profiles", given) / gpu / "runs" / "noise.json"
    if not is_file(path):
        return {}
    try:
        return {mode: float(median) for mode, median in read_json(path).items()}
    except (TypeError, AttributeError, ValueError):
        raise InvalidInput(
            f"{path}: expected a share for each mode. Write it again: `make report`."
        ) from None


def _shared_by(run: Run, jobs: Mapping[str, Profile]) -> bool:
    # One alone on the whole GPU was not shared, and is what profiles are made of.
    return set(_tenants(run)) <= jobs.keys() and run.shows_pace and sharing_of(run).mode != "serial"


def _tenants(run: Run) -> Counter[str]:
    return Counter(tenant.workload.name for tenant in run.tenants)
