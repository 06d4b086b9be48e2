"""Draws the runs of a campaign from its seed, so that scored runs are not chosen."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any, Literal, get_args

from advisor.errors import InvalidInput, UnknownName, counted, is_or_are
from advisor.hardware.gpus import gpu_meant
from advisor.measure.pace import Timing
from advisor.measure.run_list import (
    REMEDY,
    NamedWorkload,
    PlannedRun,
    check_plans,
    read_plans,
    with_workloads,
)
from advisor.sharing import Mps, parse_sharing
from advisor.workload.catalogue import workload
from advisor.workload.job import MAX_JOBS
from advisor.workload.reading import check, check_number, is_folder, located, read_bytes, read_toml
from advisor.workload.records import check_record, expecting
from advisor.workload.spec import Workload
from advisor.workload.writing import write_whole

Mode = Literal["naive", "mps", "limits", "equal", "unequal"]

_MOST_RUNS = 100_000


@dataclass(frozen=True, slots=True)
class Count:
    """Number of runs to draw: of copies of one workload, and of different workloads."""

    same: int = 0
    mixed: int = 0

    def __post_init__(self) -> None:
        check(self, ("same", "mixed"), _MOST_RUNS)


@dataclass(frozen=True, slots=True)
class MissingProfiles:
    """Settings for workloads without a profile in `known` folders: profile them, also under MPS."""

    missing: bool = False
    probe: bool = True
    known: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Listed:
    small: tuple[Workload, ...] = ()
    large: tuple[Workload, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    """The content of a plan file; `advisor/workload/templates/campaign.toml` explains each field.

    `name` is the plan file's stem, and the prefix of the campaign's files.
    """

    name: str
    prefix: str
    gpu: str
    seed: int
    include: str | None = None
    small: tuple[NamedWorkload, ...] = ()
    large: tuple[NamedWorkload, ...] = ()
    large_up_to: int = 3
    degrees: dict[int, dict[Mode, Count]] = field(default_factory=dict)
    limits: tuple[float, ...] = ()
    equal_limits: dict[int, tuple[float, ...]] = field(default_factory=dict)
    solo_every: int = 5
    solos_of_each: int = 0
    repeats: int = 0
    runs: tuple[PlannedRun, ...] = ()
    profile: MissingProfiles = MissingProfiles()
    timing: Timing = field(default_factory=Timing)

    def __post_init__(self) -> None:
        check(self, ("solo_every", "solos_of_each", "repeats"), _MOST_RUNS)
        check(self, ("seed",), 2**63)
        for degree in (*self.degrees, *self.equal_limits):
            check_number("tenants in degrees and equal_limits", degree, MAX_JOBS, 2)
        for limit in (*self.limits, *chain.from_iterable(self.equal_limits.values())):
            check_number("each of limits and equal_limits", limit, 100, 1e-9)
        names = Counter(each.name for each in self.small + self.large)
        if twice := sorted(name for name, count in names.items() if count > 1):
            raise InvalidInput(f"workload {twice[0]!r} is listed twice")
        for run in self.runs:
            if run.purpose == "drawn":
                raise InvalidInput(f"run {run.id!r}: drawn runs come from the seed")
        if self.solos_of_each and not self.solo_every:
            raise InvalidInput("'solos_of_each' has no effect if 'solo_every' is 0: leave it out")
        check_plans(self.runs, self.gpu)


def read_campaign(path: Path) -> Campaign:
    """Read the campaign in the TOML file `path`, with the workloads and folders that it names.

    Raises:
        InvalidInput: It is not a valid plan; the message names the key.
    """
    document = {"name": path.stem, "prefix": f"{path.stem}-"} | read_toml(path)
    with located(path, REMEDY):
        if isinstance(name := document.get("include"), str):
            if document.get("small") or document.get("large"):
                raise InvalidInput("workloads are either included or listed, not both")
            included = path.parent / name
            listed = with_workloads(read_toml(included))
            document |= asdict(check_record(_Listed, listed, str(included), REMEDY))
        document = with_workloads(document)
    with expecting("a campaign", read_bytes(path), path):
        campaign = check_record(Campaign, document, str(path), REMEDY)
    with located(path, REMEDY):
        key = campaign.gpu if campaign.gpu == "cpu" else gpu_meant(campaign.gpu).key
        known = tuple(str(path.parent / each) for each in campaign.profile.known)
        for each in known:
            if not is_folder(Path(each)):
                raise InvalidInput(f"profile.known: {each!r} is not a folder")
        return replace(campaign, gpu=key, profile=replace(campaign.profile, known=known))


def draw_plans(campaign: Campaign) -> tuple[PlannedRun, ...]:
    """Draw everything that `campaign` measures, in the order in which it should be measured.

    Drawn runs come first, in random order, then those that the plan names, with solo runs between
    them; repeats of drawn runs come last. Runs added to the plan later do not change the draw.

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
    plans = (*between, *again)
    check_plans(plans, campaign.gpu)
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
    runs: list[tuple[str, tuple[Workload, ...]]] = []
    for degree, numbers in campaign.degrees.items():
        pool = campaign.small + campaign.large * (degree <= campaign.large_up_to)
        for mode in modes:
            count = numbers.get(mode, Count())
            if len(pool) < max(count.same, degree * (count.mixed > 0)):
                raise InvalidInput(
                    f"degrees.{degree}.{mode}: {counted(len(pool), 'workload')} "
                    f"{is_or_are(len(pool))} too few to draw from. List more, or draw fewer"
                )
            mixes = [(workload,) * degree for workload in random.sample(pool, count.same)]
            mixes += [tuple(random.sample(pool, degree)) for _ in range(count.mixed)]
            runs += [(_sharing(campaign, degree, mode, random), mix) for mix in mixes]
    random.shuffle(runs)
    return [
        PlannedRun(
            id=f"{campaign.prefix}drawn-{number:03}",
            sharing=sharing,
            purpose="drawn",
            workloads=workloads,
        )
        for number, (sharing, workloads) in enumerate(runs)
    ]


