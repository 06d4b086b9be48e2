"""Commands on given plans: ``advisor predict``, ``compare``, ``simulate`` and ``export``."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

from typer import Argument, Context, Exit, Option

from advisor.cli import options
from advisor.cli.completion import (
    complete_plan,
    complete_plan_or_job,
    complete_sharing,
)
from advisor.cli.options import (
    advisor_for,
    chosen_jobs,
    confined,
    counted_gpus,
    exclude,
    on_checked_host,
    passed_options,
    protected_jobs,
    require,
    to_write,
)
from advisor.cli.output import aside, show_answer, show_text, warn
from advisor.errors import InvalidInput, NothingFits
from advisor.hardware import DEFAULT_GPU
from advisor.launch import ExportFormat
from advisor.simulation import PREEMPTION_S, ROUND_S, Policy, RoundPolicy

if TYPE_CHECKING:
    from advisor.api import Advisor
    from advisor.plan.cluster import FleetTerms
    from advisor.prediction.prediction import MixPrediction
    from advisor.sharing import Sharing
    from advisor.workload.job import Job


_Sharing = Annotated[
    str,
    Option(
        "--sharing",
        metavar="SHARING",
        autocompletion=complete_sharing,
        help="How the JOBs share the GPU: serial, naive, mps, mps=43,57, mig=3g.71gb,4g.71gb; with "
        "the jobs' numbers mig=4g.71gb[1]+3g.71gb[2,3]/mps=50,50, mig=7g.141gb/ci=3c[1]+4c[2], or "
        "in turn naive[1,2];mps[3]. A queue of at most 2 at once: mps/2, or in an order "
        "mps/2[3,1,2].",
    ),
]
_PlansAndJobs = Annotated[
    list[str],
    Argument(
        metavar="PLAN PLAN... JOB...",
        show_default=False,
        autocompletion=complete_plan_or_job,
        help="Two PLANs or more, the first of which the others are compared with: a sharing, as "
        "for `predict --sharing`, or a FILE.json from `export`; then the JOBs, as for `predict`.",
    ),
]
_Csv = Annotated[
    Path | None,
    Option(
        "--csv",
        metavar="FILE",
        parser=to_write,
        help="Write a row for each plan to this file, too.",
    ),
]
_TraceIn = Annotated[
    Path | None,
    Option(
        metavar="CSV",
        help="Read jobs that arrive over time from this table: arrival_s,job,...",
    ),
]
_PlanFile = Annotated[
    Path | None,
    Option(
        metavar="FILE",
        autocompletion=complete_plan,
        help="Read jobs and sharing from this file of `export --format json`.",
    ),
]
_QueuedSharing = Annotated[
    str,
    Option(
        "--sharing",
        metavar="SHARING",
        autocompletion=complete_sharing,
        help="As for `predict`; the next job starts in the first free place. mig: a MIG layout for "
        "the jobs that wait, chosen whenever a GPU has no job.",
    ),
]
_Policy = Annotated[
    Policy,
    Option(
        case_sensitive=False,
        help="Start jobs by this rule; best-fit: the job that adds most. Or share GPUs in rounds: "
        "max-min: equal GPU time; finish-time: the job first that is latest against an equal part "
        "of the GPUs; least-attained: the job first that had least GPU time.",
    ),
]
_Round = Annotated[
    float,
    Option(
        "--round",
        metavar="SECONDS",
        parser=options.seconds,
        help="Decide again after this time which jobs run, under a policy in rounds.",
    ),
]
_Preemption = Annotated[
    float,
    Option(
        metavar="SECONDS",
        parser=options.seconds,
        help="Time that a job loses when it was stopped and starts again, from its last "
        "checkpoint.",
    ),
]
_AtOnce = Annotated[
    int | None,
    Option(
        metavar="N",
        min=1,
        help="Run at most N jobs on a GPU at once; default: all, of a trace 4.",
    ),
]
_Price = Annotated[
    float | None,
    Option(
        metavar="EUR_PER_GPU_HOUR",
        parser=options.euros,
        help="Print costs at this price.",
    ),
]
_Timeline = Annotated[
    Path | None,
    Option(
        metavar="FILE",
        parser=to_write,
        help="Write a timeline for ui.perfetto.dev to this file.",
    ),
]
_Kernels = Annotated[
    bool,
    Option(
        help="Add the first replayed kernels of the mix to the timeline.",
    ),
]
_ExportedSharing = Annotated[
    str | None,
    Option(
        "--sharing",
        metavar="SHARING",
        autocompletion=complete_sharing,
        help="As for `predict`; default: that of the best plan.",
    ),
]
_Rank = Annotated[
    int | None,
    Option(
        "--rank",
        metavar="RANK",
        min=1,
        help="Write the plan of this rank; default: the best.",
    ),
]
_Format = Annotated[
    ExportFormat,
    Option(
        "--format",
        case_sensitive=False,
        help="Write for this tool; commands: a shell script.",
    ),
]
_GresName = Annotated[
    str | None,
    Option(
        metavar="NAME",
        help="Ask Slurm for GPUs by this name, e.g. gpu:tesla, or a100-40gb=gpu:a100,"
        "h100-sxm-80gb=gpu:h100; default: the first word of the model, if there are several.",
    ),
]
_Only = Annotated[
    str | None,
    Option(
        "--only",
        metavar="GPU",
        help="Write the part of the plan on this one of several GPU models.",
    ),
]
_Out = Annotated[
    Path | None,
    Option(
        metavar="FILE",
        parser=to_write,
        help="Write to this file; default: stdout.",
    ),
]


# Default of `--at-once` for jobs that arrive over time: more are rarely faster.
_AT_ONCE_IN_TRACES = 4


def predict(
    sharing: _Sharing = "mps",
    jobs: options.Jobs = None,
    job_file: options.JobFile = None,
    gpu: options.GpuKey = DEFAULT_GPU,
    power_cap: options.PowerCap = None,
    profiles: options.Profiles = None,
    models: options.Models = None,
    calibration: options.Calibration = None,
    check_host: options.CheckHost = None,
    host_cores: options.HostCores = None,
    as_json: options.AsJson = False,
) -> None:
    """Predict pace, memory and power of the JOBs under one sharing."""
    from advisor.report.forecast import forecast_document, forecast_report

    advisor = advisor_for(gpu, power_cap, profiles, models, calibration, host_cores)
    members = chosen_jobs(advisor, jobs, job_file)
    advisor = on_checked_host(advisor, [each.profile for each in members], check_host)
    forecast = advisor.predict(members, sharing)
    warn(forecast.standing.doubts)
    show_answer(forecast, as_json, forecast_report, forecast_document)
    if not forecast.fits:
        raise Exit(NothingFits.exit_code)


def compare(
    context: Context,
    words: _PlansAndJobs,
    job_file: options.JobFile = None,
    gpu: options.GpuKey = DEFAULT_GPU,
    objective: options.Objective = "makespan",
    power_cap: options.PowerCap = None,
    profiles: options.Profiles = None,
    models: options.Models = None,
    calibration: options.Calibration = None,
    host_cores: options.HostCores = None,
    as_json: options.AsJson = False,
    csv_file: _Csv = None,
) -> None:
    """Compare two PLANs or more for the JOBs.

    The answer has time, gain, energy and memory of each plan, and the slowdown of each job, with
    the resource that limits it.

    For example: advisor compare naive mps mps=43,57 resnet50-imagenet64-bs128:2

    With a power cap: advisor compare mps mps resnet50-imagenet64-bs128:2 --power-cap 400
    """
    from advisor.launch.plan_file import SavedPlan, check_gpu_of_plan, check_same_jobs, plan_named
    from advisor.report.comparison import comparison_csv, comparison_document, comparison_report
    from advisor.workload.writing import write_whole

    named, jobs = options.plans_and_jobs(words)
    if len(named) < 2:
        meant = [part for word in named for part in ([word] if "=" in word else word.split(","))]
        raise InvalidInput(
            f"expected two PLANs or more before the JOBs: advisor compare "
            f"{' '.join(dict.fromkeys([*meant, 'naive', 'mps']))} {' '.join(jobs) or 'JOB'}"
        )
    plans = [plan_named(word, profiles) for word in named]
    saved = [plan for plan in plans if isinstance(plan, SavedPlan)]
    passed = passed_options(context) | ({"jobs": "JOB"} if jobs else {})
    if saved:
        passed |= {"plan": "a plan file"}
        exclude(passed, "plan", ("jobs", "job_file"), "a plan file has its own jobs.")
        if len(saved) == len(plans) and all(plan.power_cap_w for plan in saved):
            exclude(passed, "plan", ("power_cap",), "the plans have their own caps.")
        planned = check_same_jobs(saved)
        check_gpu_of_plan(gpu if "gpu" in passed else None, planned.gpu, "the file")
        gpu = planned.gpu
    advisor = advisor_for(gpu, power_cap, profiles, models, calibration, host_cores)
    members = saved[0].jobs if saved else chosen_jobs(advisor, jobs, job_file)
    comparison = advisor.compare(plans, members, objective)
    warn(comparison.plans[0].standing.doubts)
    if csv_file is not None:
        write_whole(csv_file, comparison_csv(comparison))
    show_answer(comparison, as_json, comparison_report, comparison_document)
    if all(comparison.forbidden):
        raise Exit(NothingFits.exit_code)


def simulate(
    context: Context,
    jobs: options.Jobs = None,
    job_file: options.JobFile = None,
    trace_in: _TraceIn = None,
    plan: _PlanFile = None,
    sharing: _QueuedSharing = "mps",
    gpu: options.GpuKey = DEFAULT_GPU,
    gpus: options.Gpus = "1",
    policy: _Policy = "first-come",
    round_s: _Round = ROUND_S,
    preemption: _Preemption = PREEMPTION_S,
    at_once: _AtOnce = None,
    price: _Price = None,
    timeline: _Timeline = None,
    kernels: _Kernels = False,
    root: options.Root = True,
    memory_margin: options.MemoryMargin = 0.0,
    protect: options.Protect = None,
    max_slowdown: options.MaxSlowdown = None,
    power_cap: options.PowerCap = None,
    profiles: options.Profiles = None,
    models: options.Models = None,
    calibration: options.Calibration = None,
    check_host: options.CheckHost = None,
    host_cores: options.HostCores = None,
    as_json: options.AsJson = False,
) -> None:
    """Simulate the JOBs until the last one ends.

    The answer has times, GPU activity, memory, energy and costs, and the savings over one job a
    GPU.
    """
    from advisor.launch.plan_file import check_gpu_of_plan, read_plan
    from advisor.plan.rules import Conditions
    from advisor.report.simulation import simulation_document, simulation_report, trace_text
    from advisor.simulation.simulate import MOST_SIMULATED, Fleet
    from advisor.workload.arrivals import read_arrivals
    from advisor.workload.job import Arrival
    from advisor.workload.writing import write_whole

    passed = passed_options(context)
    total, gpu = counted_gpus(gpus, gpu, context, MOST_SIMULATED)
    require(passed, "kernels", {"timeline": "--timeline FILE"})
    why = "name jobs in one way only."
    exclude(passed, "trace_in", ("jobs", "job_file"), why)
    exclude(passed, "plan", ("jobs", "job_file", "trace_in"), why)
    exclude(passed, "plan", ("sharing",), "the plan has its own sharing.")
    require(passed, "max_slowdown", {"protect": "--protect"})
    planned = read_plan(plan, profiles) if plan else None
    if planned:
        check_gpu_of_plan(gpu if "gpu" in passed or ":" in gpus else None, planned.gpu, str(plan))
        gpu, sharing = planned.gpu, str(planned.sharing)
        power_cap = power_cap or planned.power_cap_w
    advisor = advisor_for(gpu, power_cap, profiles, models, calibration, host_cores)
    arrivals = (
        read_arrivals(trace_in, advisor.find_profile)
        if trace_in
        else tuple(
            map(Arrival, planned.jobs if planned else chosen_jobs(advisor, jobs, job_file, total))
        )
    )
    members = protected_jobs([each.job for each in arrivals], protect, max_slowdown)
    arrivals = tuple(map(Arrival, members, [each.arrival_s for each in arrivals]))
    advisor = on_checked_host(advisor, [each.profile for each in members], check_host)
    mode = advisor.read_sharing(sharing, over_time=True)
    _check_queue(passed, mode, at_once, policy)
    fleet = Fleet(advisor.card.key, gpus, policy, price, round_s, preemption)
    if trace_in and mode.mode != "queue":  # which has a number of its own
        at_once = at_once or _AT_ONCE_IN_TRACES
    conditions = confined(
        advisor.card, Conditions(root=root, memory_margin=memory_margin), whole=root
    )
    simulated = advisor.simulate(arrivals, mode, fleet, at_once=at_once, conditions=conditions)
    warn(simulated.standing.doubts)
    if timeline:
        replayed = advisor.first_kernels(simulated.simulation) if kernels else ()
        write_whole(timeline, trace_text(simulated.simulation, replayed))
    show_answer(simulated, as_json, simulation_report, simulation_document)


def _check_queue(
    passed: Mapping[str, str], sharing: "Sharing", at_once: int | None, policy: Policy
) -> None:
    """Check that the options of the queue do not contradict what `sharing` itself fixes."""
    from advisor.sharing.groups import orders_jobs, places_named

    places = places_named(sharing)
    if at_once is not None and places > at_once:
        raise InvalidInput(
            f"--sharing {sharing} and --at-once {at_once} exclude each other: it has {places} jobs "
            f"at once."
        )
    for name in ("round_s", "preemption") if policy not in get_args(RoundPolicy) else ():
        if name in passed:
            others = ", ".join(get_args(RoundPolicy))
            raise InvalidInput(f"{passed[name]} is for the policies {others}, not for {policy}.")
    if "policy" in passed and orders_jobs(sharing):
        raise InvalidInput(
            f"--sharing {sharing} and --policy {policy} exclude each other: the sharing orders the "
            f"jobs."
        )


def export(
    context: Context,
    sharing: _ExportedSharing = None,
    rank: _Rank = None,
    form: _Format = "commands",
    out: _Out = None,
    gpus: options.Gpus = "1",
    jobs: options.Jobs = None,
    job_file: options.JobFile = None,
    gpu: options.GpuKey = DEFAULT_GPU,
    objective: options.Objective = "makespan",
    root: options.Root = True,
    power_cap: options.PowerCap = None,
    profiles: options.Profiles = None,
    models: options.Models = None,
    calibration: options.Calibration = None,
    host_cores: options.HostCores = None,
    gres_name: _GresName = None,
    only: _Only = None,
) -> None:
    """Write a plan for the JOBs as a file that applies it.

    On Kubernetes, kubernetes-script is one pod for each GPU, which runs almost any plan; kubernetes
    is a pod for each training, for NVIDIA's GPU operator.
    """
    from advisor.launch.exports import exported
    from advisor.launch.plan_file import refused_by_run
    from advisor.plan.cluster import FleetTerms
    from advisor.plan.rules import Conditions
    from advisor.report.forecast import with_estimates_named
    from advisor.workload.spec import secrets_held

    passed = passed_options(context)
    total, gpu = counted_gpus(gpus, gpu, context)
    if gres_name and form != "slurm":
        raise InvalidInput(f"--gres-name is for --format slurm, not {form}.")
    why = "--sharing names the plan, and --objective, --rank and --no-root choose one."
    exclude(passed, "sharing", ("objective", "rank", "root"), why)
    advisor = advisor_for(gpu, power_cap, profiles, models, calibration, host_cores)
    members: Sequence[Job] = chosen_jobs(advisor, jobs, job_file, total)
    advisor = on_checked_host(advisor, [each.profile for each in members], None)
    standing = advisor.standing(members)
    if standing.estimated_from is not None:
        aside(with_estimates_named(standing, ""))
    terms = FleetTerms(objective=objective, gpus=gpus, conditions=Conditions(root=root))
    if total > 1:
        exclude(passed, "gpus", ("sharing", "rank"), "advisor finds one plan for several GPUs.")
        _export_of_all(advisor, members, terms, form, out, gres_name, only)
        return
    require(passed, "only", {"gpus": "--gpus of several models"})
    if sharing is None:
        conditions = confined(advisor.card, terms.conditions, whole=root)
        terms = replace(terms, conditions=conditions)
        members, prediction = _plan_to_export(advisor, members, terms, rank)
    else:
        prediction = advisor.predict(members, sharing).prediction
    text, notes = exported(members, advisor.card, prediction, form, gres_name)
    as_json = form == "json"
    refused = refused_by_run(members) if as_json else ()
    # The other formats leave variables to the user.
    workloads = [job.profile.workload for job in members]
    secrets = secrets_held(workloads, variables=as_json, text=text)
    warn([*notes, *secrets, *refused])
    _write(text, out, "" if refused or not as_json else f"advisor run {out}")


def _write(text: str, file: Path | None, run: str) -> None:
    """Write `text` to `file`, or to stdout; `run`: the command that prints what it would start."""
    from advisor.workload.writing import write_whole

    if file is None:
        show_text(text, end="")
        return
    write_whole(file, text)
    aside(f"{file}: written" + (f"; {run} prints what it would start" if run else ""))


def _export_of_all(
    advisor: "Advisor",
    jobs: "Sequence[Job]",
    terms: "FleetTerms",
    form: ExportFormat,
    out: Path | None,
    gres_name: str | None,
    only: str | None,
) -> None:
    """Write the plan that `recommend --gpus` finds, or its part on the GPU model `only`."""
    from advisor.hardware.gpus import gpu_meant
    from advisor.launch.commands import fleet_launch_plans
    from advisor.launch.exports import WHOLE, image_wanted
    from advisor.launch.launch_plan import NOT_RUN
    from advisor.launch.plan_file import left_out_by_run, refused_by_run
    from advisor.workload.spec import secrets_held

    if form not in WHOLE:
        raise InvalidInput(f"--format {form} is for one GPU: for several use {', '.join(WHOLE)}.")
    as_json = form == "json"
    plans = fleet_launch_plans(advisor.recommend_fleet(jobs, terms), gres_name)
    if only is not None:
        key, models = gpu_meant(only).key, ", ".join(dict.fromkeys(each.gpu.key for each in plans))
        plans = tuple(plan for plan in plans if plan.gpu.key == key)
        if not plans:
            raise InvalidInput(f"--only {only}: the plan uses {models}. Name one of these.")
    text = WHOLE[form](plans)
    warn(image_wanted(text))
    started = [start.job for plan in plans for start in plan.starts]
    left_out = left_out_by_run(started) if as_json else ()
    refused = refused_by_run(job for job in started if job.gpus == 1) if as_json else ()
    workloads = [job.profile.workload for job in started]
    secrets = secrets_held(workloads, variables=as_json, text=text)
    warn([*[NOT_RUN] * any(plan.on_mig for plan in plans), *secrets, *left_out, *refused])
    here = len({plan.host for plan in plans}) == len({plan.gpu for plan in plans}) == 1
    run = f"advisor run {out}" + ("" if here else " --ray auto")
    runs = as_json and not refused and any(job.gpus == 1 for job in started)
    _write(text, out, run if runs else "")


def _plan_to_export(
    advisor: "Advisor", jobs: "Sequence[Job]", terms: "FleetTerms", rank: int | None
) -> "tuple[Sequence[Job], MixPrediction]":
    """Return jobs and prediction of the plan with that `rank`, or the best."""
    from advisor.launch.plan_file import plan_of_rank
    from advisor.plan.rules import EXACT_JOBS, are_many

    if not are_many(len(jobs)):
        advised = advisor.rank(jobs, terms.objective, conditions=terms.conditions)
        return jobs, plan_of_rank(advised, rank or 1)
    if rank is None:
        (on,) = advisor.recommend_fleet(jobs, terms).on
        return on.members, on.forecast.prediction
    raise InvalidInput(
        f"--rank is for up to {EXACT_JOBS} jobs: `advisor recommend` finds one plan for more. "
        f"Leave --rank out."
    )
