"""Lists of planned runs: a JSON file of plans, or the advice of ``advisor recommend --json``.

E.g. this file, where a workload of the zoo may stand by its name, others with all their fields:

    {"schema": 1, "gpu": "h200-141gb", "plans": [
        {"id": "drawn-001", "sharing": "mps=43,57", "purpose": "drawn",
         "workloads": ["resnet50-imagenet64-bs128", "gpt2-small-finetune-bs2"]},
        {"id": "whole-1", "sharing": "naive[1];mps[2,3]", "purpose": "completion",
         "workloads": ["dlrm-1gb-bs128", "gru-speech-bs64", "gru-speech-bs64"],
         "steps": [1000, 100, 300]}]}
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from itertools import chain
from pathlib import Path
from random import Random
from typing import Annotated, Any, Literal, get_args

from advisor.errors import InvalidInput, counted, is_or_are
from advisor.files.reading import is_folder, located, read_bytes, read_json, read_toml
from advisor.files.records import OrText, check_record, expecting
from advisor.files.units import check, check_number
from advisor.files.writing import record_text, write_whole
from advisor.hardware.gpus import gpu_meant
from advisor.sharing import Concurrent, Mps, Naive, parse_sharing
from advisor.sharing.groups import (
    check_count,
    mps_servers,
    restricted,
    running_together,
    together,
    with_a_queue,
)
from advisor.workload.catalogue import workload
from advisor.workload.job import MAX_JOBS
from advisor.workload.run import Purpose
from advisor.workload.spec import Workload

REMEDY = "Correct the file."

NamedWorkload = Annotated[Workload, OrText(workload)]
"""A workload, or the name of one of the zoo."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRun:
    """Workloads to run together, as a user or a campaign asked for.

    Attributes:
        id: Becomes the run's; ``ID.1``, ``ID.2``... where a serial plan has several workloads.
        sharing: In the notation of `advisor.sharing.parse_sharing`.
        purpose: See `advisor.workload.run.Run`, of which `repeats` and `capacity_mib` are, too.
        steps: Steps of each workload, with purpose ``"completion"``: then all of them run to their
            end, also serially and in phases.
        workloads: In the order of the limits in `sharing`.
    """

    id: str
    sharing: str
    purpose: Purpose
    repeats: str | None = None
    capacity_mib: int | None = None
    steps: tuple[int, ...] | None = None
    workloads: tuple[NamedWorkload, ...]

    def __post_init__(self) -> None:
        with located(f"run {self.id!r}"):
            if not self.id:
                raise InvalidInput("a plan needs an id, for --skip-existing and for repeats")
            for field, purpose in _BELONGS_TO.items():
                if (self.purpose == purpose) != (getattr(self, field) is not None):
                    raise InvalidInput(
                        f"{field} belongs to the purpose {purpose!r}, and to no other"
                    )
            if self.capacity_mib is not None and self.capacity_mib < 1:
                raise InvalidInput(f"a card has at least 1 MiB, got {self.capacity_mib}")
            self._check_workloads()
            sharing = parse_sharing(self.sharing)
            if sharing.instances:
                raise InvalidInput(
                    "MIG plans cannot be run, because no instances are made here. Run the others"
                )
            if with_a_queue(sharing, len(self.workloads)):
                raise InvalidInput(
                    f"{sharing}: a run cannot measure a queue. Plan the jobs that run at once "
                    "as one run"
                )
            if sharing.mode == "phases" and self.steps is None:
                raise InvalidInput(
                    f"{sharing} is several runs. Plan each group as a run, or give steps"
                )
            check_count(sharing, len(self.workloads))

    def _check_workloads(self) -> None:
        count = len(self.workloads)
        if not 1 <= count <= MAX_JOBS:
            raise InvalidInput(f"a plan has 1 to {MAX_JOBS} workloads, got {count}")
        for each in self.workloads:
            each.check_startable()
            if self.steps is not None and each.script is not None and not each.script.by_steps:
                raise InvalidInput(
                    f"{each.name}: its steps are not counted, so its pace among others cannot be "
                    "measured. Leave it out here, and use `advisor run`"
                )
        if self.steps is not None and (len(self.steps) != count or min(self.steps) < 1):
            raise InvalidInput(
                f"steps are whole numbers from 1, one for each of the {count} workloads, got "
                f"{list(self.steps)}"
            )

    @property
    def groups(self) -> tuple[tuple[tuple[int, ...], Concurrent], ...]:
        """Positions of the workloads that run at the same time and how they share, in turn.

        In a serial plan each workload is a group.
        """
        sharing = parse_sharing(self.sharing)
        return tuple(
            (tuple(jobs), together(restricted(sharing, jobs)) or Naive())  # alone in turn is naive
            for jobs in map(sorted, running_together(sharing, len(self.workloads)))
        )


# The purpose of the runs that have a field, and that no others have.
_BELONGS_TO = {"repeats": "repeat", "capacity_mib": "memory", "steps": "completion"}


def single_runs(plan: PlannedRun) -> tuple[PlannedRun, ...]:
    """Divide `plan` into what one `Run` records: a serial plan runs each distinct workload alone.

    A plan with steps is one run.
    """
    if plan.steps is not None or together(parse_sharing(plan.sharing)) is not None:
        return (plan,)
    runs = []
    # Copies that run alone take equally long: one of them is enough.
    workloads = list(dict.fromkeys(plan.workloads))
    for number, each in enumerate(workloads, start=1):
        suffix = f".{number}" if len(workloads) > 1 else ""
        repeats = None if plan.repeats is None else plan.repeats + suffix
        alone = replace(
            plan, id=plan.id + suffix, sharing=str(Naive()), workloads=(each,), repeats=repeats
        )
        runs.append(alone)
    return tuple(runs)


