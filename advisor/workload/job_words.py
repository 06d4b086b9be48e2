"""Jobs as words of a command line, ``NAME[:COPIES][@EPOCHS]``.

NAME is a profile's name or a profile file's path. For richer jobs see `advisor.workload.job_file`.
"""

import re
from collections.abc import Iterable
from functools import cache

from advisor.errors import InvalidInput
from advisor.workload.job import Job
from advisor.workload.job_count import checked_copies, job_set, most_jobs
from advisor.workload.profile import FindsProfiles

_COUNT = re.compile(r"[+-]?[0-9]{1,18}")
_NUMBER = re.compile(r"-?[0-9]{1,18}(?:\.[0-9]{1,18})?")


def parse_jobs(words: Iterable[str], load: FindsProfiles, gpus: int = 1) -> tuple[Job, ...]:
    """The jobs that `words` name, ``NAME[:COPIES][@EPOCHS]``, copies next to each other.

    Args:
        words: As given on the command line.
        load: Finds a profile by its name, or the path of its file.
        gpus: Equal GPUs that there are.

    Raises:
        InvalidInput: A count or profile is wrong, or there are too many jobs or none.
    """
    load = cache(load)
    found = []
    for word in words:
        rest, epochs = _epochs(word)
        name, copies = _split(rest, word, gpus)
        found += [Job(load(name), epochs=epochs)] * copies
    return job_set(found, gpus)


def _epochs(word: str) -> tuple[str, float]:
    """`word` without its epochs, and these; 1 where it names none."""
    rest, at, epochs = word.rpartition("@")
    if not at or word.endswith(".json"):
        return word, 1.0
    if not _NUMBER.fullmatch(epochs):
        raise InvalidInput(f"{word!r}: EPOCHS is a number above 0, e.g. NAME@3 or NAME:2@3.")
    return rest, float(epochs)


def _split(rest: str, word: str, gpus: int) -> tuple[str, int]:
    """Name and copies of `rest`, which is `word` without its epochs."""
    name, colon, count = rest.rpartition(":")
    if word.startswith("@") or (colon and not name):
        raise InvalidInput(f"{word!r} names no job. Write NAME, NAME:COPIES or NAME@EPOCHS.")
    if not colon or rest.endswith(".json"):
        return rest, 1
    if not _COUNT.fullmatch(count):
        raise InvalidInput(f"{word!r}: COPIES is a whole number from 1 to {most_jobs(gpus)}.")
    return name, checked_copies(int(count), word, gpus)
