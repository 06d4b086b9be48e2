"""Plans from files as what is run on this machine, with what is predicted of them here and now."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from advisor.api import Advisor
from advisor.errors import InvalidInput
from advisor.hardware.catalogue import gpu
from advisor.launch.launch_plan import check_memory, launch_plan
from advisor.launch.plan_file import (
    SavedPlan,
    plan_document,
    planned_job,
    planned_profile,
    read_plan,
)
from advisor.measure.execution.run_monitor import Expected
from advisor.measure.shared.run_list_file import is_advice
from advisor.measure.shared.strict_record import record
from advisor.plan.recommendation import Forecast
from advisor.prediction.estimated_profile import profile_finder
from advisor.prediction.interval import Interval
from advisor.prediction.mig_instances import placed
from advisor.sharing import parse_sharing
from advisor.sharing.traversal import check_count, restricted, running_together
from advisor.workload.documents import read_json
from advisor.workload.files import located
from advisor.workload.job import Job
from advisor.workload.plan_document import DocumentedJob, StepRange
from advisor.workload.profile import FindsProfiles

_REMEDY = "Ask again: `advisor recommend --json`."
# What an exported plan says of a job and advice does not.
_OF_EXPORT = ("cores", "mps_limit_percent", "memory_cap_mib")


def saved_plan(path: Path, rank: int, profiles: Path | None = None) -> SavedPlan:
    """The plan in `path`: an exported one, or the one of that rank in an answer of `recommend`.

    Raises:
        InvalidInput: It holds none, or none of that rank, or a job has no profile.
    """
    document = read_json(path)
    # An exported plan has no objective.
    if not is_advice(document) or document["objective"] is None:
        exported = read_plan(path, profiles)
        if rank != 1:
            raise InvalidInput(
                f"{path}: it has no plan of rank {rank}: a plan that was exported is alone in its "
                f"file. Leave --rank out, or choose another by `advisor export --rank {rank}`."
            )
        return exported
    try:
        return _advised(document, rank, profiles)
    except (KeyError, TypeError, AttributeError, ArithmeticError, ValueError) as error:
        raise InvalidInput(f"{path}: it is advice, but incomplete ({error!r}). {_REMEDY}") from None
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from None


def _advised(document: Mapping[str, Any], rank: int, profiles: Path | None) -> SavedPlan:
    if (gpus := document.get("gpus", 1)) > 1:
        raise InvalidInput(
            f"it is a plan for {gpus} GPUs, and a run is on one. For the same jobs `advisor export "
            f"--gpus {gpus} --format json --out FILE` writes a plan for each GPU, and `advisor "
            f"recommend --gpus {gpus} --commands 1` prints the shell lines for all."
        )
    plans = [each for each in document["plans"] if each["rank"] == rank]
    if not plans:
        raise InvalidInput(f"it has no plan of rank {rank}. {_REMEDY}")
    (plan,) = plans
    load = profile_finder(gpu(str(document["gpu"])), profiles)
    epochs: Sequence[Any] = document.get("epochs") or [1.0] * len(plan["jobs"])
    jobs = tuple(
        _job(job, float(each), load) for job, each in zip(plan["jobs"], epochs, strict=True)
    )
    sharing = parse_sharing(str(plan["sharing"]))
    check_count(sharing, len(jobs))
    return SavedPlan(str(document["gpu"]), sharing, jobs, plan.get("power_cap_w"))


def _job(advised: Mapping[str, Any], epochs: float, load: FindsProfiles) -> Job:
    """The job that advice names; old advice says no more of it than its name, and its `epochs`."""
    name = str(advised["job"])
    profile = planned_profile(name, load)
    if "script" not in advised:
        return Job(profile, epochs)
    said = {each.name for each in fields(DocumentedJob)} & advised.keys()
    entry = dict.fromkeys(_OF_EXPORT) | {key: advised[key] for key in said}
    with located(name, _REMEDY):
        return planned_job(profile, record(DocumentedJob, entry))


def document_of(saved: SavedPlan, advisor: Advisor) -> str:
    """`saved` as the document that is run, with the steps that `advisor` predicts.

    Raises:
        NothingFits: The jobs run out of memory, or the GPU cannot be cut up like that.
    """
    found = advisor.predict(saved.jobs, saved.sharing).prediction
    # With the place of each instance, so that whoever goes on with it finds the same.
    launched = replace(
        launch_plan(saved.jobs, advisor.card, found), sharing=placed(found.sharing, advisor.card)
    )
    check_memory(launched, found)
    steps = {number: _range(job.step_s) for number, job in enumerate(found.jobs, start=1)}
    return json.dumps(asdict(plan_document(launched, steps)), indent=1, allow_nan=False) + "\n"


def expected_by(saved: SavedPlan, advisor: Advisor) -> Expected:
    """A function that predicts any of the jobs of one group of `saved`, with `advisor`."""
    together = [frozenset(group) for group in running_together(saved.sharing, len(saved.jobs))]

    @cache
    def expected(running: frozenset[int]) -> Mapping[int, StepRange]:
        positions = sorted(number - 1 for number in running)
        if not any(group.issuperset(positions) for group in together):
            return {}
        sharing = restricted(saved.sharing, positions)
        found: Forecast = advisor.predict([saved.jobs[at] for at in positions], sharing)
        return {
            at + 1: _range(job.step_s)
            for at, job in zip(positions, found.prediction.jobs, strict=True)
        }

    return expected


def _range(step_s: Interval) -> StepRange:
    return StepRange(step_s.p05, step_s.p50, step_s.p95)
