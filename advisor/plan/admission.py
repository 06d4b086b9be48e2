"""Admission: which jobs may join those that run on a GPU, or on one of several, at what price.

Running jobs keep their GPU, limits and MIG instances.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import product
from math import isfinite
from typing import Annotated, assert_never

from advisor.documents import As, Inline, Mark
from advisor.errors import InvalidInput, NothingFits, counted, in_percent
from advisor.hardware.gpus import Gpu
from advisor.hardware.machine import GpuProcess, LiveGpu
from advisor.hardware.mig import place
from advisor.plan import step
from advisor.plan.forecast import Mixes, forecast
from advisor.plan.job_sets import Kinds, Members, with_one, without
from advisor.plan.rules import (
    MAX_SLOWDOWN,
    UNCONDITIONAL,
    Conditions,
    broken_rule,
    memory_problem,
    refuse_protected,
)
from advisor.plan.values import LeftOut, Standing
from advisor.prediction.mig_instances import placed
from advisor.prediction.mix_steps import Predicts
from advisor.prediction.prediction import MixPrediction
from advisor.sharing import Arrangement, Hybrid, Instance, Mps, Naive, Part, Place, Sharing
from advisor.sharing.groups import check_count, instance_sets, restricted, without_phases
from advisor.workload.job import Job
from advisor.workload.profile import Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """The jobs that run on a GPU, and how they share it.

    Attributes:
        sharing: Naive, MPS with or without limits, or MIG instances.
        free_mib: Free memory of the GPU now; None: the driver did not report what runs.

    Raises:
        InvalidInput: These jobs cannot share like this.
    """

    jobs: Annotated[tuple[Job, ...], As("name")]
    sharing: Annotated[Sharing, Mark.TEXT]
    free_mib: float | None = None

    def __post_init__(self) -> None:
        if not self.jobs:
            raise InvalidInput("no running job is named. Name one by --running, or leave it out.")
        if self.sharing.mode == "serial" or without_phases(self.sharing) is None:
            raise InvalidInput(
                f"{self.sharing}: running jobs have already started, so none of them waits. Write "
                "--sharing naive, mps, mps=50,50 or mig=3g,4g."
            )
        check_count(self.sharing, len(self.jobs))


# Share by which a process may differ in memory from a profile that it is compared to.
_SIMILAR = 0.03
_NEAREST = 3


def running_now(
    live: LiveGpu, named: Sequence[Job], held_mib: Mapping[str, float]
) -> Running | None:
    """Return the jobs that run on `live`, as `named`: a driver reports processes, not jobs.

    None where nothing runs. `held_mib`, the memory of one process of each profile by name, suggests
    names.

    Raises:
        InvalidInput: `named` are more or fewer than the processes, or the GPU has MIG instances.
    """
    processes = tenants(live)
    if live.mig_enabled:
        raise InvalidInput(
            f"GPU {live.index} has MIG instances, and the driver does not report which job is on "
            "which. Describe the running jobs without --now: --running JOB,JOB --sharing "
            "mig=4g.71gb@0,..."
        )
    if len(named) != len(processes):
        listed = []
        for each in processes:
            similar = " or ".join(similar_in_memory(each, held_mib)[:_NEAREST])
            memory = f" with {each.memory_mib:,.0f} MiB" if each.memory_mib is not None else ""
            listed.append(f"pid {each.pid}{memory}{f', as much as {similar}' if similar else ''}")
        raise InvalidInput(
            f"{counted(len(processes), 'process')} found on GPU {live.index} "
            f"({'; '.join(listed) or 'none'}), and {counted(len(named), 'job')} named. The driver "
            "reports processes, not what they train, and different jobs may hold as much memory. "
            "Name the job of each process (--running JOB,JOB)."
        )
    if not processes:
        return None
    free_mib = live.memory_total_mib - live.memory_used_mib
    served = any(each.role == "server" and each.serves(live.uuid) for each in live.mps)
    return Running(jobs=tuple(named), sharing=Mps() if served else Naive(), free_mib=free_mib)


def tenants(live: LiveGpu) -> list[GpuProcess]:
    """List the processes on `live` that may be jobs: all but MPS servers."""
    servers = {each.pid for each in live.mps}
    return [each for each in live.processes if each.pid not in servers]


def recognised(live: LiveGpu, jobs: Sequence[Job]) -> tuple[int, ...]:
    """Return the positions of the `jobs` that seem to run on `live`, judged by their memory.

    A process whose memory fits jobs of several names is left out.
    """
    held_mib = held_alone_mib(job.profile for job in jobs)
    positions: list[int] = []
    for process in tenants(live):
        names = similar_in_memory(process, held_mib)
        left = [at for at, job in enumerate(jobs) if [job.name] == names and at not in positions]
        positions += left[:1]
    return tuple(sorted(positions))


def held_alone_mib(profiles: Iterable[Profile]) -> dict[str, float]:
    """Map the memory of one process of each profile, by name, where it is known."""
    return {each.name: each.memory.device_mib for each in profiles if each.memory.device_mib}


def similar_in_memory(process: GpuProcess, held_mib: Mapping[str, float]) -> list[str]:
    """Name the jobs whose `held_mib` is like the memory of `process`, nearest first."""
    if not process.memory_mib:
        return []
    off = {name: abs(mib / process.memory_mib - 1) for name, mib in held_mib.items()}
    return sorted((name for name in off if off[name] <= _SIMILAR), key=off.__getitem__)


# Limits that are tried for jobs added under MPS, in per cent, besides no limit.
ADDED_LIMITS = (14.0, 28.0, 43.0, 57.0)
# Most jobs that are added on MIG instances of their own.
MOST_INSTANCES = 3


def ways_to_join(sharing: Arrangement, before: int, added: int, gpu: Gpu) -> Iterator[Arrangement]:
    """Yield sharings by `before` jobs, which share `gpu` by `sharing` now, and `added` jobs."""
    match sharing.mode:
        case "mps":
            yield Mps()
            yield from (Mps((100.0,) * before + (each,) * added) for each in ADDED_LIMITS)
        case "mps-limits":
            for limit in (100.0, *ADDED_LIMITS):
                yield Mps(sharing.limits + (limit,) * added)
        case "mig" | "hybrid":
            (taken,) = instance_sets(sharing)
            if added > MOST_INSTANCES:
                return
            # Each added job has an instance of its own, in the free part of the GPU.
            for names in product([profile.name for profile in gpu.mig], repeat=added):
                try:
                    starts = place(gpu, (*taken.instances, *map(Instance, names)))
                except NothingFits:
                    continue
                new = enumerate(starts[len(taken.instances) :], start=before + 1)
                places = (Place(instance, (Part((job,)),)) for job, instance in new)
                yield Hybrid((*taken.places, *places))
        case "serial" | "naive" | "phases" | "queue":
            yield Naive()
        case _:
            assert_never(sharing.mode)


_NO_ROOM = "MIG has no room left for another instance"
_UNDER_MPS = (
    "Under MPS some may join: --sharing mps lists them. MPS serves only processes that start "
    "under it, so restart the running jobs: `advisor export {} --gpu {} --sharing mps` prints the "
    "commands. Or use another GPU."
)


@dataclass(frozen=True, slots=True)
class Addition:
    """A set of jobs that may be added to those that run.

    Attributes:
        prediction: Prediction for all jobs together, the running ones first.
        gpu_number: The GPU that they join, from 0 in the order of the running jobs.
        slowed_by: Largest share by which the median step of a running job gets longer.
        work_added: Throughput of the added jobs together, each counted as 1 when it runs alone.
        late: Names of all jobs that would miss their deadlines with median steps, if no epoch of
            any job were done yet; None: a job has a deadline, and the length of a job is unknown.
    """

    added: Annotated[tuple[Job, ...], As("name")]
    prediction: Annotated[
        MixPrediction,
        Inline(
            "sharing",
            "jobs",
            "memory_total_mib",
            "memory_capacity_mib",
            "oom_probability",
            "confirmed_on_hardware",
        ),
    ]
    gpu_number: int
    slowed_by: float
    slowed_job: str
    work_added: float
    late: tuple[str, ...] | None = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Additions:
    """The sets of jobs that may be added, largest throughput first; late ones come last.

    Attributes:
        running: What runs on each GPU.
        before: The prediction for it, as it is now.
        left_out: Jobs that may not be added to any GPU, not even alone, and why.
    """

    gpu: Annotated[Gpu, As("key")]
    running: tuple[Running, ...]
    before: tuple[MixPrediction, ...]
    max_slowdown: float
    plans: tuple[Addition, ...]
    left_out: tuple[LeftOut, ...]
    standing: Annotated[Standing, Mark.AT_TOP] = field(default_factory=Standing)


def additions(
    running: Sequence[Running],
    offered: Sequence[Job],
    gpu: Gpu,
    predictor: Predicts,
    max_slowdown: float = MAX_SLOWDOWN,
    conditions: Conditions = UNCONDITIONAL,
) -> Additions:
    """Find every set of the jobs `offered` that may be added to those that run on equal GPUs.

    `max_slowdown` is the share by which a running job's median step may get longer.

    Raises:
        InvalidInput: A share is wrong, one of `offered` is protected, or nothing runs.
        NothingFits: `running` does not fit, or none of `offered` may be added.
    """
    if not (isfinite(max_slowdown) and max_slowdown >= 0):
        raise InvalidInput(
            f"--max-slowdown is a share of at least 0, as 0.05 for 5 %, got {max_slowdown:g}"
        )
    refuse_protected(offered)
    if not running:
        raise InvalidInput("no GPU runs a job. Ask for plans: Advisor.recommend(jobs).")
    joined = [
        _Joined(each, number, gpu, predictor, max_slowdown, conditions)
        for number, each in enumerate(running)
    ]
    answers = [each.sets(offered) for each in joined]
    allowed = [addition for own, _ in answers for addition in own]
    refused = Counter(each.sharing for _, own in answers for each in own)
    left_out = [each for each in answers[0][1] if refused[each.sharing] == len(running)]
    if not allowed:
        (first, *others), reasons = running, "; ".join(f"{e.sharing}: {e.why}" for e in left_out)
        full = all(each.why == _NO_ROOM for each in left_out)
        more = "" if full else "Allow more with --max-slowdown. "
        remedy = "Or use another GPU."
        if first.free_mib is None:  # else the driver, and not the user, gave the sharing
            remedy = f"If the GPU is not shared by {first.sharing}, pass --sharing. {remedy}"
            with suppress(NothingFits):
                if first.sharing.mode == "naive" and not others:
                    under_mps = replace(first, sharing=Mps())
                    additions([under_mps], offered, gpu, predictor, max_slowdown, conditions)
                    remedy = _UNDER_MPS.format(
                        " ".join(
                            name if n == 1 else f"{name}:{n}"
                            for name, n in Counter(
                                job.name for job in (*first.jobs, *offered)
                            ).items()
                        ),
                        gpu.key,
                    )
        raise NothingFits(f"none of the jobs may join: {reasons}. Let them wait. {more}{remedy}")
    allowed.sort(key=lambda each: (bool(each.late), -each.work_added, each.slowed_by))
    return Additions(
        gpu=gpu,
        running=tuple(running),
        before=tuple(each.before for each in joined),
        plans=tuple(allowed),
        max_slowdown=max_slowdown,
        left_out=tuple(left_out),
    )


# All sets of six different jobs are tried.
_MOST_OF_A_SIZE = 20


class _Joined:
    """Predicts the running jobs together with added ones."""

    def __init__(
        self,
        running: Running,
        number: int,
        gpu: Gpu,
        predictor: Predicts,
        max_slowdown: float,
        conditions: Conditions,
    ) -> None:
        self.running, self._number = running, number
        self.gpu, self._predictor = gpu, predictor
        self._max_slowdown, self._conditions = max_slowdown, conditions
        jobs = range(len(running.jobs))  # `Running` refuses phases
        self._sharing = placed(restricted(running.sharing, jobs), gpu)
        self.before = predictor.predict([job.profile for job in running.jobs], self._sharing)
        if problem := memory_problem(self.before, gpu):
            raise NothingFits(
                f"these jobs cannot run together on {gpu.key}: {problem}. Name the running jobs "
                "with --running, and their sharing with --sharing."
            )

    def sets(self, offered: Sequence[Job]) -> tuple[list[Addition], list[LeftOut]]:
        """All sets that may be added, and the jobs that fit in none.

        A set is tried only if all its subsets of one job less may be added: another job never
        speeds up those that run. Of more than `_MOST_OF_A_SIZE` sets of a size, those are tried
        whose jobs add most one by one.
        """
        kinds, additions, left_out = Kinds(offered), list[Addition](), list[LeftOut]()
        larger: set[Members] = {(kind,) for kind in range(len(kinds.jobs))}
        worth = [0.0] * len(kinds.jobs)
        while larger:
            allowed = []
            by_worth = sorted(larger, key=lambda own: (-sum(worth[kind] for kind in own), own))
            for group in by_worth[: _MOST_OF_A_SIZE if any(worth) else None]:
                answer = self._best(kinds.of(group))
                if isinstance(answer, Addition):
                    allowed.append(group)
                    additions.append(answer)
                elif len(group) == 1:
                    left_out.append(LeftOut(kinds.jobs[group[0]].name, answer))
            if not any(worth):
                for (kind,), addition in zip(allowed, additions, strict=True):
                    worth[kind] = addition.work_added
            sets = {with_one(group, kind) for group in allowed for kind in range(len(kinds.jobs))}
            larger = {
                group
                for group in sets
                if kinds.allows(group) and all(without(group, kind) in allowed for kind in group)
            }
        return additions, left_out

    def _best(self, added: Sequence[Job]) -> Addition | str:
        """The way to add `added` that gives them most throughput; else why none is allowed."""
        jobs, before = [*self.running.jobs, *added], len(self.running.jobs)
        ways = ways_to_join(self._sharing, before, len(added), self.gpu)
        answers = [self._answer(jobs, sharing, len(added)) for sharing in ways]
        if allowed := [each for each in answers if isinstance(each, Addition)]:
            return max(allowed, key=lambda each: (not each.late, each.work_added))
        return next((each for each in answers if isinstance(each, str)), _NO_ROOM)

    def _answer(self, jobs: Sequence[Job], sharing: Arrangement, added: int) -> Addition | str:
        step()
        if problem := broken_rule(jobs, sharing, self.gpu, self._conditions):
            return problem
        after = self._predictor.predict([job.profile for job in jobs], sharing)
        if problem := memory_problem(after, self.gpu, self._conditions.memory_margin):
            return problem
        new, free_mib = after.jobs[-added:], self.running.free_mib
        held_mib = sum(job.memory_interval_mib.p95 for job in new)
        if free_mib is not None and held_mib > free_mib:
            return f"takes up to {held_mib:,.0f} MiB, and {free_mib:,.0f} MiB are free now"
        pairs = zip(after.jobs, self.before.jobs, strict=False)
        slowed_by, job = max((now.step_s.p50 / was.step_s.p50 - 1, now.job) for now, was in pairs)
        if slowed_by > self._max_slowdown:
            return (
                f"slows {job} by {in_percent(slowed_by)} under {after.sharing}; at most "
                f"{in_percent(self._max_slowdown)} is allowed"
            )
        late: tuple[str, ...] | None = ()
        if any(each.deadline_s is not None for each in jobs):
            plan = forecast(Mixes(jobs, self._predictor), sharing)
            late = tuple(jobs[at].name for at in sorted(plan.late("p50")))
            late = None if plan.ends_s is None else late
        work = sum(1 / each.slowdown for each in new)
        new_jobs = tuple(jobs[-added:])
        return Addition(new_jobs, after, self._number, slowed_by, job, work, late)
