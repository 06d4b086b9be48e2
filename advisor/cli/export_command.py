"""``advisor export``: writes a plan as a file for the tool that applies it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from advisor.cli.options import (
    By,
    Files,
    GpuKey,
    Named,
    PowerCap,
    apart,
    given_in,
    grouped,
    to_write,
)
from advisor.cli.output import aside, show_text, warn
from advisor.english import counted
from advisor.errors import InvalidInput
from advisor.hardware import DEFAULT_GPU
from advisor.launch import ExportFormat
from advisor.plan import MOST_GPUS

if TYPE_CHECKING:
    from advisor.api import Advisor
    from advisor.launch.launch_plan import LaunchPlan
    from advisor.plan import ObjectiveName
    from advisor.prediction.mix_prediction import MixPrediction
    from advisor.workload.job import Job

_WHY = "--objective and --rank choose a plan, and --sharing is one."


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """Options of the format, and of where to write it."""

    sharing: Annotated[
        str | None, typer.Option(help="As `predict` takes it; default: the best plan's.")
    ] = None
    rank: Annotated[
        int | None,
        typer.Option(min=1, help="Which plan of those that `recommend` ranks; default: the best."),
    ] = None
    form: Annotated[
        ExportFormat,
        typer.Option("--format", help="commands: for a shell; else for the tool of that name."),
    ] = "commands"
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", parser=to_write, help="Where to write it; default: stdout."),
    ] = None
    gpus: Annotated[
        int,
        typer.Option(
            min=1, max=MOST_GPUS, help="How many equal GPUs there are: commands, slurm or json."
        ),
    ] = 1

    def write(self, text: str, *, runs: bool) -> None:
        """Write the plan `text` to the file, or to stdout; `runs`: `advisor run` takes it."""
        from advisor.workload.writing import write_whole

        if self.out is None:
            show_text(text, end="")
            return
        write_whole(self.out, text)
        run = f"; advisor run {self.out} prints the script" * runs
        aside(f"{self.out}: written{run}")


@grouped
def export(
    context: typer.Context,
    *,
    exported: ExportOptions,
    named: Named,
    gpu: GpuKey = DEFAULT_GPU,
    objective: By = "makespan",
    power_cap: PowerCap = None,
    files: Files,
) -> None:
    """Write the plan for the JOBs as a file.

    Shell lines, or for MPS, MIG, Slurm, radT, or JSON. On Kubernetes, NVIDIA's GPU operator takes
    what mig-parted does; for MPS or time-slicing set up NVIDIA's device plugin by hand.
    """
    from advisor.launch.exports import exported as exported_plan
    from advisor.report.headline import with_estimates_named
    from advisor.workload.secret_names import secrets_held

    given = given_in(context)
    apart(given, "sharing", ("objective", "rank"), _WHY)
    advisor = files.advisor(gpu, power_cap)
    jobs: Sequence[Job] = named.chosen(advisor, exported.gpus)
    standing = advisor.standing(jobs)
    if standing.estimated_from is not None:
        aside(with_estimates_named(standing, ""))
    if exported.gpus > 1:
        apart(given, "gpus", ("sharing", "rank"), "for several GPUs one plan is found.")
        _export_of_all(advisor, jobs, objective, exported)
        return
    if exported.sharing is None:
        jobs, prediction = _planned(advisor, jobs, objective, exported.rank)
    else:
        prediction = advisor.predict(jobs, exported.sharing).prediction
    file = exported_plan(jobs, advisor.card, prediction, exported.form)
    as_json = exported.form == "json"
    refused = _refused_by_run(jobs) if as_json else ()
    # The other formats leave variables to whoever runs them.
    secrets = secrets_held(jobs, variables=as_json, text=file.text)
    warn([*file.notes, *secrets, *refused])
    exported.write(file.text, runs=as_json and not refused)


def _refused_by_run(jobs: "Iterable[Job]") -> tuple[str, ...]:
    """Why `advisor run` would refuse a plan of `jobs`, a line each."""
    found = []
    for job in jobs:
        try:
            job.profile.workload.check_startable()
        except InvalidInput as error:
            found.append(str(error))
    return tuple(f"`advisor run` will refuse this plan: {each}" for each in dict.fromkeys(found))


def _export_of_all(
    advisor: "Advisor", jobs: "Sequence[Job]", objective: "ObjectiveName", exported: ExportOptions
) -> None:
    """Write the plan that `recommend --gpus` finds.

    Raises:
        InvalidInput: The format is for one GPU, or for a file each, and there is no FILE.
    """
    from advisor.launch.exports.several_gpus import WHOLE, json_texts, refuse_format
    from advisor.launch.fleet_launch import fleet_launch_plans
    from advisor.launch.launch_plan import NOT_RUN
    from advisor.plan.fleet_terms import FleetTerms
    from advisor.workload.secret_names import secrets_held

    refuse_format(exported.form)
    each = exported.form == "json"
    if each and exported.out is None:
        raise InvalidInput(
            "--format json writes a plan for each GPU: say by --out FILE.json what they are called."
        )
    terms = FleetTerms(objective=objective, gpus=exported.gpus)
    plans = fleet_launch_plans(advisor.recommend_fleet(jobs, terms))
    texts = json_texts(plans) if each else {0: WHOLE[exported.form](plans)}
    warn([NOT_RUN] if any(plan.on_mig for plan in plans) else [])
    refused = _refused_by_run(jobs) if each else ()
    warn([*secrets_held(jobs, variables=each, text="".join(texts.values())), *refused])
    if each and exported.out:
        _write_each(exported.out, texts, plans)
    else:
        exported.write(texts[0], runs=False)


def _write_each(out: Path, texts: Mapping[int, str], plans: "Sequence[LaunchPlan]") -> None:
    """Write plans by the index of their GPU, each to a file that is called after `out` and it."""
    from advisor.workload.writing import write_whole

    for plan, (device, text) in zip(plans, texts.items(), strict=True):
        file = out.with_stem(f"{out.stem}-gpu{device}")
        write_whole(file, text)
        runs = not _refused_by_run(start.job for start in plan.starts)
        run = f"; advisor run {file} --device {device} prints the script" * runs
        aside(f"{file}: written{run}")


def _planned(
    advisor: "Advisor", jobs: "Sequence[Job]", objective: "ObjectiveName", rank: int | None
) -> "tuple[Sequence[Job], MixPrediction]":
    """Jobs and sharing of the plan with that `rank`, or the best.

    Raises:
        InvalidInput: There is no plan of that rank.
    """
    from advisor.plan.fleet_terms import FleetTerms
    from advisor.plan.rules import EXACT_JOBS

    if len(jobs) <= EXACT_JOBS:
        plans = advisor.recommend(jobs, objective).plans
    elif rank is None:
        (on,) = advisor.recommend_fleet(jobs, FleetTerms(objective=objective)).on
        return on.candidate.chosen(jobs), on.forecast.prediction
    else:
        raise InvalidInput(
            f"--rank is for up to {EXACT_JOBS} jobs: for more, `advisor recommend` finds one plan, "
            f"and without --rank that is written."
        )
    if (rank or 1) > len(plans):
        raise InvalidInput(
            f"there is no plan {rank}: `advisor recommend` ranks {counted(len(plans), 'plan')} for "
            f"these jobs. Choose another --rank."
        )
    return jobs, plans[(rank or 1) - 1].prediction
