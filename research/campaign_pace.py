"""How many records a minute campaigns made, on how many GPUs, by the dates in the records."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from advisor.measure.process.claimed_device import devices_in
from advisor.validate.score_tables import markdown
from advisor.workload.run import Run

HEADINGS = ("command", "GPUs", "records", "minutes", "records a minute", "a GPU")

# A pause as long as this is no part of a campaign: it was started again later.
_PAUSE_S = 120.0
# As `advisor.measure.process.provenance.command_line` writes it.
_DEVICES = re.compile(r"python -m advisor\.campaign .*--devices[ =](\S+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sitting:
    """One campaign from its start to where it stopped.

    Attributes:
        command: As it was typed.
        gpus: On which it measured at once.
        records: That it made.
        minutes: Between its first record and its last.
        a_minute: Records a minute, the first on each GPU left out, since its start has no date.
    """

    command: str
    gpus: int
    records: int
    minutes: float
    a_minute: float


def sittings(runs: Iterable[Run]) -> tuple[Sitting, ...]:
    """Campaigns by their records, in order of time.

    Those that name no devices are left out, and those too short to tell.
    """
    by_devices: dict[tuple[str, int], list[datetime]] = {}
    for run in runs:
        command = run.provenance.command
        if named := _DEVICES.match(command):
            key = command, len(devices_in(named[1]))
            by_devices.setdefault(key, []).append(datetime.fromisoformat(run.provenance.date))
    parts = [
        (moments, *key)
        for key, dates in by_devices.items()
        for moments in _without_pauses(sorted(dates))
    ]
    found = [_sitting(*part) for part in sorted(parts)]
    return tuple(each for each in found if each is not None)


def section(found: Iterable[Sitting]) -> str:
    """Of profiles/REPORT.md; empty if no campaign says how long it took."""
    rows = [
        (f"`{each.command}`", str(each.gpus), str(each.records), f"{each.minutes:.1f}",
         f"{each.a_minute:.1f}", f"{each.a_minute / each.gpus:.1f}")
        for each in found
    ]  # fmt: skip
    if not rows:
        return ""
    return "\n\n".join([
        "## How fast campaigns went",
        markdown(HEADINGS, rows),
        "From the dates in the records. Campaigns differ in what they run, so only lines of the "
        "same plan compare one GPU with several.",
    ])  # fmt: skip


def _without_pauses(moments: Sequence[datetime]) -> Iterator[list[datetime]]:
    part = [moments[0]]
    for moment in moments[1:]:
        if (moment - part[-1]).total_seconds() > _PAUSE_S:
            yield part
            part = []
        part.append(moment)
    yield part


def _sitting(moments: Sequence[datetime], command: str, gpus: int) -> Sitting | None:
    minutes = (moments[-1] - moments[0]).total_seconds() / 60
    if len(moments) <= gpus or minutes <= 0:
        return None
    return Sitting(
        command=command,
        gpus=gpus,
        records=len(moments),
        minutes=minutes,
        a_minute=(len(moments) - gpus) / minutes,
    )
