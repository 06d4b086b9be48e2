"""``advisor recommend`` beyond one set of jobs on one GPU.

Many jobs or several GPUs, copies of one job, and jobs that join those that run.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advisor.cli.combinations import Given, check_additions, check_recommend
from advisor.cli.output import leave_out, show, show_json, show_text, warn
from advisor.english import with_article
from advisor.errors import InvalidInput

if TYPE_CHECKING:
    from advisor.api.advice import Sources
    from advisor.plan.admission import Running
    from advisor.plan.recommendation import Objective
    from advisor.plan.rules import Conditions
    from advisor.plan.search_terms import Terms
    from advisor.prediction.mix_prediction import Level
    from advisor.workload.job import Job

    ChosenJobs = Callable[
        [Sequence[str] | None, Path | None, str, Path | None, int], tuple[Job, ...]
    ]

_AUTO = ":auto"
_HURT = 0.05
# Where nobody asks when all is done.
_CHOSEN_BY = "throughput"


@dataclass(frozen=True, slots=True)
class Beside:
    """What a command line says of jobs that run already; None: nothing.

    Attributes:
        device: The GPU on which they run, or on which the plan is to run.
    """

    running: str | None
    sharing: str | None
    now: bool
    device: str
    hurt: float | None

    def __bool__(self) -> bool:
        return self.running is not None or self.now


@dataclass(frozen=True, slots=True)
class Shown:
    """How an answer is shown; `commands` is the rank of the plan whose commands are printed."""

    as_json: bool
    top: int
    commands: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a command line asks for; `words` name jobs, or nothing does."""

    words: Sequence[str] | None
    job_file: Path | None
    profiles: Path | None
    sources: "Sources"
    conditions: "Conditions"
    objective: "Objective"
    level: "Level"
    gpus: int
    limit_s: float
    beside: Beside
    shown: Shown
    given: Given

    @property
    def device(self) -> str | None:
        """The GPU that commands are for; None: the command line does not say."""
        return self.beside.device if "device" in self.given else None


def left_to_rank(asked: Asked, chosen_jobs: "ChosenJobs") -> "tuple[Job, ...] | None":
    """Answer what goes beyond one set of jobs on one GPU; else the jobs to rank plans of.

    Args:
        asked: All that the command line says.
        chosen_jobs: Finds the jobs.
    """
    from advisor.plan.search_terms import EXACT_JOBS, Terms

    gpu = asked.sources.card.key
    if name := _copies_of(asked):
        _refuse_auto_cap(asked, f"{name}{_AUTO}")
        _refuse_objective(asked, f"{name}{_AUTO}")
        _show_copies(name, asked)
        return None
    chosen = chosen_jobs(asked.words, asked.job_file, gpu, asked.profiles, asked.gpus)
    if asked.beside and (running := _what_runs(asked.beside, gpu, asked.profiles)):
        beside = "--now" if asked.beside.now else "--running"
        _refuse_auto_cap(asked, beside)
        _refuse_objective(asked, beside)
        check_additions(asked.given)
        _show_additions(running, chosen, asked)
        return None
    if asked.gpus == 1 and len(chosen) <= EXACT_JOBS:
        if "time_limit" in asked.given:
            raise InvalidInput(
                f"--time-limit is for more than {EXACT_JOBS} jobs, or several --gpus: fewer jobs "
                f"on one GPU are searched to the end. Leave it out."
            )
        return chosen
    terms = Terms(
        objective=asked.objective, gpus=asked.gpus, limit_s=asked.limit_s,
        conditions=asked.conditions, level=asked.level,
    )  # fmt: skip
    _show_spread(chosen, terms, asked)
    return None


def _check_shown(shown: Shown, given: Given) -> None:
    if shown.commands is not None and "top" in given and shown.commands > shown.top:
        raise InvalidInput(
            f"--commands {shown.commands} and --top {shown.top} do not go together: of so few "
            f"plans none has that rank."
        )


