"""What is asked on the page as the parameters of its address, so that a link asks it again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from urllib.parse import quote, unquote

from advisor.report.page_jobs import WantedJob
from advisor.workload.job import MAX_JOBS


@dataclass(frozen=True, slots=True)
class LinkedQuestion:
    """What a link asks; None and empty where it leaves that to the page."""

    gpu: str | None = None
    objective: str | None = None
    jobs: tuple[WantedJob, ...] = ()


def parameters(asked: LinkedQuestion) -> dict[str, str | list[str]]:
    """`asked` as parameters; each job is ``NAME:COPIES:EPOCHS``, then what else is said of it.

    That is any of ``:batch=N``, ``:user=NAME``, ``:due=MINUTES`` and ``:isolated``.
    """
    found: dict[str, str | list[str]] = {"job": [_written(each) for each in asked.jobs]}
    given = {"gpu": asked.gpu, "objective": asked.objective}
    return found | {name: value for name, value in given.items() if value}


def linked_question(found: Mapping[str, Sequence[str]]) -> LinkedQuestion:
    """What `found`, all values of each parameter, ask; what nobody can have meant is left out."""
    first = {name: values[0] for name, values in found.items() if values}
    jobs = [_read(text) for text in found.get("job", ())[:MAX_JOBS]]
    sound = tuple(each for each in jobs if each is not None)
    return LinkedQuestion(first.get("gpu"), first.get("objective"), sound)


def _written(job: WantedJob) -> str:
    words = [job.name, str(job.copies), f"{job.epochs:g}"]
    if job.batch is not None:
        words.append(f"batch={job.batch}")
    if job.user is not None:
        words.append(f"user={quote(job.user, safe='')}")
    if job.deadline_min is not None:
        words.append(f"due={job.deadline_min:g}")
    return ":".join([*words, "isolated"] if job.isolated else words)


def _read(text: str) -> WantedJob | None:
    name, *words = text.split(":")
    said = dict(each.partition("=")[::2] for each in words[2:])
    if said.keys() - {"batch", "user", "due", "isolated"}:
        return None
    numbers = [*words[:2], *("1", "1")[len(words) :], said.get("batch", "1"), said.get("due", "1")]
    try:
        copies, epochs, batch, due = map(float, numbers)
    except ValueError:
        return None
    sound = all(isfinite(each) and each > 0 for each in (copies, epochs, batch, due))
    if not name or not sound or not 1 <= copies <= MAX_JOBS or not 0.1 <= epochs <= 1e6:
        return None
    return WantedJob(
        name, int(copies), epochs, int(batch) if "batch" in said else None,
        unquote(said["user"]) if "user" in said else None, due if "due" in said else None,
        isolated="isolated" in said,
    )  # fmt: skip
