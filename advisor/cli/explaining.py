"""``advisor explain``: two plans for the same jobs, and what makes the difference."""

from typing import Annotated

import typer

from advisor.cli.advice import chosen_jobs
from advisor.cli.combinations import apart, given_in
from advisor.cli.options import (
    DEFAULT_GPU,
    AsJson,
    By,
    Calibration,
    GpuKey,
    JobFile,
    Jobs,
    Models,
    PowerCap,
    Profiles,
)
from advisor.cli.output import show, show_json, warn

_Plan = Annotated[
    str,
    typer.Argument(
        metavar="PLAN",
        help="A sharing as `predict` takes it, or a FILE.json that `export` wrote.",
        show_default=False,
    ),
]


def explain(
    context: typer.Context,
    first: _Plan,
    second: _Plan,
    jobs: Jobs = None,
    job_file: JobFile = None,
    gpu: GpuKey = DEFAULT_GPU,
    objective: By = "makespan",
    power_cap: PowerCap = None,
    profiles: Profiles = None,
    models: Models = None,
    calibration: Calibration = None,
    as_json: AsJson = False,
) -> None:
    """Compare two PLANs for the JOBs: what changes for each job, why, and if it exceeds the error.

    For example: advisor explain naive mps=43,57 resnet50-imagenet64-bs128:2
    """
    from advisor.api.explain import check_gpu_of_plan, of_the_same_jobs, plan_named
    from advisor.api.explain import explain as explained
    from advisor.launch.plan_file import Planned
    from advisor.measure.process.provenance import present_machine
    from advisor.report.comparison_text import comparison_document, comparison_report

    plans = plan_named(first, profiles), plan_named(second, profiles)
    if files := [plan for plan in plans if isinstance(plan, Planned)]:
        given = given_in(context) | {"plan": "a plan file"}
        apart(given, "plan", ("jobs", "job_file"), "a plan file has jobs of its own.")
        if len(files) == len(plans) and all(each.power_cap_w for each in files):
            apart(given, "plan", ("power_cap",), "both plans have caps of their own.")
        planned = of_the_same_jobs(files)
        check_gpu_of_plan(gpu if "gpu" in given else None, planned.gpu, "the file")
        gpu, chosen = planned.gpu, planned.jobs
    else:
        chosen = chosen_jobs(jobs, job_file, gpu, profiles)
    found = explained(
        plans, chosen, gpu, objective=objective, models=models, power_cap_w=power_cap,
        calibration=calibration, present=present_machine(gpu),
    )  # fmt: skip
    warn(found.plans[0].standing.stale)
    if as_json:
        show_json(comparison_document(found))
    else:
        show(comparison_report(found))
