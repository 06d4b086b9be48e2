"""Commands on given plans: ``advisor predict``, ``explain``, ``simulate`` and ``export``."""

from collections.abc import Iterable, Sequence
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
    JobFile,
    Jobs,
    Named,
    PowerCap,
    apart,
    given_in,
    grouped,
    needs,
    to_write,
)
from advisor.cli.output import aside, show_answer, show_text, warn
from advisor.errors import InvalidInput, counted
from advisor.hardware import DEFAULT_GPU
from advisor.launch import ExportFormat
from advisor.plan import MOST_GPUS
from advisor.simulation import Policy

if TYPE_CHECKING:
    from advisor.api import Advisor
    from advisor.plan import ObjectiveName
    from advisor.prediction.prediction import MixPrediction
    from advisor.sharing import Sharing
    from advisor.workload.job import Job


_Sharing = Annotated[
    str,
    typer.Option(
        "--sharing",
        metavar="SHARING",
        help="How the JOBs share the GPU: serial, naive, mps, mps=43,57, mig=3g.71gb,4g.71gb; with "
        "the jobs' numbers mig=4g.71gb[1]+3g.71gb[2,3]/mps=50,50, mig=7g.141gb/ci=3c[1]+4c[2], or "
        "in turn naive[1,2];mps[3].",
    ),
]


@grouped
def predict(
    *,
    sharing: _Sharing = "mps",
    named: Named,
    gpu: GpuKey = DEFAULT_GPU,
    power_cap: PowerCap = None,
    files: Files,
    as_json: AsJson = False,
) -> None:
    """Predict pace, memory and power of the JOBs under one sharing."""
    from advisor.report.forecast import forecast_document, forecast_report

    advisor = files.advisor(gpu, power_cap)
    forecast = advisor.predict(named.chosen(advisor), sharing)
    warn(forecast.standing.doubts)
    show_answer(forecast, as_json, forecast_report, forecast_document)


_Plan = Annotated[
    str,
    typer.Argument(
        metavar="PLAN",
        help="A sharing, as for `predict --sharing`, or a FILE.json from `export`.",
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

    The answer has what changes for each job, why, and whether that exceeds the error of prediction.

    For example: advisor explain naive mps=43,57 resnet50-imagenet64-bs128:2

    With a power cap: advisor explain mps mps resnet50-imagenet64-bs128:2 --power-cap 400
    """
    from advisor.launch.plan_file import (
        SavedPlan,
        check_gpu_of_plan,
        check_same_jobs,
        plan_named,
    )
    from advisor.report.plan_tables import comparison_document, comparison_report

    for word in (pair.first, pair.second):
        if _is_job(word, files.profiles):
            raise InvalidInput(
                f"expected two PLANs before the JOBs: advisor explain naive mps {word}"
            )
    plans = plan_named(pair.first, files.profiles), plan_named(pair.second, files.profiles)
    if saved := [plan for plan in plans if isinstance(plan, SavedPlan)]:
        given = given_in(context) | {"plan": "a plan file"}
        apart(given, "plan", ("jobs", "job_file"), "a plan file has its own jobs.")
        if len(saved) == 2 and all(plan.power_cap_w for plan in saved):
            apart(given, "plan", ("power_cap",), "both plans have their own caps.")
        planned = check_same_jobs(saved)
        check_gpu_of_plan(gpu if "gpu" in given else None, planned.gpu, "the file")
        advisor, jobs = files.advisor(planned.gpu, power_cap), planned.jobs
    else:
        advisor = files.advisor(gpu, power_cap)
        jobs = named.chosen(advisor)
    comparison = advisor.compare(plans, jobs, objective)
    warn(comparison.plans[0].standing.doubts)
    show_answer(comparison, as_json, comparison_report, comparison_document)


def _is_job(word: str, folder: Path | None) -> bool:
    """Whether `word` is a profile's name, with copies or without."""
    from advisor.workload.store import profile_paths, profiled_gpus

    name = word.partition(":")[0]
    return any(name in profile_paths(key, folder) for key in profiled_gpus(folder))


# Default of `--at-once` for jobs that arrive over time: more are rarely faster.
_AT_ONCE_IN_TRACES = 4


@dataclass(frozen=True, slots=True)
class Load:
    """Options of what is to run, and how it shares a GPU."""

    jobs: Jobs = None
    job_file: JobFile = None
    trace_in: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Read jobs that arrive over time from this CSV: arrival_s,job,..."
        ),
    ] = None
    plan: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Read jobs and sharing from this file of `export --format json`."
        ),
    ] = None
    sharing: Annotated[
        str,
        typer.Option(
            "--sharing",
            metavar="SHARING",
            help="As for `predict`; the next job starts in the first free place.",
        ),
    ] = "mps"


