"""``advisor campaign``: measures a campaign from its plan file to its summary."""

import argparse
from argparse import Namespace
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

from advisor.english import counted, is_or_are
from advisor.errors import AdvisorError, InvalidInput
from advisor.measure.campaign.campaign_file import Campaign, read_campaign
from advisor.measure.campaign.crew import Crew
from advisor.measure.campaign.draw import drawn_plans
from advisor.measure.campaign.drawn_list import counts, write_list
from advisor.measure.campaign.ledger import CampaignProgress, Ledger
from advisor.measure.campaign.runner import (
    LocalRunner,
    Runner,
    RunnerSettings,
    Task,
    start_all,
    stop_all,
)
from advisor.measure.campaign.steadiness import Steadiness
from advisor.measure.campaign.task_queue import TaskQueue
from advisor.measure.process.claimed_device import device_at_hand, devices_in
from advisor.measure.process.cores import allowed_cores, cores_of_each, split_cores
from advisor.measure.process.option_numbers import ABOVE_0
from advisor.measure.process.provenance import command_line
from advisor.measure.process.supervisor import say
from advisor.measure.process.windows import Timing
from advisor.measure.shared.bench import cores_of_tenants
from advisor.measure.shared.planned_run import Measurable, PlannedMix, PlannedRun, mixes_of
from advisor.workload.files import user_folder
from advisor.workload.spec import Workload
from advisor.workload.writing import new_path, writable_folder


def run(argv: Sequence[str]) -> int:
    """Measure the campaign that the words `argv` name; the exit code. Runs under a supervisor.

    Raises:
        InvalidInput: Plan, words or files are invalid.
        GpuUnavailable: A device cannot be used.
    """
    asked = _parsed(argv)
    campaign = read_campaign(asked.plan)
    home = user_folder("profiles") / campaign.gpu
    asked.out, asked.profiles = asked.out or home / "runs", asked.profiles or home
    plans = drawn_plans(campaign)
    for folder in (asked.out, asked.profiles):
        writable_folder(folder)
    write_list(asked.out / f"{campaign.name}-drawn.json", campaign.gpu, plans)
    say(counts(plans))
    steadiness = Steadiness([asked.profiles, *map(Path, campaign.profile.known)])
    ledger = Ledger(asked.out, campaign.name, asked.profiles, steadiness)
    unprofiled, mixes = _todo(campaign, plans, ledger, steadiness)
    say(_how_long(len(unprofiled), mixes, asked))
    if asked.dry_run:
        return 0
    if not unprofiled and not mixes:
        say(steadiness.summary())
        return 0
    command = command_line("advisor.campaign", argv)
    with _runners(asked, campaign, command) as (runners, fewest):
        _refuse_too_big(unprofiled, mixes, fewest, campaign.gpu)
        start_all(runners)
        return _measure(runners, (*unprofiled, *mixes), ledger, steadiness, asked.deadline)


# Seconds of a profile, of a run, and of each tenant of it, on an H200 with sixteen cores.
_PROFILE_S, _RUN_S, _TENANT_S = 25.0, 4.0, 1.0


def _how_long(profiles: int, mixes: Sequence[Measurable], asked: Namespace) -> str:
    """About how long all this takes, in words."""
    each_s = [_RUN_S + _TENANT_S * len(mix.workloads) for mix in mixes]
    minutes = (profiles * _PROFILE_S + sum(each_s)) / 60
    devices = 1 if asked.ray else len(devices_in(asked.devices or "0"))
    todo = f"{counted(profiles, 'profile')} and {counted(len(mixes), 'run')} to do"
    return f"{todo}: about {minutes / devices:.0f} min on {counted(devices, 'device')}"


def _todo(
    campaign: Campaign, plans: Sequence[PlannedRun], ledger: Ledger, steadiness: Steadiness
) -> tuple[list[Workload], list[Measurable]]:
    """Workloads to profile and mixes to run that are not measured yet."""
    wanted = [mix for plan in plans for mix in mixes_of(plan)]
    mixes = [mix for mix in wanted if mix.id not in ledger.done]
    if len(mixes) < len(wanted):
        done = len(wanted) - len(mixes)
        say(f"{counted(done, 'run')} {is_or_are(done)} done already and not done again")
    used = dict.fromkeys(each for mix in wanted for each in mix.workloads)
    listed = dict.fromkeys((*campaign.small, *campaign.large, *used))
    refuse_profiles(steadiness, {each.name for each in listed})
    unprofiled = [each for each in listed if each.name not in steadiness.profiled]
    return unprofiled if campaign.profile.missing else [], mixes


def refuse_profiles(steadiness: Steadiness, used: Collection[str]) -> None:
    """Refuse files that are not profiles but have the name of a workload in `used`.

    Raises:
        InvalidInput: There is one; for other names a warning is printed.
    """
    for name, why in sorted(steadiness.refused.items()):
        if name in used:
            raise InvalidInput(why)
        say(f"warning: {why}")


