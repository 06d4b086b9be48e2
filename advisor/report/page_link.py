"""The question on the page as parameters of its address, so that a link repeats it."""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import isfinite
from typing import Any, get_args
from urllib.parse import quote, unquote

from advisor.errors import AdvisorError
from advisor.plan import MOST_GPUS
from advisor.plan.rules import UNCONDITIONAL, Conditions
from advisor.prediction.interval import Level
from advisor.report.page_jobs import WantedJob
from advisor.sharing import parse_sharing
from advisor.timeline import Policy
from advisor.workload.job_count import MAX_JOBS

_MOST_WATTS, _MOST_HURT, _MOST_EUR = 1e6, 1e3, 1e6
# What is shown of a link that anybody may have written; nothing in it is markup in code quotes.
_PLAIN = "/ (),+"
_NAME = re.compile(r"[^`\x00-\x1f\x7f]{1,200}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkedQuestion:
    """What a link asks; None or empty where it leaves the choice to the page.

    Attributes:
        cap_w: Power cap, watts.
        plan: Name of the plan that is shown, as of `plan_name`; None: the best.
        trials: Job of whose copies trials are asked for.
        files: Names of files that were handed in; links do not contain them.
        question: Title of the further question that is open; None: the first.
        gpus: Number of equal GPUs.
        policy: Policy of the queue of these GPUs; None: a plan is searched.
        view: Title of the view of the plan that is open; None: the first.
        beside: Name of the plan to compare with; None: the best of the others.
        form: Format in which the plan is exported; None: the first.
        running: Row numbers, from 1, of the jobs that run already.
        running_sharing: How the running jobs share the GPU.
        hurt: Largest share by which a step of a running job may get longer.
        added: Names of the shown set of jobs to add.
        sharing: How each GPU that the queue feeds is shared.
        at_once: Most jobs at once on each of these GPUs.
        price: EUR for an hour of one of these GPUs.
    """

    gpu: str | None = None
    objective: str | None = None
    jobs: tuple[WantedJob, ...] = ()
    cap_w: float | None = None
    conditions: Conditions = UNCONDITIONAL
    level: Level = "p50"
    plan: str | None = None
    trials: str | None = None
    files: tuple[str, ...] = ()
    question: str | None = None
    gpus: int | None = None
    policy: Policy | None = None
    view: str | None = None
    beside: str | None = None
    form: str | None = None
    running: tuple[int, ...] = ()
    running_sharing: str | None = None
    hurt: float | None = None
    added: str | None = None
    sharing: str | None = None
    at_once: int | None = None
    price: float | None = None


def parameters(asked: LinkedQuestion) -> dict[str, str | list[str]]:
    """`asked` as parameters; each job is ``NAME:COPIES:EPOCHS``, then what else is said of it.

    These are any of ``:batch=N``, ``:user=NAME``, ``:due=MINUTES`` and ``:isolated``. Conditions
    have the names of the options of ``advisor recommend``; defaults are left out.
    """
    found: dict[str, str | list[str]] = {"job": [_written(each) for each in asked.jobs]}
    under = asked.conditions
    given = {
        "gpu": asked.gpu,
        "objective": asked.objective,
        "power-cap": _AUTO if under.power_caps else asked.cap_w and f"{asked.cap_w:.12g}",
        "memory-margin": under.memory_margin and f"{under.memory_margin:.12g}",
        "root": None if under.root else _NO,
        "pessimistic": _YES if asked.level == "p95" else None,
        "plan": asked.plan,
        "file": list(asked.files),
    }
    return found | {name: value for name, value in (given | _looked_at(asked)).items() if value}


def _looked_at(asked: LinkedQuestion) -> dict[str, str | None]:
    """Parameters of the open view and the open further question."""
    return {
        "view": asked.view,
        "beside": asked.beside,
        "form": asked.form,
        "question": asked.question,
        "trials": asked.trials,
        "running": ",".join(map(str, asked.running)),
        "running-sharing": _sharing(asked.running_sharing),
        "hurt": _written_number(asked.hurt),
        "added": asked.added,
        "gpus": _written_number(asked.gpus),
        "policy": asked.policy,
        "sharing": _sharing(asked.sharing),
        "at-once": _written_number(asked.at_once),
        "price": _written_number(asked.price),
    }


_AUTO, _NO, _YES = "auto", "no", "yes"


def linked_question(found: Mapping[str, Sequence[str]]) -> LinkedQuestion:
    """The question of the parameters `found`; values that make no sense are ignored."""
    first = {name: values[0] for name, values in found.items() if values}
    jobs = [_read(text) for text in found.get("job", ())[:MAX_JOBS]]
    cap = first.get("power-cap", "")
    return LinkedQuestion(
        gpu=first.get("gpu"),
        objective=first.get("objective"),
        jobs=tuple(each for each in jobs if each is not None),
        cap_w=_number(cap, lambda watts: 0 < watts <= _MOST_WATTS),
        conditions=Conditions(
            root=first.get("root") != _NO,
            memory_margin=_number(first.get("memory-margin", ""), lambda each: 0 <= each < 1) or 0,
            power_caps=cap == _AUTO,
        ),
        level="p95" if first.get("pessimistic") == _YES else "p50",
        plan=first.get("plan"),
        files=tuple(filter(_NAME.fullmatch, found.get("file", ())[:MAX_JOBS])),
        **_linked_view({name: text for name, text in first.items() if _NAME.fullmatch(text)}),
    )


def _written_number(number: float | None) -> str | None:
    return None if number is None else f"{number:.12g}"


def _linked_view(first: Mapping[str, str]) -> dict[str, Any]:
    """The fields of `LinkedQuestion` that `_looked_at` writes."""
    words = {name: first.get(name) for name in ("view", "beside", "form", "question", "trials")}
    places = [_whole(each, MAX_JOBS) for each in first.get("running", "").split(",")]
    return words | {
        "running": tuple(each for each in places if each is not None),
        "running_sharing": _sharing(first.get("running-sharing")),
        "hurt": _number(first.get("hurt", ""), lambda each: 0 <= each <= _MOST_HURT),
        "added": first.get("added"),
        "gpus": _whole(first.get("gpus", ""), MOST_GPUS),
        "policy": next((each for each in get_args(Policy) if each == first.get("policy")), None),
        "sharing": _sharing(first.get("sharing")),
        "at_once": _whole(first.get("at-once", ""), MAX_JOBS),
        "price": _number(first.get("price", ""), lambda each: 0 <= each <= _MOST_EUR),
    }


def _sharing(text: str | None) -> str | None:
    """`text` if it is the notation of a sharing, else None."""
    with suppress(AdvisorError):
        return text and str(parse_sharing(text)) and text
    return None


def _whole(text: str, most: int) -> int | None:
    """`text` as a whole number from 1 to `most`; None if it is none."""
    number = _number(text, lambda each: each in range(1, most + 1))
    return None if number is None else int(number)


def _number(text: str, possible: Callable[[float], bool]) -> float | None:
    """`text` as a number that is `possible`; None if it is none."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if possible(number) else None


def _written(job: WantedJob) -> str:
    words = [quote(job.name, safe=_PLAIN), str(job.copies), f"{job.epochs:g}"]
    if job.batch is not None:
        words.append(f"batch={job.batch}")
    if job.user is not None:
        words.append(f"user={quote(job.user, safe='')}")
    if job.deadline_min is not None:
        words.append(f"due={job.deadline_min:g}")
    return ":".join([*words, "isolated"] if job.isolated else words)


def _read(text: str) -> WantedJob | None:
    name, *words = map(unquote, text.split(":"))
    said = dict(each.partition("=")[::2] for each in words[2:])
    if not _NAME.fullmatch(name) or said.keys() - {"batch", "user", "due", "isolated"}:
        return None
    numbers = [*words[:2], *("1", "1")[len(words) :], said.get("batch", "1"), said.get("due", "1")]
    copies, epochs, batch, due = (_number(each, _positive) for each in numbers)
    if copies is None or epochs is None or batch is None or due is None:
        return None
    if not 1 <= copies <= MAX_JOBS or not 0.1 <= epochs <= 1e6 or copies % 1 or batch % 1:
        return None
    return WantedJob(
        name, int(copies), epochs, int(batch) if "batch" in said else None,
        said.get("user"), due if "due" in said else None,
        isolated="isolated" in said,
    )  # fmt: skip


def _positive(number: float) -> bool:
    return isfinite(number) and number > 0