@dataclass(frozen=True, slots=True)
class QueueOptions:
    """Options of the GPUs, and of the queue that feeds them."""

    gpus: Annotated[int, typer.Option(metavar="N", min=1, max=10_000, help="Use N equal GPUs.")] = 1
    policy: Annotated[
        Policy,
        typer.Option(help="Start the next job by this rule; best-fit: the job that adds most."),
    ] = "first-come"
    at_once: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Run at most N jobs on a GPU at once; default: all, of a trace 4.",
        ),
    ] = None
    price: Annotated[
        float | None, typer.Option(metavar="EUR_PER_GPU_HOUR", help="Print costs at this price.")
    ] = None


@dataclass(frozen=True, slots=True)
class TraceFile:
    """Options of the trace to write."""

    trace: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", parser=to_write, help="Write a trace for ui.perfetto.dev to this file."
        ),
    ] = None
    kernels: Annotated[
        bool, typer.Option(help="Add the first replayed kernels of the mix to the trace.")
    ] = False


@grouped
def simulate(
    context: typer.Context,
    *,
    load: Load,
    gpu: GpuKey = DEFAULT_GPU,
    queue: QueueOptions,
    traced: TraceFile,
    power_cap: PowerCap = None,
    files: Files,
    as_json: AsJson = False,
) -> None:
    """Simulate the JOBs until the last one ends.

    The answer has times, GPU activity, memory, energy and costs.
    """
    from advisor.launch.plan_file import check_gpu_of_plan, read_plan
    from advisor.report.simulation import simulation_document, simulation_report, trace_text
    from advisor.sharing import parse_sharing
    from advisor.simulation.simulate import Fleet
    from advisor.workload.job import Arrival, read_arrivals
    from advisor.workload.writing import writable, write_whole

    given = given_in(context)
    needs(given, "kernels", {"trace": "--trace FILE"})
    why = "name jobs in one way only."
    apart(given, "trace_in", ("jobs", "job_file"), why)
    apart(given, "plan", ("jobs", "job_file", "trace_in"), why)
    apart(given, "plan", ("sharing",), "the plan has its own sharing.")
    if traced.trace:
        writable(traced.trace)  # before seconds of simulating
    sharing, planned = load.sharing, None
    if load.plan:
        planned = read_plan(load.plan, files.profiles)
        check_gpu_of_plan(gpu if "gpu" in given else None, planned.gpu, str(load.plan))
        gpu, sharing = planned.gpu, str(planned.sharing)
        power_cap = power_cap or planned.power_cap_w
    advisor = files.advisor(gpu, power_cap)
    if load.trace_in:
        arrivals = read_arrivals(load.trace_in, advisor.find_profile)
    else:
        named = Named(load.jobs, load.job_file)
        arrivals = tuple(map(Arrival, planned.jobs if planned else named.chosen(advisor)))
    mode = parse_sharing(sharing)
    _check_queue(given, mode, queue)
    at_once = queue.at_once or (_AT_ONCE_IN_TRACES if load.trace_in else None)
    fleet = Fleet(advisor.card.key, queue.gpus, queue.policy, queue.price)
    simulated = advisor.simulate(arrivals, mode, fleet, at_once=at_once)
    warn(simulated.standing.doubts)
    if traced.trace:
        kernels = advisor.first_kernels(simulated.simulation) if traced.kernels else ()
        write_whole(traced.trace, trace_text(simulated.simulation, kernels))
    show_answer(simulated, as_json, simulation_report, simulation_document)


