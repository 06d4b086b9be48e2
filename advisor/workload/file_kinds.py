"""Tells the kinds of files that commands read apart, for one that lies in the place of another."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from advisor.errors import InvalidInput
from advisor.workload.reading import NewerFile

FileKind = Literal[
    "a profile",
    "an exported plan",
    "an answer of `advisor recommend --json`",
    "an answer of `--json`",
    "a calibration",
    "a fitted model",
    "a list of runs",
    "a job file",
    "a campaign",
    "a CSV table",
    "numbers of nvidia-smi",
]

# The keys that a JSON document of a kind has, and those that it lacks; the first that fits is it.
_KEYS: tuple[tuple[FileKind, frozenset[str], frozenset[str]], ...] = (
    ("a list of runs", frozenset({"tenants", "sharing"}), frozenset()),
    ("an exported plan", frozenset({"workloads", "plans"}), frozenset({"ranked_by"})),
    ("an answer of `advisor recommend --json`", frozenset({"plans", "ranked_by"}), frozenset()),
    ("a calibration", frozenset({"contexts", "switching"}), frozenset()),
    ("a fitted model", frozenset({"constants", "corrections"}), frozenset()),
    ("an answer of `--json`", frozenset({"calibrated", "stale"}), frozenset()),
    ("a profile", frozenset({"workload", "gpu"}), frozenset()),
)

# Where each kind belongs; {} is the file.
_USE: dict[FileKind, str] = {
    "a profile": "Name it as a JOB: `advisor recommend {}`.",
    "an exported plan": "Use `advisor run {}` or `advisor simulate --plan {}`.",
    "an answer of `advisor recommend --json`": "Use `advisor run {} --rank 1`.",
    "an answer of `--json`": "Name its JOBs instead: `advisor profiles` lists them.",
    "a calibration": "Pass it as --calibration {}.",
    "a fitted model": "Pass its folder as --models DIR.",
    "a list of runs": "Use `advisor validate --runs {}`.",
    "a job file": "Pass it as --jobs {}.",
    "a campaign": "Use `advisor campaign {}`.",
    "numbers of nvidia-smi": "Make numbers over time a profile: `advisor profile --from-history "
    "{}`. Pass single ones: `advisor profile --from-numbers -h`.",
    "a CSV table": "Use `advisor simulate --trace-in {}`, with the columns arrival_s,job.",
}

_JOB_TABLE = re.compile(rb"^\s*\[\[?job\]?\]", re.MULTILINE)
_CAMPAIGN = re.compile(rb"^\s*\[\[runs\]\]|^\s*\[degrees\.", re.MULTILINE)
# Its columns with --query-gpu, the lines of its table, those of dmon, and names of DCGM.
_OF_NVIDIA_SMI = re.compile(
    rb"\butilization\.(?:gpu|memory)|\bmemory\.used\b|\bpower\.draw\b|NVIDIA-SMI \d|^# ?gpu |"
    rb"^# ?Entity|\bDCGM_FI_",
    re.M,
)
_ROW = re.compile(rb"[^\[\]{}=\n]*\w[,;\t|]\s*\"?\w[^\[\]{}=\n]*\n")


def kind_of_file(content: bytes) -> FileKind | None:
    """Return which kind of file has this `content`; None if it is none that advisor reads."""
    text = content.strip()
    if text.startswith(b"{"):
        lines = text.splitlines()
        for part in (text, lines[0]):  # of runs, each line is a document
            try:
                keys = json.loads(part).keys()
            except (ValueError, RecursionError):
                continue
            return next(
                (kind for kind, has, lacks in _KEYS if has <= keys and not lacks & keys), None
            )
        return None
    if _OF_NVIDIA_SMI.search(content[:4096]):
        return "numbers of nvidia-smi"
    if _JOB_TABLE.search(content):
        return "a job file"
    if _CAMPAIGN.search(content):
        return "a campaign"
    return "a CSV table" if _ROW.match(content.lstrip() + b"\n") else None


@contextmanager
def expecting(wanted: FileKind, content: bytes, where: object) -> Iterator[None]:
    """Refuse `content` that fails in the block by the name of its kind, if that is not `wanted`."""
    try:
        yield
    except InvalidInput as error:
        kind = kind_of_file(content)
        # A fitted model's schema is above that of other files.
        newer = isinstance(error, NewerFile) and kind != "a fitted model"
        if kind is None or kind == wanted or newer:
            raise
        use = _USE[kind].replace("{}", str(where))
        raise InvalidInput(f"{where}: it is {kind}, not {wanted}. {use}") from None
