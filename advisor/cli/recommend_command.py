"""``advisor recommend``: ranks the ways to share GPUs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from advisor.cli.options import AsJson, Files, Named, cap_w, given_in, grouped
from advisor.cli.output import leave_out, show, show_json, show_text, warn
from advisor.cli.recommend_checks import RecommendOptions
from advisor.cli.recommend_options import Gpus, Joining, Ranking, Shown
from advisor.cli.tracking_options import Mlflow, mlflow_log

if TYPE_CHECKING:
    from rich.console import RenderableType

    from advisor.plan.recommendation import Standing
    from advisor.plan.running_jobs import Running
    from advisor.workload.job import Job


@grouped
def recommend(
    context: typer.Context,
    named: Named,
    ranking: Ranking,
    shown: Shown,
    several: Gpus,
    joining: Joining,
    files: Files,
    as_json: AsJson = False,
    mlflow: Mlflow = None,
) -> None:
    """Rank the ways to share GPUs among the JOBs.

    Among the bundled ones where none is named. More than 8 jobs, or several GPUs: the best plan
    found in time. JOB:auto: how many copies of it fit, and how many pay. --running or --now: what
    may be added to what runs.
    """
    from advisor.workload.secret_names import secrets_held

    log = mlflow_log(mlflow)
    advisor = files.advisor(ranking.gpu, cap_w(ranking.power_cap))
    answer = _answer(
        RecommendOptions(advisor, named, ranking, shown, several, joining, given_in(context))
    )
    warn(answer.standing.doubts)
    leave_out(*answer.refused)
    if as_json or shown.commands is not None:  # commands leave variables to whoever runs them
        warn(secrets_held(answer.jobs, variables=shown.commands is None))
    if shown.commands is not None:
        show_text(answer.commands(shown.commands))
    elif as_json:
        show_json(answer.document())
    else:
        show(answer.report())
    if log is not None:
        log.plans(answer.document())


def _no_commands(_rank: int) -> str:
    raise AssertionError("--commands is refused where no plan has any")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """An answer in each form in which it can be shown; `jobs` are those that its plans start."""

    standing: "Standing"
    report: "Callable[[], RenderableType]"
    document: Callable[[], dict[str, Any]]
    commands: Callable[[int], str] = _no_commands
    refused: tuple[str, ...] = ()
    jobs: "Sequence[Job]" = ()


def _answer(asked: RecommendOptions) -> _Answer:
    """The answer to one of four questions, depending on the options."""
    from advisor.plan.rules import EXACT_JOBS

    asked.check()
    if asked.copied is not None:
        asked.check_copies()
        return _of_copies(asked, asked.copied)
    jobs = asked.protecting(asked.named.chosen(asked.advisor, asked.several.gpus))
    if asked.joining and (running := asked.joining.found(asked.advisor)):
        asked.check_additions()
        return _of_additions(asked, running, jobs)
    if asked.several.gpus == 1 and len(jobs) <= EXACT_JOBS:
        asked.check_searched_whole(EXACT_JOBS)
        return _of_one_gpu(asked, jobs)
    return _of_fleet(asked, jobs)


def _of_one_gpu(asked: RecommendOptions, jobs: "Sequence[Job]") -> _Answer:
    from advisor.launch.commands import with_commands
    from advisor.report.plan_tables import plan_commands, plans_report

    def document() -> dict[str, Any]:
        from advisor.report.documents import recommendation_document

        return recommendation_document(found, asked.shown.top)

    found = asked.advisor.recommend(
        jobs,
        asked.ranking.objective,
        conditions=asked.ranking.conditions,
        level=asked.ranking.level,
    )
    if asked.device is not None:
        found = with_commands(found, asked.device)
    return _Answer(
        standing=found.standing,
        report=lambda: plans_report(
            found, asked.shown.top if "top" in asked.given else None, details=asked.shown.details
        ),
        document=document,
        commands=lambda rank: plan_commands(found, rank),
        refused=found.refused_variants,
        jobs=jobs,
    )


def _of_copies(asked: RecommendOptions, name: str) -> _Answer:
    from advisor.report.copies_text import copies_document, copies_report

    job = asked.advisor.chosen_jobs([name])[0]
    found = asked.advisor.recommend_copies(job, asked.ranking.conditions, asked.ranking.level)
    return _Answer(
        standing=found.standing,
        report=lambda: copies_report(found, details=asked.shown.details),
        document=lambda: copies_document(found),
    )


def _of_fleet(asked: RecommendOptions, jobs: "Sequence[Job]") -> _Answer:
    from advisor.plan.fleet_terms import FleetTerms
    from advisor.report.fleet_document import fleet_commands, fleet_document
    from advisor.report.fleet_text import fleet_report

    by = asked.ranking
    terms = FleetTerms(
        objective=by.objective, gpus=asked.several.gpus, limit_s=asked.several.time_limit,
        conditions=by.conditions, level=by.level,
    )  # fmt: skip
    found = asked.advisor.recommend_fleet(jobs, terms)
    return _Answer(
        standing=found.standing,
        report=lambda: fleet_report(found, details=asked.shown.details),
        document=lambda: fleet_document(found, asked.device),
        commands=lambda rank: fleet_commands(found, rank, asked.device),
        jobs=jobs,
    )


def _of_additions(asked: RecommendOptions, running: "Running", jobs: "Sequence[Job]") -> _Answer:
    from advisor.plan.admission import AdmissionLimits
    from advisor.report.additions_text import additions_document, additions_report

    hurt = {} if asked.joining.hurt is None else {"most_hurt": asked.joining.hurt}
    limits = AdmissionLimits(**hurt, conditions=asked.ranking.conditions)
    found = asked.advisor.admit(running, jobs, limits)
    return _Answer(
        standing=found.standing,
        report=lambda: additions_report(found, asked.shown.top),
        document=lambda: additions_document(found, asked.shown.top),
    )