def _sharing(campaign: Campaign, degree: int, mode: Mode, random: Random) -> str:
    if mode in ("naive", "mps"):
        return mode
    equal = mode == "equal" or (mode == "limits" and random.random() < 0.5)
    key, pool = "limits", campaign.limits
    if equal:
        key, pool = f"equal_limits.{degree}", campaign.equal_limits.get(degree, ())
    if not pool:
        raise InvalidInput(f"{key!r} is missing, and limits are to be drawn from it")
    limits = [random.choice(pool)] * degree if equal else random.choices(pool, k=degree)
    return str(Mps(tuple(limits)))


def write_list(path: Path, gpu: str, plans: Sequence[PlannedRun]) -> None:
    """Write `plans` for `gpu` to `path`, in the form that ``advisor runs`` reads.

    Raises:
        InvalidInput: The file exists and its drawn runs differ.
    """
    if path.exists():
        before, now = (
            {plan for plan in each if plan.purpose == "drawn"}
            for each in (read_plans(path, gpu), plans)
        )
        if changed := sorted(plan.id for plan in before ^ now):
            raise InvalidInput(
                f"{path}: the runs drawn before are different ({changed[0]}), and scored runs are "
                f"fixed beforehand. Restore the plan's seed, workloads, counts and limits, or "
                f"choose another name or --out."
            )
    document = {"schema": 1, "gpu": gpu, "plans": [_entry(plan) for plan in plans]}
    write_whole(path, json.dumps(document, indent=1) + "\n")


def _entry(plan: PlannedRun) -> dict[str, Any]:
    """`plan` as an entry of a list, with the workloads of the zoo by name."""
    fields = {name: value for name, value in asdict(plan).items() if value is not None}
    return fields | {"workloads": [_name_or_fields(each) for each in plan.workloads]}


def _name_or_fields(job: Workload) -> str | dict[str, Any]:
    with suppress(UnknownName):
        if workload(job.name) == job:
            return job.name
    return asdict(job)


def counts(plans: Iterable[PlannedRun]) -> str:
    """Return the number of runs by purpose, mode and number of tenants, a line each."""
    numbers = Counter(
        (plan.purpose, parse_sharing(plan.sharing).mode, len(plan.workloads)) for plan in plans
    )
    lines = [
        f"  {purpose:10} {mode:12} x{tenants}: {number}"
        for (purpose, mode, tenants), number in sorted(numbers.items())
    ]
    return "\n".join([counted(numbers.total(), "run"), *lines])
