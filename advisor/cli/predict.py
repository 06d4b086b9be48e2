"""Commands on given plans, and on jobs over time: ``predict``, ``compare`` and ``simulate``."""

from pathlib import Path
from typing import TYPE_CHECKING, get_args

from typer import Argument, Context, Exit, Option

from advisor.cli import options
from advisor.cli.options import option
from advisor.cli.output import show_answer
from advisor.cli.question import (
    Sources,
    chosen_jobs,
    confined,
    counted_gpus,
    exclude,
    on_checked_host,
    passed,
    protected_jobs,
    require,
)
from advisor.errors import InvalidInput, NothingFits
from advisor.files.writing import write_whole
from advisor.hardware import DEFAULT_GPU
from advisor.sharing.groups import orders_jobs, places_named
from advisor.simulation import PREEMPTION_S, ROUND_S, Policy, RoundPolicy

if TYPE_CHECKING:
    from advisor.plan.forecast import OverTime
    from advisor.sharing import Sharing


def predict(
    sharing: str = option(
        "SHARING",
        "Share the GPU in this way: serial, naive, mps, mps=43,57, mig=3g.71gb,4g.71gb; with the "
        "jobs' numbers mig=4g.71gb[1]+3g.71gb[2,3]/mps=50,50, mig=7g.141gb/ci=3c[1]+4c[2], or in "
        "turn naive[1,2];mps[3]. A queue of at most 2 at once: mps/2, or in an order mps/2[3,1,2].",
        default="mps",
    ),
    jobs: options.Jobs = None,
    job_file: options.JobFile = None,
    gpu: options.GpuKey = DEFAULT_GPU,
    power_cap: options.PowerCap = None,
    share_loader: options.ShareLoader = False,
    *,
    sources: Sources,
    check_host: options.CheckHost = None,
    as_json: options.AsJson = False,
) -> None:
    """Predict pace, memory and power of the JOBs under one sharing."""
    from advisor.report.forecast import forecast_report

    advisor = sources.advisor(gpu, power_cap, share_loader=share_loader)
    members = chosen_jobs(advisor, jobs, job_file)
    advisor = on_checked_host(advisor, members, check_host)
    forecast = advisor.predict(members, sharing)
    show_answer(forecast, as_json, forecast_report)
    if not forecast.fits:
        raise Exit(NothingFits.exit_code)


def compare(
    context: Context,
    words: list[str] = Argument(
        ...,
        metavar="PLAN PLAN... JOB...",
        show_default=False,
        autocompletion=options.complete_plan_or_job,
        help="Two PLANs or more, then the JOBs, as for `predict`. A PLAN is a sharing, as for "
        "`predict --sharing`, or a FILE.json of `export`. The first one is the baseline.",
    ),
    job_file: options.JobFile = None,
    gpu: options.GpuKey = DEFAULT_GPU,
    objective: options.Objective = "makespan",
    power_cap: options.PowerCap = None,
    share_loader: options.ShareLoader = False,
    *,
    sources: Sources,
    as_json: options.AsJson = False,
    csv_file: options.Csv = None,
) -> None:
    """Compare two PLANs or more for the JOBs.

    The answer has time, gain, energy and memory of each plan, and the slowdown of each job, with
    the resource that limits it.

    For example: advisor compare naive mps mps=43,57 resnet50-imagenet64-bs128:2

    With a power cap: advisor compare mps mps resnet50-imagenet64-bs128:2 --power-cap 400
    """
    from advisor.launch.plan_file import SavedPlan, check_gpu_of_plan, check_same_jobs, read_plan
    from advisor.report.comparison import comparison_csv, comparison_report

    named, jobs = options.plans_and_jobs(words)
    if len(named) < 2:
        raise InvalidInput(
            "expected two PLANs or more before the JOBs, as: advisor compare naive mps JOB"
        )
    plans = [
        read_plan(Path(word), sources.profiles) if word.endswith(".json") else word
        for word in named
    ]
    saved = [plan for plan in plans if isinstance(plan, SavedPlan)]
    if saved:
        if jobs or job_file:
            raise InvalidInput("a plan file has its own jobs. Leave out JOBs and --jobs.")
        if power_cap and len(saved) == len(plans) and all(plan.power_cap_w for plan in saved):
            raise InvalidInput("the plans have power caps of their own. Leave out --power-cap.")
        planned = check_same_jobs(saved)
        check_gpu_of_plan(gpu if passed(context, "gpu") else None, planned.gpu, "the file")
        gpu = planned.gpu
    advisor = sources.advisor(gpu, power_cap, share_loader=share_loader)
    members = saved[0].jobs if saved else chosen_jobs(advisor, jobs, job_file)
    comparison = advisor.compare(plans, members, objective)
    if csv_file is not None:
        write_whole(csv_file, comparison_csv(comparison))
    show_answer(comparison, as_json, comparison_report)
    if all(each.forbidden for each in comparison.plans):
        raise Exit(NothingFits.exit_code)


# Default of `--at-once` for jobs that arrive over time: more are rarely faster.
_AT_ONCE_IN_TRACES = 4


