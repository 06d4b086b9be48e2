"""``advisor explain``: compares two plans for the same jobs."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from advisor.cli.options import (
    AsJson,
    By,
    Files,
    Given,
    GpuKey,
    Named,
    PowerCap,
    apart,
    given_in,
    grouped,
)
from advisor.cli.output import show_found, warn
from advisor.errors import InvalidInput
from advisor.hardware import DEFAULT_GPU

if TYPE_CHECKING:
    from advisor.launch.plan_file import SavedPlan

_Plan = Annotated[
    str,
    typer.Argument(
        metavar="PLAN",
        help="A sharing as `predict` takes it, or a FILE.json that `export` wrote.",
        show_default=False,
    ),
]


@dataclass(frozen=True, slots=True)
class _Pair:
    """The two plans to compare."""

    first: _Plan
    second: _Plan


@grouped
def explain(
    context: typer.Context,
    pair: _Pair,
    *,
    named: Named,
    gpu: GpuKey = DEFAULT_GPU,
    objective: By = "makespan",
    power_cap: PowerCap = None,
    files: Files,
    as_json: AsJson = False,
) -> None:
    """Compare two PLANs for the JOBs.

    What changes for each job, why, and whether that is more than our error.

    For example: advisor explain naive mps=43,57 resnet50-imagenet64-bs128:2

    What a power cap does: advisor explain mps mps resnet50-imagenet64-bs128:2 --power-cap 400
    """
    from advisor.launch.plan_file import SavedPlan, plan_named
    from advisor.report.comparison_text import comparison_document, comparison_report

    for word in (pair.first, pair.second):
        if _is_job(word, files.profiles):
            raise InvalidInput(f"two PLANs come before the JOBs: advisor explain naive mps {word}")
    plans = plan_named(pair.first, files.profiles), plan_named(pair.second, files.profiles)
    if read := [plan for plan in plans if isinstance(plan, SavedPlan)]:
        planned = _planned(read, gpu, given_in(context))
        advisor, jobs = files.advisor(planned.gpu, power_cap), planned.jobs
    else:
        advisor = files.advisor(gpu, power_cap)
        jobs = named.chosen(advisor)
    found = advisor.compare(plans, jobs, objective)
    warn(found.plans[0].standing.doubts)
    show_found(found, as_json, comparison_report, comparison_document)


def _planned(read: "Sequence[SavedPlan]", gpu: str, given: Given) -> "SavedPlan":
    """The plan whose jobs and GPU those of all plan files are; checks the options against it."""
    from advisor.launch.plan_file import check_gpu_of_plan, of_the_same_jobs

    given = given | {"plan": "a plan file"}
    apart(given, "plan", ("jobs", "job_file"), "a plan file has jobs of its own.")
    if len(read) == 2 and all(each.power_cap_w for each in read):
        apart(given, "plan", ("power_cap",), "both plans have caps of their own.")
    planned = of_the_same_jobs(read)
    check_gpu_of_plan(gpu if "gpu" in given else None, planned.gpu, "the file")
    return planned


def _is_job(word: str, folder: Path | None) -> bool:
    """Whether `word` is a profile's name, with copies or without."""
    from advisor.workload.store import profile_paths, profiled_gpus

    name = word.partition(":")[0]
    return any(name in profile_paths(key, folder) for key in profiled_gpus(folder))