def _refuse_too_big(
    unprofiled: Sequence[Workload], mixes: Sequence[Measurable], fewest: tuple[int, ...], key: str
) -> None:
    """Refuse tasks that need more cores than there are, before anything is started."""
    kind = "cpu" if key == "cpu" else "cuda"
    for mix in mixes:
        cores_of_tenants(mix, fewest, kind)
    for each in unprofiled:
        cores_of_each([each.cores], fewest, share=kind == "cpu")


@contextmanager
def _runners(
    asked: Namespace, campaign: Campaign, command: str
) -> Iterator[tuple[Sequence[Runner], tuple[int, ...]]]:
    """Runners that are stopped when the block ends, and the cores of the one with fewest."""
    timing = Timing(**asdict(campaign.timing))
    settings = RunnerSettings("cpu", (), timing, campaign.profile.probe, command)
    if asked.ray is not None:
        from advisor.measure.campaign.ray_cluster import cluster_runners

        with cluster_runners(asked, campaign.gpu, settings) as found:
            yield found
        return
    devices = devices_in(asked.devices or ("cpu" if campaign.gpu == "cpu" else "0"))
    for each in devices:
        _refuse_other(each, campaign.gpu)
    shares = _shares(asked.cores, devices)
    runners = [
        LocalRunner(
            f"cpu{number}" if device == "cpu" else device,
            replace(settings, device=device, cores=cores),
        )
        for number, (device, cores) in enumerate(zip(devices, shares, strict=True))
    ]
    try:
        yield runners, min(shares, key=len)
    finally:
        stop_all(runners)


def _refuse_other(device: str, key: str) -> None:
    found = device_at_hand(device)
    if found.key != key:
        raise InvalidInput(
            f"the plan is for {key}, and device {device} is {found.key} ({found.name}). Choose "
            f"other --devices, or correct the plan's gpu."
        )


def _shares(cores: str | None, devices: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    allowed = allowed_cores(cores)
    if devices[0] == "cpu":  # a trial, whose figures are not kept
        return (allowed,) * len(devices)
    return split_cores(allowed, len(devices))


def _measure(
    runners: Sequence[Runner],
    todo: Sequence[Task],
    ledger: Ledger,
    steadiness: Steadiness,
    deadline_s: float | None,
) -> int:
    todo = _without_controls(todo) if len(runners) == 1 else todo
    idle_controls = [
        task for task in todo if isinstance(task, PlannedMix) and task.id.endswith("-idle")
    ]
    busy = [task for task in todo if task not in idle_controls]
    names = [runner.name for runner in runners]
    queue = TaskQueue(busy, idle_controls, ledger.homes, names)
    progress = CampaignProgress(len(todo), len(runners), deadline_s, steadiness)
    Crew(queue, ledger, progress).work(runners)
    say(progress.summary())
    if queue.left:
        say(f"{queue.left} left; the same command does them")
    say(steadiness.summary())
    return AdvisorError.exit_code if progress.failed else 0


def _without_controls(todo: Sequence[Task]) -> list[Task]:
    kept = [
        task for task in todo if not (isinstance(task, PlannedMix) and task.purpose == "control")
    ]
    if len(kept) < len(todo):
        out = len(todo) - len(kept)
        say(f"{counted(out, 'control run')} left out: these need two devices or more")
    return kept


def _parsed(argv: Sequence[str]) -> Namespace:
    """The options in the words `argv`.

    Raises:
        SystemExit: They ask for help (0), or cannot be parsed (2).
    """
    parser = argparse.ArgumentParser(
        prog="advisor campaign",
        description="Measures the runs of a plan on all GPUs asked for, out of one queue. What the "
        "folder has already is not done again. Also starts as `python -m advisor.campaign`, which "
        "needs torch, timm and nvidia-ml-py only.",
        epilog="Exit codes: 0 all measured or the deadline is near, 1 some failed, 2 wrong use, "
        "4 no GPU to use.",
    )
    add = parser.add_argument
    add("plan", type=Path, metavar="PLAN.toml", help="what to measure")
    add("--out", type=new_path, metavar="DIR", help="folder of runs [your own, read by advisor]")
    add("--profiles", type=Path, metavar="DIR", help="folder of profiles, read, and where missing "
        "ones go [your own, read by advisor]")  # fmt: skip
    add("--devices", metavar="LIST", help="GPU indices or UUIDs, e.g. 0-7 or 0,2; or cpu,cpu to "
        "try out with two runners [0; with --ray, all that are free]")  # fmt: skip
    add("--cores", help="host cores, split evenly among the devices, e.g. 0-63 [all]")
    add(
        "--deadline", type=ABOVE_0, metavar="S", help="start nothing that would end later than this"
    )
    add("--dry-run", action="store_true", help="write the drawn list and count it; measure nothing")
    add("--ray", metavar="ADDRESS", help="measure on the GPUs of this Ray cluster, e.g. auto; "
        "advisor must be installed on its nodes")  # fmt: skip
    return parser.parse_args(argv)
