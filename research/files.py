"""Committed profiles and runs, tables of other people, and marked blocks of documents."""

import csv
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from advisor.files.reading import profile_files
from advisor.workload.profile import Profile
from advisor.workload.run import Run
from advisor.workload.store import read_profile, read_runs

ROOT = Path(__file__).resolve().parents[1]
PROFILES, BENCHMARKS = ROOT / "profiles", ROOT / "benchmarks"


def profiles_in(folder: Path) -> dict[str, Profile]:
    """The profiles in `folder`, by name."""
    return {path.stem: read_profile(path) for path in profile_files(folder)}


def runs_in(folder: Path, prefix: str = "") -> list[Run]:
    """The runs in those files of `folder` whose names begin so, in the order of files and lines."""
    files = sorted(folder.glob(f"{prefix}*.jsonl"))
    return [run for file in files for run in read_runs(file)]


def measured(folder: Path) -> tuple[dict[str, Profile], list[Run]]:
    """The profiles in `folder` by name, and the runs below it."""
    return profiles_in(folder), runs_in(folder / "runs")


def csv_rows(path: Path) -> Iterator[dict[str, str]]:
    """The lines of a table, each by the table's headings."""
    with path.open(encoding="utf-8", newline="") as lines:
        yield from csv.DictReader(lines)


def rounded(document: Any, form: str) -> Any:
    """`document` as JSON has it, each number that is not whole as `form` writes it: ``".4g"``."""
    text = json.dumps(document, allow_nan=False)
    return json.loads(text, parse_float=lambda number: float(f"{float(number):{form}}"))


def filled(text: str, name: str, content: str) -> str:
    """Return `text` with `content` between the marks called `name`.

    Raises:
        ValueError: There is no such block, or more than one.
    """
    begin, end = f"<!-- begin: {name} -->", f"<!-- end: {name} -->"
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    text, count = pattern.subn(lambda _: f"{begin}\n{content}\n{end}", text)
    if count != 1:
        raise ValueError(f"expected one block named {name}, found {count}")
    return text
