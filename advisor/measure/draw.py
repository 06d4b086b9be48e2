"""Draws the runs of a campaign from its seed, so that scored runs are not chosen."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Annotated, Any, Literal, get_args

from advisor.errors import InvalidInput, UnknownName, counted, is_or_are
from advisor.hardware.gpus import gpu_meant
from advisor.measure.pace import Timing
from advisor.measure.run_list import PlannedRun, Within, record, refuse_duplicate_ids, refuse_of_cpu
from advisor.sharing import parse_sharing
from advisor.workload.catalogue import workload
from advisor.workload.reading import is_folder, located, read_json, read_toml
from advisor.workload.spec import Workload
from advisor.workload.writing import write_whole

Mode = Literal["naive", "mps", "limits", "equal", "unequal"]

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
        _ = self.plan  # checks it

    @property
    def plan(self) -> PlannedRun:
        """One of the copies."""
        return PlannedRun(
            id=self.id, sharing=self.sharing, purpose="control", workloads=self.workloads
        )


@dataclass(frozen=True, slots=True)
class MissingProfiles:
    """Settings for workloads without a profile in `known` folders: profile them, also under MPS."""

    missing: bool = False
    probe: bool = True
    known: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CampaignTiming:
    """Lengths of each run's parts; see `advisor.measure.pace.Timing`."""

    settle_s: Annotated[float, Within(0, 3600)] = Timing().settle_s
    window_s: Annotated[float, Within(0.01, 3600)] = Timing().window_s
    windows: Annotated[int, Within(1, 100)] = Timing().windows


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    """The content of a plan file.

    Attributes:
        name: Prefix of its files: the plan file's stem.
        prefix: Of the ids of drawn, solo and control runs.
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
    """Read the campaign in the TOML file `path`, with the workloads and folders that it names.

    `advisor/workload/templates/campaign.toml` explains each field, and ``advisor init campaign``
    writes it.

    Raises:
        InvalidInput: It is not a valid plan; the message names the key.
    """
    document = read_toml(path)
    name = document.get("name", path.stem)
    with located(path, "Correct the file."):
        campaign = record(Campaign, {"name": name, "prefix": f"{name}-"} | document)
        campaign = _resolved(campaign, path.parent)
        _check(campaign, document)
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


def _check(campaign: Campaign, document: dict[str, Any]) -> None:
    workloads = campaign.small + campaign.large
    for name, count in sorted(Counter(each.name for each in workloads).items()):
        if count > 1:
            raise InvalidInput(f"workload {name!r} is listed twice")
    for number, run in enumerate(campaign.runs):
        if run.purpose in ("drawn", "control"):
            raise InvalidInput(
                f"runs[{number}]: its purpose cannot be {run.purpose!r}: drawn runs come from the "
                f"seed, controls of [[control]]"
            )
    refuse_of_cpu(campaign.gpu, campaign.runs, "runs")
    refuse_of_cpu(campaign.gpu, [each.plan for each in campaign.control], "control")
    for key in ("solo_every", "solos_of_each"):  # without workloads, these have no effect
        if document.get(key) and not workloads:
            raise InvalidInput(
                f"{key!r} is about the workloads in 'small' and 'large', and there are none: list "
                f"some, or leave it out"
            )
    if campaign.solos_of_each and not campaign.solo_every:
        raise InvalidInput("'solos_of_each' has no effect if 'solo_every' is 0: leave it out")


BUSY, IDLE = "busy", "idle"

# Busy controls come in this share of the plan, while enough other runs keep the neighbours busy.
_BUSY_UNTIL = 0.8


def draw_plans(campaign: Campaign) -> tuple[PlannedRun, ...]:
    """Draw everything that `campaign` measures, in the order in which it should be measured.

    Drawn runs come first, in random order, then those that the plan names, with solo runs and busy
    controls between them; repeats of drawn runs and idle controls come last. Runs added to the plan
    later do not change the draw.

    Raises:
        InvalidInput: There are too few workloads for the draw, or two runs of one id.
    """
    random = Random(campaign.seed)
    workloads = [*campaign.small, *campaign.large]
    random.shuffle(workloads)
    drawn = _drawn(campaign, random)
    if campaign.repeats > len(drawn):
        raise InvalidInput(
            f"'repeats' is {campaign.repeats}, and only {counted(len(drawn), 'run')} "
            f"{is_or_are(len(drawn))} drawn. Repeat fewer"
        )
    again = [
        replace(plan, id=f"repeat-of-{plan.id}", purpose="repeat", repeats=plan.id)
        for plan in random.sample(drawn, campaign.repeats)
    ]
    solos, between = _solos(campaign, workloads), []
    for number, plan in enumerate((*drawn, *campaign.runs)):
        between.append(plan)
        due = campaign.solo_every and number % campaign.solo_every == 0
        if due and (job := next(solos, None)):
            name = f"{campaign.prefix}solo-{number:03}"
            between.append(PlannedRun(id=name, sharing="naive", purpose="solo", workloads=(job,)))
    # Busy controls stand evenly spread over most of these.
    controls, count = _controls(campaign, BUSY), len(between)
    for number in range(len(controls), 0, -1):
        place = int(_BUSY_UNTIL * count * number / (len(controls) + 1))
        between.insert(place, controls[number - 1])
    plans = (*between, *again, *_controls(campaign, IDLE))
    refuse_duplicate_ids(plans)
    return plans


def _solos(campaign: Campaign, workloads: list[Workload]) -> Iterator[Workload]:
    """Workloads to run alone: all of them in random order, then all again."""
    # A generator of its own, so that the number of solo runs changes no repeat.
    random, rounds = Random(f"{campaign.seed} solos"), 0
    while workloads and (rounds < campaign.solos_of_each or not campaign.solos_of_each):
        yield from reversed(workloads)
        random.shuffle(workloads)
        rounds += 1


def _drawn(campaign: Campaign, random: Random) -> list[PlannedRun]:
    modes: tuple[Mode, ...] = get_args(Mode)
    runs = [
        run
        for degree, numbers in campaign.degrees.items()
        for mode in modes
        for run in _of_mode(campaign, degree, mode, numbers.get(mode, Count()), random)
    ]
    random.shuffle(runs)
    return [
        PlannedRun(
            id=f"{campaign.prefix}drawn-{number:03}", sharing=sharing, purpose="drawn",
            workloads=workloads,
        )
        for number, (sharing, workloads) in enumerate(runs)
    ]  # fmt: skip


def _of_mode(
    campaign: Campaign, degree: int, mode: Mode, count: Count, random: Random
) -> list[tuple[str, tuple[Workload, ...]]]:
    """Sharing and workloads of the runs of one mode and degree."""
    pool = campaign.small + campaign.large * (degree <= campaign.large_up_to)
    if len(pool) < max(count.same, degree * (count.mixed > 0)):
        raise InvalidInput(
            f"degrees.{degree}.{mode}: {counted(len(pool), 'workload')} {is_or_are(len(pool))} "
            f"too few to draw from. List more, or draw fewer"
        )
    jobs = [(workload,) * degree for workload in random.sample(pool, count.same)]
    jobs += [tuple(random.sample(pool, degree)) for _ in range(count.mixed)]
    return [(_sharing(campaign, degree, mode, random), each) for each in jobs]


def _sharing(campaign: Campaign, degree: int, mode: Mode, random: Random) -> str:
    if mode in ("naive", "mps"):
        return mode
    if mode == "limits":
        mode = "equal" if random.random() < 0.5 else "unequal"
    key, pool = "limits", campaign.limits
    if mode == "equal":
        key, pool = f"equal_limits.{degree}", campaign.equal_limits.get(degree, ())
    if not pool:
        raise InvalidInput(f"{key!r} is missing, and limits are to be drawn from it")
    limits = [random.choice(pool)] * degree if mode == "equal" else random.choices(pool, k=degree)
    return "mps=" + ",".join(f"{limit:g}" for limit in limits)


def _controls(campaign: Campaign, neighbours: str) -> list[PlannedRun]:
    plans = [each.plan for each in campaign.control for _ in range(each.copies)]
    return [
        replace(plan, id=f"{campaign.prefix}control-{plan.id}-{number}-{neighbours}")
        for number, plan in enumerate(plans, start=1)
    ]


def idle_twin(name: str) -> str:
    """Return the id of the idle control that belongs to the control called `name`."""
    return name.removesuffix(BUSY).removesuffix(IDLE) + IDLE


def write_list(path: Path, gpu: str, plans: Sequence[PlannedRun]) -> None:
    """Write `plans` for `gpu` to `path`, in the form that ``python -m advisor.measure runs`` reads.

    Raises:
        InvalidInput: The file exists and its drawn runs differ.
    """
    entries = [plan_entry(plan) for plan in plans]
    if path.exists():
        _refuse_other_draw(path, entries)
    document = {"schema": 1, "gpu": gpu, "plans": entries}
    write_whole(path, json.dumps(document, indent=1) + "\n")


def plan_entry(plan: PlannedRun) -> dict[str, Any]:
    """Return `plan` as an entry of a plan file; a workload of the zoo by its name."""
    entry: dict[str, Any] = {
        "id": plan.id, "sharing": plan.sharing, "purpose": plan.purpose, "repeats": plan.repeats
    }  # fmt: skip
    if plan.capacity_mib is not None:
        entry["capacity_mib"] = plan.capacity_mib
    if plan.steps is not None:
        entry["steps"] = list(plan.steps)
    return entry | {"workloads": [_workload_entry(each) for each in plan.workloads]}


def _workload_entry(job: Workload) -> str | dict[str, Any]:
    try:
        return job.name if workload(job.name) == job else asdict(job)
    except UnknownName:
        return asdict(job)


def _refuse_other_draw(path: Path, entries: Sequence[dict[str, Any]]) -> None:
    remedy = "Choose another --out."
    try:
        before = read_json(path, remedy)["plans"]
        differing = [each for each in before if each not in entries]
        differing += [each for each in entries if each not in before]
        lost = [each["id"] for each in differing if each["purpose"] == "drawn"]
    except (TypeError, KeyError, AttributeError):
        raise InvalidInput(f"{path}: not a list of runs. {remedy}") from None
    if lost:
        raise InvalidInput(
            f"{path}: the runs drawn before are different ({lost[0]}), and scored runs are fixed "
            f"beforehand. Restore the plan's seed, workloads, counts and limits, or choose another "
            f"name or --out."
        )


def counts(plans: Iterable[PlannedRun]) -> str:
    """Return the number of runs by purpose, mode and number of tenants, a line each."""
    numbers = Counter((plan.purpose, _mode(plan), len(plan.workloads)) for plan in plans)
    lines = [
        f"  {purpose:10} {mode:12} x{tenants}: {number}"
        for (purpose, mode, tenants), number in sorted(numbers.items())
    ]
    return "\n".join([counted(numbers.total(), "run"), *lines])


def _mode(plan: PlannedRun) -> str:
    sharing = parse_sharing(plan.sharing)
    if sharing.mode != "mps-limits":
        return "phases" if sharing.mode == "phases" else str(sharing)
    return "mps equal" if len(set(sharing.limits)) == 1 else "mps unequal"