@dataclass(frozen=True, slots=True)
class _RunList:
    schema: Literal[1]
    gpu: str
    plans: tuple[PlannedRun, ...]


def read_plans(path: Path, gpu: str) -> tuple[PlannedRun, ...]:
    """Read the plans in `path`, which must be for `gpu`.

    Raises:
        InvalidInput: The file is not such a file, or is for another GPU; the message names the
            entry.
    """
    document = read_json(path)
    if is_advice(document):
        with located(path, REMEDY):
            document = _plans_of_advice(document)
    listed = check_record(_RunList, document, str(path), REMEDY)
    with located(path, REMEDY):
        if listed.gpu != gpu:
            raise InvalidInput(
                f"its plans are for {listed.gpu}, and this device is {gpu}. Run them on their own "
                "GPU"
            )
        check_plans(listed.plans, gpu)
    return listed.plans


def check_plans(plans: Sequence[PlannedRun], gpu: str) -> None:
    """Check that no two runs of `plans` have one id, and that `gpu` can run them if it is a CPU."""
    for name, count in Counter(run.id for plan in plans for run in single_runs(plan)).items():
        if count > 1:
            raise InvalidInput(f"two runs have the id {name!r}")
    for plan in plans if gpu == "cpu" else ():
        with located(f"run {plan.id!r}"):
            if plan.capacity_mib is not None:
                raise InvalidInput("the memory of a CPU cannot be limited")
            if mps_servers(parse_sharing(plan.sharing), len(plan.workloads)):
                raise InvalidInput("a CPU is not shared by MPS. Use naive or serial with it")


def is_advice(document: Any) -> bool:
    """Return whether `document` is advice rather than a file of plans."""
    return isinstance(document, dict) and "objective" in document


def _plans_of_advice(document: Mapping[str, Any]) -> dict[str, Any]:
    """The plans of `document` as a plan file of validations; an id is of its jobs and its rank.

    MIG, phases, queues and power caps are left out: they are not set here.
    """

    def trained(job: Mapping[str, Any]) -> dict[str, Any]:
        script = {"script": job["script"]} if job.get("script") else {}
        return {**document["workloads"][job["job"]], **script}

    try:
        listed = [(plan, list(map(trained, plan["jobs"]))) for plan in document["plans"]]
        digested = json.dumps([(plan["sharing"], workloads) for plan, workloads in listed])
        digest = sha256(digested.encode()).hexdigest()[:8]
        plans = [
            {
                "id": f"advice-{digest}-plan{plan['rank']}",
                "sharing": plan["sharing"],
                "purpose": "validation",
                "workloads": workloads,
            }
            for plan, workloads in listed
            if plan.get("power_cap_w") is None
            and ((sharing := parse_sharing(plan["sharing"])).mode == "serial" or together(sharing))
        ]
        gpu, schema = document["gpu"], document["schema"]
    except (KeyError, TypeError, AttributeError) as error:
        raise InvalidInput(f"incomplete advice ({error!r})") from None
    if not plans:
        raise InvalidInput(
            "all plans of this advice are on MIG, in phases, in a queue or under a power cap. Ask "
            "for more: `advisor recommend`"
        )
    return {"schema": schema, "gpu": gpu, "plans": plans}


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
    small: tuple[NamedWorkload, ...] = ()
    large: tuple[NamedWorkload, ...] = ()


_HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class Timing:
    """Lengths of the parts of a measurement."""

    settle_s: float = 0.7  # in which all tenants train together before anything counts
    window_s: float = 1.0  # at least
    windows: int = 3
    lead_s: float = 0.2  # at least, before the first window: launch queues fill
    longest_s: float = 8.0  # of all windows together

    def __post_init__(self) -> None:
        check(self, ("settle_s", "lead_s", "longest_s"), _HOUR_S)
        check_number("window_s", self.window_s, _HOUR_S, 0.01)
        check_number("windows", self.windows, 100, 1)


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
            check_number("the number of tenants in degrees and equal_limits", degree, MAX_JOBS, 2)
        for limit in (*self.limits, *chain.from_iterable(self.equal_limits.values())):
            check_number("a limit in limits and equal_limits", limit, 100, 1e-9)
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
                raise InvalidInput("workloads are either included or listed. Leave one out")
            included = path.parent / name
            listed = check_record(_Listed, read_toml(included), str(included), REMEDY)
            document |= asdict(listed)
    with expecting("a campaign", read_bytes(path), path):
        campaign = check_record(Campaign, document, str(path), REMEDY)
    with located(path, REMEDY):
        key = campaign.gpu if campaign.gpu == "cpu" else gpu_meant(campaign.gpu).key
        folders = tuple(str(path.parent / each) for each in campaign.profile.known)
        for each in folders:
            if not is_folder(Path(each)):
                raise InvalidInput(f"profile.known: {each!r} is not a folder")
        return replace(campaign, gpu=key, profile=replace(campaign.profile, known=folders))


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
        raise InvalidInput(f"{key!r} not found, from which limits are drawn")
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
                f"{path}: the list drawn before differs ({changed[0]}), and scored runs are fixed "
                "beforehand. Restore the plan's seed, workloads, counts and limits, or choose "
                "another name or --out."
            )
    write_whole(path, record_text(_RunList(1, gpu, tuple(plans))))


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
