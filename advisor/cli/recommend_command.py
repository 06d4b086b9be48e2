"""``advisor recommend``."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from advisor.cli.combinations import (
    Given,
    check_additions,
    check_alone,
    check_ranks,
    check_recommend,
    check_searched_whole,
    check_work,
    given_in,
)
from advisor.cli.options import (
    AsJson,
    Files,
    Named,
    cap_w,
    grouped,
)
from advisor.cli.output import leave_out, show, show_json, show_text, warn
from advisor.cli.recommend_options import Gpus, Joining, Ranking, Shown

if TYPE_CHECKING:
    from rich.console import RenderableType

    from advisor.api import Advisor
    from advisor.plan.machine import Running
    from advisor.plan.recommendation import Standing
    from advisor.plan.rules import Conditions
    from advisor.workload.job import Job

_COPIES = ":auto"


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
) -> None:
    """Rank the ways to share GPUs among the JOBs; the bundled ones where none is named.

    More than 8 jobs, or several GPUs: the best plan found in time. JOB:auto: how many copies of it
    fit, and how many pay. --running or --now: what may be added to what runs.
    """
    advisor = files.advisor(ranking.gpu, cap_w(ranking.power_cap))
    asked = _Asked(
        advisor, named, ranking, shown, several, joining, ranking.conditions, given_in(context)
    )
    answer = _answer(asked)
    warn(answer.standing.stale)
    leave_out(*answer.refused)
    if shown.commands is not None:
        show_text(answer.commands(shown.commands))
    elif as_json:
        show_json(answer.document())
    else:
        show(answer.report())


@dataclass(frozen=True, slots=True)
class _Asked:
    """All that the command line says; `given` is what it says itself, without defaults."""

    advisor: "Advisor"
    named: Named
    ranking: Ranking
    shown: Shown
    several: Gpus
    joining: Joining
    conditions: "Conditions"
    given: Given

    @property
    def device(self) -> str | None:
        """The GPU that commands are for; None: the command line does not say."""
        return self.joining.device if "device" in self.given else None


def _no_commands(_rank: int) -> str:
    raise AssertionError("--commands is refused where no plan has any")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """What was found, in each of the forms that it can be shown in."""

    standing: "Standing"
    report: "Callable[[], RenderableType]"
    document: Callable[[], dict[str, Any]]
    commands: Callable[[int], str] = _no_commands
    refused: tuple[str, ...] = ()


def _answer(asked: _Asked) -> _Answer:
    """The answer to the question that the words ask: one of four."""
    from advisor.plan.rules import EXACT_JOBS

    given, names = asked.given, asked.named.jobs or []
    copied = [name for name in names if name.endswith(_COPIES)]
    check_ranks(given, asked.shown.top, asked.shown.commands)
    check_recommend(given, copied[0] if copied else None, asked.several.gpus)
    if copied:
        check_alone(copied[0], names)
        check_work(given, copied[0], asked.ranking.power_cap, asked.ranking.objective)
        return _of_copies(asked, copied[0].removesuffix(_COPIES))
    jobs = asked.named.chosen(asked.advisor, asked.several.gpus)
    if asked.joining and (running := asked.joining.found(asked.advisor)):
        runs = "--now" if asked.joining.now else "--running"
        check_work(given, runs, asked.ranking.power_cap, asked.ranking.objective)
        check_additions(given)
        return _of_additions(asked, running, jobs)
    if asked.several.gpus == 1 and len(jobs) <= EXACT_JOBS:
        check_searched_whole(given, EXACT_JOBS)
        return _of_one_gpu(asked, jobs)
    return _of_fleet(asked, jobs)


def _of_one_gpu(asked: _Asked, jobs: "Sequence[Job]") -> _Answer:
    from advisor.launch.commands import with_commands
    from advisor.report.plan_tables import plan_commands, plans_report

    def document() -> dict[str, Any]:
        from advisor.report.documents import recommendation_document

        return recommendation_document(found, asked.shown.top)

    found = asked.advisor.recommend(
        jobs, asked.ranking.objective, conditions=asked.conditions, level=asked.ranking.level
    )
    if asked.device is not None:
        found = with_commands(found, asked.device)
    return _Answer(
        standing=found.standing,
        report=lambda: plans_report(found, asked.shown.top),
        document=document,
        commands=lambda rank: plan_commands(found, rank),
        refused=found.refused_variants,
    )


def _of_copies(asked: _Asked, name: str) -> _Answer:
    from advisor.report.copies_text import copies_document, copies_report

    job = asked.advisor.chosen_jobs([name])[0]
    found = asked.advisor.recommend_copies(job, asked.conditions, asked.ranking.level)
    return _Answer(
        standing=found.standing,
        report=lambda: copies_report(found),
        document=lambda: copies_document(found),
    )


def _of_fleet(asked: _Asked, jobs: "Sequence[Job]") -> _Answer:
    from advisor.plan.fleet_plan import FleetTerms
    from advisor.report.fleet_text import fleet_commands, fleet_document, fleet_report

    terms = FleetTerms(
        objective=asked.ranking.objective, gpus=asked.several.gpus,
        limit_s=asked.several.time_limit, conditions=asked.conditions, level=asked.ranking.level,
    )  # fmt: skip
    found = asked.advisor.recommend_fleet(jobs, terms)
    return _Answer(
        standing=found.standing,
        report=lambda: fleet_report(found),
        document=lambda: fleet_document(found, asked.device),
        commands=lambda rank: fleet_commands(found, rank, asked.device),
    )


def _of_additions(asked: _Asked, running: "Running", jobs: "Sequence[Job]") -> _Answer:
    from advisor.plan.admission import AdmissionLimits
    from advisor.report.admission_text import additions_document, additions_report

    hurt = {} if asked.joining.hurt is None else {"most_hurt": asked.joining.hurt}
    limits = AdmissionLimits(**hurt, conditions=asked.conditions)
    found = asked.advisor.admit(running, jobs, limits)
    return _Answer(
        standing=found.standing,
        report=lambda: additions_report(found, asked.shown.top),
        document=lambda: additions_document(found, asked.shown.top),
    )
