"""Commands that run plans: ``advisor run`` and ``stop``."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from typer import Argument, Context, Exit

from advisor.cli import options
from advisor.cli.options import flag, option
from advisor.cli.output import aside, live, show_answer, show_text
from advisor.cli.question import Sources, exclude, mlflow_log, on_checked_host, require
from advisor.errors import InvalidInput, require_extra
from advisor.files.reading import is_file
from advisor.sharing.groups import most_at_once

if TYPE_CHECKING:
    from advisor.api import Advisor
    from advisor.launch.launch_plan import LaunchPlan
    from advisor.launch.plan_file import SavedPlan
    from advisor.run.mlflow import MlflowLog
    from advisor.run.watch import RunMetrics, Watcher
    from advisor.run.watched import WatchedRun


def run(
    context: Context,
    plan: str | None = Argument(
        None,
        metavar="PLAN|RUN",
        autocompletion=options.complete_plan,
        help="Run the plan in this JSON file of `export` or `recommend`, or watch this run again.",
    ),
    apply: bool = flag("Start the jobs; default: print the script.", "--apply"),
    list_runs: bool = flag("List the runs and exit.", "--list"),
    rank: options.Rank = 1,
    device: str | None = option(
        "LIST",
        "Use these GPUs, by index or UUID, e.g. 0,2-3, or cpu to try it out; default: as planned.",
    ),
    ray: options.Ray = None,
    steps: int | None = option("N", "End each bundled workload after N steps.", min=1),
    cores: options.Cores = None,
    replace_instances: bool = flag(
        "Replace idle MIG instances until the end of the run.", "--replace-instances"
    ),
    time_limit: float | None = option("SECONDS", "End the run after this time; default: never."),
    grace: float = option("SECONDS", "Kill a job this long after asking it to end.", default=30.0),
    patience: float | None = option(
        "SECONDS", "End a job without a step for this long; default: never."
    ),
    *,
    sources: Sources,
    check_host: options.CheckHost = True,
    mlflow: options.Mlflow = None,
    metrics: str | None = option(
        "[HOST:]PORT",
        "Serve metrics for Prometheus, e.g. on 0.0.0.0:9400; with a PORT alone, to this host only.",
    ),
    as_json: options.AsJson = False,
) -> None:
    """Run a PLAN, or watch a RUN again.

    `run` starts the script that `export` writes, one for each GPU of the plan. Ctrl-C ends the
    jobs. The jobs go on if this command is killed or its terminal closes. `fit` uses the measured
    steps.
    """
    from advisor.launch.plan_file import prepare, read_plans
    from advisor.run.start import StartTerms, devices_for, rehearse, started, without_gangs
    from advisor.run.watch import ListedRuns, Watcher, find_run, listed_runs

    if list_runs:
        listed = ListedRuns(tuple(listed_runs()))
        show_answer(listed, as_json, lambda it: "\n".join(map(str, it.runs)) or "no runs")
        return
    require(context, "as_json", "list_runs")
    why = "the jobs run on the nodes of the cluster."
    exclude(context, "ray", "cores", "check_host", "metrics", why=why)
    if plan is None:
        raise InvalidInput("expected a PLAN or a RUN. `advisor run --list` lists runs.")
    log, served = mlflow_log(mlflow), None if metrics is None else _served(context, metrics)
    if not (plan.endswith(".json") or is_file(Path(plan))):
        _watch([Watcher(find_run(plan), aside, time_limit, patience)], log, served)
    advisor_of = cache(sources.advisor)

    def prepared(saved: "SavedPlan", advisor: "Advisor | None" = None) -> "LaunchPlan":
        advisor = advisor or advisor_of(saved.gpu, saved.power_cap_w)
        return prepare(saved, advisor.card, advisor.predict(saved.jobs, saved.sharing).prediction)

    planned = without_gangs(read_plans(Path(plan), sources.profiles, rank=rank), aside)
    terms = StartTerms(
        cores=cores,
        steps=steps,
        replace_instances=replace_instances,
        grace_s=grace,
        tied=ray is not None,
        deadline_s=time_limit,
        patience_s=patience,
    )
    if ray is not None:
        from advisor.measure.runners import connect
        from advisor.run.on_ray import RayRun

        on_ray = RayRun(connect(ray), planned, prepared, terms, device, aside)
        if apply:
            with live() as show:
                raise Exit(on_ray.to_the_end(show, None if log is None else log.run))
        show_text(str(on_ray))
    else:
        devices = devices_for(planned, device)
        advisors = [advisor_of(each.gpu, each.power_cap_w) for each in planned]
        if apply:
            advisors = _on_checked_host(advisors, planned, check_host)
        launches = list(map(prepared, planned, advisors))
        if apply:
            with started(launches, devices, terms, aside) as folders:
                _watch(
                    [Watcher(each, aside, time_limit, patience) for each in folders], log, served
                )
        for launch, name in zip(launches, devices, strict=True):
            show_text(rehearse(launch, name, terms), end="")
    aside("no job was started. Add --apply to start.")


def _served(context: Context, address: str) -> "RunMetrics":
    """Serve metrics until the command ends, and return what to show runs to."""
    from advisor.run.watch import serving

    require_extra("`--metrics`", "metrics", "prometheus_client")
    url, metrics = context.with_resource(serving(address))
    aside(f"metrics: {url}")
    return metrics


def _watch(
    watchers: "Sequence[Watcher]", log: "MlflowLog | None", served: "RunMetrics | None"
) -> NoReturn:
    from advisor.run.watch import watch

    with live() as show:

        def show_and_serve(runs: "Sequence[WatchedRun]") -> None:
            show(runs)
            if served is not None:
                served.show(runs)

        code = watch(watchers, say=aside, show=show_and_serve, log=None if log is None else log.run)
    raise Exit(code)


def _on_checked_host(
    advisors: "Sequence[Advisor]", planned: "Sequence[SavedPlan]", check: bool | None
) -> "list[Advisor]":
    """Return `advisors` after one check of the host with all jobs that run at once."""
    from advisor.report.forecast import host_note

    jobs = [job for plan in planned for job in plan.jobs]
    at_once = sum(most_at_once(each.sharing, len(each.jobs)) for each in planned)
    checked = on_checked_host(advisors[0], jobs, check, at_once)
    aside(host_note(checked.standing(planned[0].jobs)))
    return [replace(each, host_check=checked.host_check) for each in advisors]


def stop(
    named: str | None = Argument(
        None, metavar="RUN", help="Name of the run; default: the only one."
    ),
    job: int | None = option("N", "End only job number N.", min=1),
) -> None:
    """End a run, or one job of it.

    The run's script ends the jobs, then puts back MPS daemons, MIG instances and power cap.
    """
    from advisor.run.start import stop as stop_run
    from advisor.run.watch import find_run

    stop_run(find_run(named), job, aside)
