"""Draws the runs of a campaign from its seed, so that scored runs are not chosen."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from random import Random

from advisor.english import counted, is_or_are
from advisor.errors import InvalidInput
from advisor.measure.campaign.campaign_file import MODES, Campaign, Count, Mode
from advisor.measure.shared.planned_run import PlannedRun, mixes_of
from advisor.measure.shared.run_list_file import refuse_duplicate_ids
from advisor.workload.spec import Workload

BUSY, IDLE = "busy", "idle"

# Busy controls come in this share of the plan, while enough other runs keep the neighbours busy.
_BUSY_UNTIL = 0.8


def drawn_plans(campaign: Campaign) -> tuple[PlannedRun, ...]:
    """Everything that `campaign` measures, in the order in which it should be measured.

    Drawn runs come first, in random order, then those that the plan names, with solo runs and busy
    controls between them; repeats of drawn runs and idle controls come last. Runs added to the plan
    later do not change what is drawn.

    Raises:
        InvalidInput: There are too few workloads for what is to be drawn, or two runs of one id.
    """
    random = Random(campaign.seed)
    solos = _solos(campaign, random)
    drawn = _drawn(campaign, random)
    again = _repeats(campaign, drawn, random)
    between = _with_controls(_with_solos([*drawn, *campaign.runs], solos, campaign), campaign)
    plans = (*between, *again, *_controls(campaign, IDLE))
    refuse_duplicate_ids([mix.id for plan in plans for mix in mixes_of(plan)])
    return plans


def _solos(campaign: Campaign, random: Random) -> Iterator[Workload]:
    """Workloads to run alone: all of them in random order, then all again."""
    workloads = [*campaign.small, *campaign.large]
    random.shuffle(workloads)
    # A generator of its own, so that the number of solo runs changes no repeat.
    later = Random(f"{campaign.seed} solos")
    return _rounds(workloads, later, campaign.solos_of_each)


def _rounds(workloads: list[Workload], random: Random, most: int) -> Iterator[Workload]:
    done = 0
    while workloads and (done < most or not most):
        yield from reversed(workloads)
        random.shuffle(workloads)
        done += 1


def _drawn(campaign: Campaign, random: Random) -> list[PlannedRun]:
    runs = [
        run
        for degree, counts in campaign.degrees.items()
        for mode in MODES
        for run in _of_mode(campaign, degree, mode, counts.get(mode, Count()), random)
    ]
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
    if mode == "equal":
        equal = campaign.equal_limits.get(degree, ())
        limits = [random.choice(_given(equal, f"equal_limits.{degree}"))] * degree
    else:
        limits = random.choices(_given(campaign.limits, "limits"), k=degree)
    return "mps=" + ",".join(f"{limit:g}" for limit in limits)


def _given(limits: Sequence[float], key: str) -> Sequence[float]:
    if not limits:
        raise InvalidInput(f"{key!r} is missing, and limits are to be drawn from it")
    return limits


def _repeats(campaign: Campaign, drawn: Sequence[PlannedRun], random: Random) -> list[PlannedRun]:
    if campaign.repeats > len(drawn):
        raise InvalidInput(
            f"'repeats' is {campaign.repeats}, and only {counted(len(drawn), 'run')} "
            f"{is_or_are(len(drawn))} drawn. Repeat fewer"
        )
    return [
        replace(plan, id=f"repeat-of-{plan.id}", purpose="repeat", repeats=plan.id)
        for plan in random.sample(drawn, campaign.repeats)
    ]


def _with_solos(
    plans: list[PlannedRun], solos: Iterator[Workload], campaign: Campaign
) -> list[PlannedRun]:
    mixed = []
    for number, plan in enumerate(plans):
        mixed.append(plan)
        if campaign.solo_every and number % campaign.solo_every == 0:
            mixed += [
                PlannedRun(
                    id=f"{campaign.prefix}solo-{number:03}",
                    sharing="naive",
                    purpose="solo",
                    workloads=(workload,),
                )
                for workload in islice(solos, 1)
            ]
    return mixed


def _with_controls(plans: list[PlannedRun], campaign: Campaign) -> list[PlannedRun]:
    """`plans` with the busy controls spread evenly over most of them."""
    controls = _controls(campaign, BUSY)
    mixed = list(plans)
    for number, control in reversed(list(enumerate(controls))):
        mixed.insert(int(_BUSY_UNTIL * len(plans) * (number + 1) / (len(controls) + 1)), control)
    return mixed


def _controls(campaign: Campaign, neighbours: str) -> list[PlannedRun]:
    plans = [each.plan for each in campaign.control for _ in range(each.copies)]
    return [
        replace(plan, id=f"{campaign.prefix}control-{plan.id}-{number}-{neighbours}")
        for number, plan in enumerate(plans, start=1)
    ]


def idle_twin(name: str) -> str:
    """The id of the idle control that belongs to the control called `name`."""
    return name.removesuffix(BUSY).removesuffix(IDLE) + IDLE
