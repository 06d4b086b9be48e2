"""Reads the TOML file in which a user plans a campaign.

gpu = "h200-141gb"
seed = 2028
include = "workloads.toml"     # or the arrays `small` and `large` themselves
large_up_to = 3                # `large` workloads are drawn up to this degree
limits = [14, 28, 43, 57, 71, 86]
equal_limits = {2 = [43, 50, 71], 3 = [28, 33, 57]}
solo_every = 5                 # a solo run after every so many others
repeats = 60                   # of the drawn runs, with fresh workers

[degrees.2]                    # tenants
naive = {same = 6, mixed = 14}
mps = {same = 6, mixed = 14}
equal = {same = 3, mixed = 7}  # MPS, one limit for all
unequal = {mixed = 10}         # MPS, a limit drawn for each
limits = {mixed = 4}           # MPS, one or the other with even odds

[[runs]]                       # chosen, not drawn
id = "chosen-1"
sharing = "mps=43,57"
purpose = "chosen"
workloads = ["resnet50-imagenet64-bs128", "dlrm-1gb-bs128"]

[[runs]]                       # whole jobs: each does its steps and leaves, the others go on
id = "whole-1"
sharing = "naive[1];mps[2,3]"  # serial and phases too
purpose = "completion"
workloads = ["dlrm-1gb-bs128", "gru-speech-bs64", "gru-speech-bs64"]
steps = [9000, 300, 700]

[[control]]                    # measured while other GPUs are busy, again while they are idle
id = "pair"
sharing = "naive"
workloads = ["resnet50-imagenet64-bs128", "dlrm-1gb-bs128"]
copies = 3

[profile]
missing = true                 # profile first what has no profile
probe = true                   # under MPS too
known = ["../profiles/h200-141gb"]

[timing]
settle_s = 0.7
window_s = 1.0
windows = 3
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from advisor.errors import InvalidInput
from advisor.hardware.catalogue import gpu_meant
from advisor.measure.campaign.toml_table import Table, listed_workloads
from advisor.measure.process.windows import Timing
from advisor.measure.shared.planned_run import PlannedRun
from advisor.measure.shared.run_list_file import plan_of
from advisor.workload.files import read_toml
from advisor.workload.spec import Workload

Mode = Literal["naive", "mps", "limits", "equal", "unequal"]
MODES: tuple[Mode, ...] = ("naive", "mps", "limits", "equal", "unequal")

_MOST = 100_000


@dataclass(frozen=True, slots=True)
class Count:
    """Number of runs to draw: of copies of one workload, and of different workloads."""

    same: int
    mixed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    """The content of a plan file; the module's docstring shows one.

    Attributes:
        name: Prefix of its files: the plan file's stem.
        prefix: Of the ids of drawn, solo and control runs.
        seed: Of the random draw.
        small: Workloads for mixes of any degree.
        large: Workloads for mixes of a degree up to `large_up_to`.
        degrees: For each number of tenants, in the file's order, the counts by mode.
        limits: Per cent, from which each tenant's limit is drawn.
        equal_limits: For each number of tenants, per cent, from which one limit for all is drawn.
        solo_every: Number of other runs between two solo runs; 0: no solo runs.
        solos_of_each: Most solo runs of a workload; 0: no bound.
        repeats: Number of drawn runs that are repeated.
        runs: Runs that are named and not drawn.
        controls: Each is measured twice: with other GPUs busy, and with other GPUs idle.
        profile_missing: Whether to profile first what has no profile.
        probe: Whether profiles have an MPS probe.
        known: Folders of profiles.
    """

    name: str
    prefix: str
    gpu: str
    seed: int
    small: tuple[Workload, ...]
    large: tuple[Workload, ...]
    large_up_to: int
    degrees: Mapping[int, Mapping[Mode, Count]]
    limits: tuple[float, ...]
    equal_limits: Mapping[int, tuple[float, ...]]
    solo_every: int
    solos_of_each: int
    repeats: int
    runs: tuple[PlannedRun, ...]
    controls: tuple[PlannedRun, ...]
    profile_missing: bool
    probe: bool
    known: tuple[Path, ...]
    timing: Timing


def read_campaign(path: Path) -> Campaign:
    """The campaign in the TOML file `path`.

    Raises:
        InvalidInput: It is not a valid plan; the message names the key.
    """
    top = Table("", read_toml(path))
    try:
        return _campaign(top, path)
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}. Correct the file.") from None


def _campaign(top: Table, path: Path) -> Campaign:
    key = top.text("gpu")
    if key != "cpu":
        key = gpu_meant(key).key
    name = top.text("name", path.stem)
    small, large = listed_workloads(top, path.parent)
    profile = top.table("profile")
    campaign = Campaign(
        name=name,
        prefix=top.text("prefix", f"{name}-"),
        gpu=key,
        seed=top.whole("seed", 0, 2**63),
        small=small,
        large=large,
        large_up_to=top.whole("large_up_to", 1, 48, 3),
        degrees=_degrees(top.table("degrees")),
        limits=top.limits("limits"),
        equal_limits=_equal_limits(top.table("equal_limits")),
        solo_every=top.whole("solo_every", 0, _MOST, 5),
        solos_of_each=top.whole("solos_of_each", 0, _MOST, 0),
        repeats=top.whole("repeats", 0, _MOST, 0),
        runs=_runs(top.array("runs"), key),
        controls=_controls(top.array("control"), key),
        profile_missing=profile.flag("missing", False),
        probe=profile.flag("probe", True),
        known=tuple(_folder(each, path.parent) for each in profile.array("known")),
        timing=_timing(top.table("timing")),
    )
    profile.close()
    top.close()
    _refuse_idle(top, campaign)
    return campaign


def _refuse_idle(top: Table, campaign: Campaign) -> None:
    """Refuse keys that have no effect with the others."""
    for key in ("solo_every", "solos_of_each"):
        if top.has(key) and getattr(campaign, key) and not campaign.small + campaign.large:
            raise InvalidInput(
                f"{key!r} is about the workloads in 'small' and 'large', and there are none: list "
                f"some, or leave it out"
            )
    if campaign.solos_of_each and not campaign.solo_every:
        raise InvalidInput("'solos_of_each' has no effect if 'solo_every' is 0: leave it out")


def _folder(value: Any, base: Path) -> Path:
    if not isinstance(value, str) or not (base / value).is_dir():
        raise InvalidInput(f"profile.known: {value!r} is not a folder next to the plan")
    return base / value


def _degrees(table: Table) -> dict[int, dict[Mode, Count]]:
    return {_degree(table, name): _counts(table.table(name)) for name in table.names()}


def _degree(table: Table, name: str) -> int:
    if not (name.isdecimal() and 2 <= int(name) <= 48):
        raise InvalidInput(f"{table.key(name)}: a degree is a number of tenants from 2 to 48")
    return int(name)


def _counts(table: Table) -> dict[Mode, Count]:
    counts = {mode: _count(table.table(mode)) for mode in MODES}
    table.close()
    return counts


def _count(table: Table) -> Count:
    count = Count(table.whole("same", 0, _MOST, 0), table.whole("mixed", 0, _MOST, 0))
    table.close()
    return count


def _equal_limits(table: Table) -> dict[int, tuple[float, ...]]:
    return {_degree(table, name): table.limits(name) for name in table.names()}


def _runs(entries: list[Any], key: str) -> tuple[PlannedRun, ...]:
    runs = tuple(plan_of(entry, f"runs[{number}]", key) for number, entry in enumerate(entries))
    for number, run in enumerate(runs):
        if run.purpose in ("drawn", "control"):
            raise InvalidInput(
                f"runs[{number}]: its purpose cannot be {run.purpose!r}: drawn runs come from the "
                f"seed, controls of [[control]]"
            )
    return runs


def _controls(entries: list[Any], key: str) -> tuple[PlannedRun, ...]:
    controls = []
    for number, entry in enumerate(entries):
        where = f"control[{number}]"
        table = Table(where, entry)
        copies = table.whole("copies", 1, 1000, 1)
        rest = {name: value for name, value in entry.items() if name != "copies"}
        plan = plan_of(rest | {"purpose": "control"}, where, key)
        controls += [plan] * copies
    return tuple(controls)


def _timing(table: Table) -> Timing:
    timing = Timing(
        settle_s=table.number("settle_s", 0, 3600, Timing().settle_s),
        window_s=table.number("window_s", 0.01, 3600, Timing().window_s),
        windows=table.whole("windows", 1, 100, Timing().windows),
    )
    table.close()
    return timing