def simulate(
    context: Context,
    jobs: options.Jobs = None,
    job_file: options.JobFile = None,
    trace_in: Path | None = option(
        "CSV", "Read jobs that arrive over time from this table: arrival_s,job,..."
    ),
    plan: Path | None = option(
        "FILE",
        "Read jobs and sharing from this file, which `export --format json` wrote.",
        autocompletion=options.complete_plan,
    ),
    sharing: str = option(
        "SHARING",
        "Share each GPU in this way, as for `predict`; the next job starts in the first free "
        "place. mig: a GPU without a job chooses the MIG layout for the jobs that wait.",
        default="mps",
    ),
    gpu: options.GpuKey = DEFAULT_GPU,
    gpus: options.Gpus = "1",
    policy: Policy = Option(
        "first-come",
        case_sensitive=False,
        help="Start jobs by this rule; best-fit: first the job that adds most work. Or share GPUs "
        "in rounds; max-min: equal GPU time; finish-time: first the job that is latest "
        "against an equal part of the GPUs; least-attained: first the job with least GPU "
        "time.",
    ),
    round_s: float = option(
        "SECONDS",
        "Set the length of a round, after which the policy decides again.",
        "--round",
        default=ROUND_S,
    ),
    preemption: float = option(
        "SECONDS",
        "Set the time that a job loses when a round stops it and a later one starts it.",
        default=PREEMPTION_S,
    ),
    at_once: int | None = option(
        "N", "Run at most N jobs on a GPU at once; default: all; for a trace: 4.", min=1
    ),
    price: float | None = option("EUR_PER_GPU_HOUR", "Print costs at this price of a GPU-hour."),
    timeline: Path | None = option(
        "FILE", "Write a timeline for ui.perfetto.dev to this file.", parser=options.to_write
    ),
    kernels: bool = Option(
        False, help="Add the first replayed kernels of the mix to the timeline."
    ),
    root: options.Root = True,
    memory_margin: options.MemoryMargin = 0.0,
    protect: options.Protect = None,
    max_slowdown: options.MaxSlowdown = None,
    power_cap: options.PowerCap = None,
    *,
    sources: Sources,
    check_host: options.CheckHost = None,
    as_json: options.AsJson = False,
    csv_file: Path | None = option(
        "FILE", "Also write a row for each job to this file.", "--csv", parser=options.to_write
    ),
    plot: Path | None = option(
        "FILE",
        "Also draw the jobs of each GPU over time, to FILE.svg or FILE.png.",
        parser=options.picture,
    ),
) -> None:
    """Simulate the JOBs until the last one ends.

    The answer has times, GPU activity, memory, energy and costs, and the savings compared with one
    job on each GPU.
    """
    from advisor.launch.plan_file import check_gpu_of_plan, read_plan
    from advisor.plan.rules import Conditions
    from advisor.report.simulation import simulation_report, trace_text
    from advisor.simulation.simulate import MOST_SIMULATED, Fleet
    from advisor.workload.arrivals import read_arrivals
    from advisor.workload.job import Arrival

    total, gpu = counted_gpus(gpus, gpu, context, MOST_SIMULATED)
    require(context, "kernels", "timeline")
    require(context, "max_slowdown", "protect")
    why = "name jobs in one way only."
    exclude(context, "trace_in", "jobs", "job_file", why=why)
    exclude(context, "plan", "jobs", "job_file", "trace_in", why=why)
    exclude(context, "plan", "sharing", why="the plan has its own sharing.")
    planned = read_plan(plan, sources.profiles) if plan else None
    if planned:
        named = gpu if passed(context, "gpu") or ":" in gpus else None
        check_gpu_of_plan(named, planned.gpu, str(plan))
        gpu, sharing = planned.gpu, str(planned.sharing)
        power_cap = power_cap or planned.power_cap_w
    advisor = sources.advisor(gpu, power_cap)
    arrivals = (
        read_arrivals(trace_in, advisor.find_profile)
        if trace_in
        else tuple(
            map(Arrival, planned.jobs if planned else chosen_jobs(advisor, jobs, job_file, total))
        )
    )
    members = protected_jobs([each.job for each in arrivals], protect, max_slowdown)
    arrivals = tuple(map(Arrival, members, [each.arrival_s for each in arrivals]))
    advisor = on_checked_host(advisor, members, check_host)
    mode = advisor.read_sharing(sharing, over_time=True)
    _check_queue(context, mode, at_once, policy)
    fleet = Fleet(advisor.card.key, gpus, policy, price, round_s, preemption)
    if trace_in and mode.mode != "queue":  # which has a number of its own
        at_once = at_once or _AT_ONCE_IN_TRACES
    conditions = confined(
        advisor.card, Conditions(root=root, memory_margin=memory_margin), whole=root
    )
    simulated = advisor.simulate(arrivals, mode, fleet, at_once=at_once, conditions=conditions)
    if timeline:
        replayed = advisor.first_kernels(simulated.simulation) if kernels else ()
        write_whole(timeline, trace_text(simulated.simulation, replayed))
    _write_jobs(simulated, csv_file, plot)
    show_answer(simulated, as_json, simulation_report)


def _write_jobs(simulated: "OverTime", csv_file: Path | None, plot: Path | None) -> None:
    """Write the simulated jobs as a table and as a picture, to the files that are named."""
    from advisor.report.simulation import jobs_csv

    if csv_file is not None:
        write_whole(csv_file, jobs_csv(simulated.simulation))
    if plot is not None:
        from advisor.report.time_charts import simulation_picture

        write_whole(plot, simulation_picture(simulated, plot.suffix))


def _check_queue(context: Context, sharing: "Sharing", at_once: int | None, policy: Policy) -> None:
    """Check that the options of the queue do not contradict what `sharing` itself fixes."""
    places = places_named(sharing)
    if at_once is not None and places > at_once:
        raise InvalidInput(
            f"--sharing {sharing} and --at-once {at_once} exclude each other: the sharing has "
            f"{places} jobs at once."
        )
    in_rounds = get_args(RoundPolicy)
    if policy not in in_rounds and passed(context, "round_s", "preemption"):
        raise InvalidInput(
            f"--round and --preemption are for the policies {', '.join(in_rounds)}, not {policy}."
        )
    if passed(context, "policy") and orders_jobs(sharing):
        raise InvalidInput(
            f"--sharing {sharing} and --policy {policy} exclude each other: the sharing orders the "
            f"jobs."
        )
