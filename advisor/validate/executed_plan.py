"""Plans from files as what is run on this machine, with what is predicted of them here and now."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any

from advisor.api import Advisor
from advisor.errors import InvalidInput
from advisor.hardware.catalogue import gpu
from advisor.launch.launch_plan import check_memory, launch_plan
from advisor.launch.plan_file import SavedPlan, plan_document, planned_profile, read_plan
from advisor.measure.execution.run_monitor import Expected
from advisor.measure.shared.run_list_file import is_advice
from advisor.plan.recommendation import Forecast
from advisor.prediction.estimated_profile import profile_finder
from advisor.prediction.interval import Interval
from advisor.prediction.mig_instances import placed
from advisor.sharing import parse_sharing
from advisor.sharing.traversal import check_count, restricted, running_together
from advisor.workload.documents import read_json
from advisor.workload.job import Job
from advisor.workload.plan_document import StepRange

_REMEDY = "Ask again: `advisor recommend --json`."


def saved_plan(path: Path, rank: int, profiles: Path | None = None) -> SavedPlan:
    """The plan in `path`: an exported one, or the one of that rank in an answer of `recommend`.

    Raises:
        InvalidInput: It holds none, or a job has no profile.
    """
    document = read_json(path)
    # An exported plan has no objective.
    if not is_advice(document) or document["objective"] is None:
        return read_plan(path, profiles)
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
    names = [str(job["job"]) for job in plan["jobs"]]
    epochs: Sequence[Any] = document.get("epochs") or [1.0] * len(names)
    jobs = tuple(
        Job(planned_profile(name, load), float(each))
        for name, each in zip(names, epochs, strict=True)
    )  # fmt: skip
    sharing = parse_sharing(str(plan["sharing"]))
    check_count(sharing, len(jobs))
    return SavedPlan(str(document["gpu"]), sharing, jobs, plan.get("power_cap_w"))


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
