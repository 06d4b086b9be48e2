"""Reads the TOML file in which a user plans a campaign.

`advisor/workload/templates/campaign.toml` says each field, and ``advisor init campaign`` writes it.
"""

from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from advisor.errors import InvalidInput
from advisor.hardware.catalogue import gpu_meant
from advisor.measure.process.windows import Timing
from advisor.measure.shared.planned_run import PlannedRun
from advisor.measure.shared.run_list_file import refuse_of_cpu
from advisor.measure.shared.strict_record import Within, record
from advisor.workload.documents import read_toml
from advisor.workload.files import is_folder, located
from advisor.workload.spec import Workload

Mode = Literal["naive", "mps", "limits", "equal", "unequal"]
MODES: tuple[Mode, ...] = get_args(Mode)

_Amount = Annotated[int, Within(0, 100_000)]
_Degree = Annotated[int, Within(2, 48)]
_Limits = tuple[Annotated[float, Within(0, 100, above=True)], ...]


@dataclass(frozen=True, slots=True)
class Count:
    """Number of runs to draw: of copies of one workload, and of different workloads."""

    same: _Amount = 0
    mixed: _Amount = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """A run that is measured `copies` times with other GPUs busy, and as often while they idle."""

    id: str
    sharing: str
    workloads: tuple[Workload, ...]
    copies: Annotated[int, Within(1, 1000)] = 1

    def __post_init__(self) -> None:
        _ = self.plan  # raises what is wrong with it

    @property
    def plan(self) -> PlannedRun:
        """One of the copies."""
        return PlannedRun(
            id=self.id, sharing=self.sharing, purpose="control", workloads=self.workloads
        )


@dataclass(frozen=True, slots=True)
class MissingProfiles:
    """Whether to profile first what has no profile in the folders `known`, and under MPS too."""

    missing: bool = False
    probe: bool = True
    known: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CampaignTiming:
    """How long each run is measured; see `advisor.measure.process.windows.Timing`."""

    settle_s: Annotated[float, Within(0, 3600)] = Timing().settle_s
    window_s: Annotated[float, Within(0.01, 3600)] = Timing().window_s
    windows: Annotated[int, Within(1, 100)] = Timing().windows


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    """The content of a plan file.

    Attributes:
        name: Prefix of its files: the plan file's stem.
        prefix: Of the ids of drawn, solo and control runs.
        seed: Of the random draw.
        include: File with the workloads, instead of `small` and `large`.
        small: Workloads for mixes of any degree.
        large: Workloads for mixes of a degree up to `large_up_to`.
        degrees: For each number of tenants, in the file's order, the counts by mode.
        limits: Per cent, from which each tenant's limit is drawn.
        equal_limits: For each number of tenants, per cent, from which one limit for all is drawn.
        solo_every: Number of other runs between two solo runs; 0: no solo runs.
        solos_of_each: Most solo runs of a workload; 0: no bound.
        repeats: Number of drawn runs that are repeated.
        runs: Runs that are named and not drawn.
    """

    name: str
    prefix: str
    gpu: str
    seed: Annotated[int, Within(0, 2**63)]
    include: str | None = None
    small: tuple[Workload, ...] = ()
    large: tuple[Workload, ...] = ()
    large_up_to: Annotated[int, Within(1, 48)] = 3
    degrees: dict[_Degree, dict[Mode, Count]] = field(default_factory=dict)
    limits: _Limits = ()
    equal_limits: dict[_Degree, _Limits] = field(default_factory=dict)
    solo_every: _Amount = 5
    solos_of_each: _Amount = 0
    repeats: _Amount = 0
    runs: tuple[PlannedRun, ...] = ()
    control: tuple[Control, ...] = ()
    profile: MissingProfiles = MissingProfiles()
    timing: CampaignTiming = CampaignTiming()


@dataclass(frozen=True, slots=True)
class _Listed:
    small: tuple[Workload, ...] = ()
    large: tuple[Workload, ...] = ()


def read_campaign(path: Path) -> Campaign:
    """The campaign in the TOML file `path`, with included workloads and folders found.

    Raises:
        InvalidInput: It is not a valid plan; the message names the key.
    """
    document = read_toml(path)
    name = document.get("name", path.stem)
    with located(path, "Correct the file."):
        campaign = record(Campaign, {"name": name, "prefix": f"{name}-"} | document)
        campaign = _resolved(campaign, path.parent)
        _refuse_twins(campaign)
        _refuse_runs(campaign)
        _refuse_idle(document, campaign)
        return campaign


def _resolved(campaign: Campaign, folder: Path) -> Campaign:
    """`campaign` with its GPU's catalogue key, and with what it names in `folder`."""
    key = campaign.gpu if campaign.gpu == "cpu" else gpu_meant(campaign.gpu).key
    for each in campaign.profile.known:
        if not is_folder(folder / each):
            raise InvalidInput(f"profile.known: {each!r} is not a folder next to the plan")
    known = tuple(str(folder / each) for each in campaign.profile.known)
    campaign = replace(campaign, gpu=key, profile=replace(campaign.profile, known=known))
    if campaign.include is None:
        return campaign
    if campaign.small or campaign.large:
        raise InvalidInput("workloads are either included or listed, not both")
    path = folder / campaign.include
    document = read_toml(path)
    with located(path):
        listed = record(_Listed, document)
    return replace(campaign, small=listed.small, large=listed.large)


def _refuse_twins(campaign: Campaign) -> None:
    names = Counter(each.name for each in campaign.small + campaign.large)
    for name, count in sorted(names.items()):
        if count > 1:
            raise InvalidInput(f"workload {name!r} is listed twice")


def _refuse_runs(campaign: Campaign) -> None:
    for number, run in enumerate(campaign.runs):
        if run.purpose in ("drawn", "control"):
            raise InvalidInput(
                f"runs[{number}]: its purpose cannot be {run.purpose!r}: drawn runs come from the "
                f"seed, controls of [[control]]"
            )
    refuse_of_cpu(campaign.gpu, campaign.runs, "runs")
    refuse_of_cpu(campaign.gpu, [each.plan for each in campaign.control], "control")


def _refuse_idle(document: dict[str, Any], campaign: Campaign) -> None:
    """Refuse keys that have no effect with the others."""
    for key in ("solo_every", "solos_of_each"):
        if document.get(key) and not campaign.small + campaign.large:
            raise InvalidInput(
                f"{key!r} is about the workloads in 'small' and 'large', and there are none: list "
                f"some, or leave it out"
            )
    if campaign.solos_of_each and not campaign.solo_every:
        raise InvalidInput("'solos_of_each' has no effect if 'solo_every' is 0: leave it out")