def _copies_of(asked: Asked) -> str | None:
    """The job of which the number of copies is asked; None where none is."""
    words = asked.words or ()
    auto = [word for word in words if word.endswith(_AUTO)]
    several = {} if asked.gpus > 1 else {"gpus"}
    given = {name: each for name, each in asked.given.items() if name not in several}
    _check_shown(asked.shown, given)
    check_recommend(given | ({"auto": auto[0]} if auto else {}))
    if not auto:
        return None
    if len(words) > 1:
        raise InvalidInput(f"{auto[0]}: how many copies pay is asked of one JOB, without others")
    return auto[0].removesuffix(_AUTO)


def _show_copies(name: str, asked: Asked) -> None:
    from advisor.api.advice import recommend_copies
    from advisor.report.copies_text import copies_document, copies_report
    from advisor.workload.job import parse_jobs

    job = parse_jobs([name], asked.sources.card.key, asked.profiles)[0]
    found = recommend_copies(job, asked.sources, asked.conditions, asked.level)
    warn(found.standing.stale)
    _show(copies_report(found), copies_document(found), asked.shown)


def _show_spread(jobs: "Sequence[Job]", terms: "Terms", asked: Asked) -> None:
    from advisor.api.advice import recommend_spread
    from advisor.report.fleet_text import spread_commands, spread_document, spread_report

    found = recommend_spread(jobs, asked.sources, terms)
    warn(found.standing.stale)
    if asked.shown.commands is not None:
        show_text(spread_commands(found, asked.shown.commands, asked.device))
    else:
        _show(spread_report(found), spread_document(found, asked.device), asked.shown)


def _show_additions(running: "Running", offered: "Sequence[Job]", asked: Asked) -> None:
    from advisor.api.advice import recommend_additions
    from advisor.plan.admission import Limits
    from advisor.report.admission_text import additions_document, additions_report

    hurt = _HURT if asked.beside.hurt is None else asked.beside.hurt
    limits = Limits(most_hurt=hurt, conditions=asked.conditions)
    found = recommend_additions(running, offered, asked.sources, limits)
    warn(found.standing.stale)
    top = asked.shown.top
    _show(additions_report(found, top), additions_document(found, top), asked.shown)


def _what_runs(asked: Beside, gpu: str, profiles: Path | None) -> "Running | None":
    """The jobs that run on the GPU; None where nothing does.

    Raises:
        InvalidInput: What is said of them cannot be.
        GpuUnavailable: ``--now`` asks a GPU that does not answer.
    """
    from advisor.plan.admission import Running
    from advisor.sharing import parse_sharing
    from advisor.workload.job import parse_jobs

    words = [word for word in (asked.running or "").split(",") if word]
    named = parse_jobs(words, gpu, profiles) if words else ()
    if not asked.now:
        return Running(jobs=named, sharing=parse_sharing(asked.sharing or "naive"))
    from advisor.hardware.live_gpu import live_gpu
    from advisor.plan.running_now import running_now
    from advisor.workload.store import load_profiles

    live = live_gpu(asked.device)
    if live.catalogue_key != gpu:
        raise InvalidInput(
            f"GPU {live.index} here is {with_article(live.product)}, and the profiles are of "
            f"{gpu}. Say --gpu {live.catalogue_key or 'KEY'}, or another --device."
        )
    known = load_profiles(gpu, profiles, leave_out)
    held_mib = {each.name: each.memory.device_mib for each in known.values()}
    found = running_now(live, named, {name: mib for name, mib in held_mib.items() if mib})
    if found is None:
        warn([f"nothing runs on GPU {live.index} now: all of it is free"])
    return found


def _refuse_auto_cap(asked: Asked, beside: str) -> None:
    if asked.conditions.power_caps:
        raise InvalidInput(
            f"--power-cap auto and {beside} do not go together: plans choose caps for jobs that "
            f"start together. Give watts."
        )


def _refuse_objective(asked: Asked, beside: str) -> None:
    if "objective" in asked.given and asked.objective != _CHOSEN_BY:
        raise InvalidInput(
            f"--objective {asked.objective} and {beside} do not go together: copies, and jobs that "
            f"join others, are chosen by the {_CHOSEN_BY}. Leave --objective out."
        )


def _show(report: Any, document: dict[str, Any], shown: Shown) -> None:
    if shown.as_json:
        show_json(document)
    else:
        show(report)