def _check_queue(given: Given, sharing: "Sharing", queue: QueueOptions) -> None:
    """Check that the queue options do not contradict what `sharing` itself fixes."""
    from advisor.sharing.groups import places_named

    places = places_named(sharing)
    if queue.at_once is not None and places > queue.at_once:
        raise InvalidInput(
            f"--sharing {sharing} and --at-once {queue.at_once} exclude each other: it has "
            f"{places} jobs at once."
        )
    if "policy" in given and sharing.mode == "phases":
        raise InvalidInput(
            f"--sharing {sharing} and --policy {queue.policy} exclude each other: the sharing "
            f"orders the jobs."
        )


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """Options of the format, and of where to write it."""

    sharing: Annotated[
        str | None,
        typer.Option(
            "--sharing",
            metavar="SHARING",
            help="As for `predict`; default: that of the best plan.",
        ),
    ] = None
    rank: Annotated[
        int | None,
        typer.Option(
            "--rank",
            metavar="RANK",
            min=1,
            help="Write the plan of this rank; default: the best.",
        ),
    ] = None
    form: Annotated[
        ExportFormat,
        typer.Option("--format", help="Write for this tool; commands: a shell script."),
    ] = "commands"
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", parser=to_write, help="Write to this file; default: stdout."),
    ] = None
    gpus: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=1,
            max=MOST_GPUS,
            help="Plan for N equal GPUs: formats commands, slurm and json.",
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
    """Write a plan for the JOBs as a file that applies it.

    On Kubernetes, NVIDIA's GPU operator accepts the mig-parted format; for MPS or time-slicing set
    up NVIDIA's device plugin by hand.
    """
    from advisor.launch.exports import exported as exported_plan
    from advisor.report.forecast import with_estimates_named
    from advisor.workload.job import secrets_held

    given = given_in(context)
    why = "--sharing names the plan, and --objective and --rank choose one."
    apart(given, "sharing", ("objective", "rank"), why)
    advisor = files.advisor(gpu, power_cap)
    jobs: Sequence[Job] = named.chosen(advisor, exported.gpus)
    standing = advisor.standing(jobs)
    if standing.estimated_from is not None:
        aside(with_estimates_named(standing, ""))
    if exported.gpus > 1:
        apart(given, "gpus", ("sharing", "rank"), "advisor finds one plan for several GPUs.")
        _export_of_all(advisor, jobs, objective, exported)
        return
    if exported.sharing is None:
        jobs, prediction = _plan_to_export(advisor, jobs, objective, exported.rank)
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
    """Reasons for which `advisor run` would refuse a plan of `jobs`."""
    reasons = []
    for job in jobs:
        try:
            job.profile.workload.check_startable()
        except InvalidInput as error:
            reasons.append(str(error))
    return tuple(f"`advisor run` will refuse this plan: {why}" for why in dict.fromkeys(reasons))


def _export_of_all(
    advisor: "Advisor", jobs: "Sequence[Job]", objective: "ObjectiveName", exported: ExportOptions
) -> None:
    """Write the plan that `recommend --gpus` finds."""
    from advisor.launch.commands import fleet_launch_plans
    from advisor.launch.exports import WHOLE, json_texts, refuse_format
    from advisor.launch.launch_plan import NOT_RUN
    from advisor.plan.objectives import FleetTerms
    from advisor.workload.job import secrets_held
    from advisor.workload.writing import write_whole

    refuse_format(exported.form)
    several_files = exported.form == "json"
    if several_files and exported.out is None:
        raise InvalidInput(
            "--format json writes a file for each GPU. Name them by --out FILE.json."
        )
    terms = FleetTerms(objective=objective, gpus=exported.gpus)
    plans = fleet_launch_plans(advisor.recommend_fleet(jobs, terms))
    texts = json_texts(plans) if several_files else {0: WHOLE[exported.form](plans)}
    warn([NOT_RUN] if any(plan.on_mig for plan in plans) else [])
    refused = _refused_by_run(jobs) if several_files else ()
    warn([*secrets_held(jobs, variables=several_files, text="".join(texts.values())), *refused])
    if not (several_files and exported.out):
        exported.write(texts[0], runs=False)
        return
    for plan, (device, text) in zip(plans, texts.items(), strict=True):
        file = exported.out.with_stem(f"{exported.out.stem}-gpu{device}")
        write_whole(file, text)
        runs = not _refused_by_run(start.job for start in plan.starts)
        run = f"; advisor run {file} --device {device} prints the script" * runs
        aside(f"{file}: written{run}")


def _plan_to_export(
    advisor: "Advisor", jobs: "Sequence[Job]", objective: "ObjectiveName", rank: int | None
) -> "tuple[Sequence[Job], MixPrediction]":
    """Return jobs and prediction of the plan with that `rank`, or the best."""
    from advisor.plan.objectives import FleetTerms
    from advisor.plan.rules import EXACT_JOBS

    if len(jobs) <= EXACT_JOBS:
        plans = advisor.recommend(jobs, objective).plans
    elif rank is None:
        (on,) = advisor.recommend_fleet(jobs, FleetTerms(objective=objective)).on
        return on.candidate.chosen(jobs), on.forecast.prediction
    else:
        raise InvalidInput(
            f"--rank is for up to {EXACT_JOBS} jobs: `advisor recommend` finds one plan for more. "
            f"Leave --rank out."
        )
    if (rank or 1) > len(plans):
        raise InvalidInput(
            f"no plan of rank {rank}: `advisor recommend` ranks {counted(len(plans), 'plan')} for "
            f"these jobs. Choose another --rank."
        )
    return jobs, plans[(rank or 1) - 1].prediction
