"""Predicts device memory of a mix, in both meanings, and the risk that it does not fit.

`memory_mib` is what a process holds when nothing stops it, its allocator's cache included, and
`memory_min_mib` what it needs: its live tensors at their peak and the CUDA context.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import nlargest
from math import erf, hypot, isfinite, sqrt
from statistics import NormalDist
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from advisor.errors import InvalidInput
from advisor.files.units import MOST_MIB, check
from advisor.hardware.gpus import Gpu
from advisor.hardware.partition import Partition, partition_of
from advisor.prediction.cache import cached_by_profiles
from advisor.prediction.prediction import Interval, MixPrediction
from advisor.prediction.trace import Floats
from advisor.sharing import Arrangement, Mode, SharedPartition, Sharing
from advisor.sharing.groups import memories, mps_servers, partitions
from advisor.workload.profile import Profile

Bools = NDArray[np.bool_]
FloatOrArray = TypeVar("FloatOrArray", float, Floats)

# What the MPS server holds of the device, as nvidia-smi listed it on an H200, driver 580.159.04.
MPS_SERVER_MIB = 66.0

# Convolutions use smaller workspaces where memory is short, and no job can use the pieces between
# live tensors: so other jobs give up a third as much of their caches. Of 270 mixes and 36 jobs
# alone on an H200 made to look like smaller cards, either set alone gives the same.
_RIGID = 0.33
# Share of its GPU time in convolutions from which a job counts as one of these: a choice.
_CONVOLUTIONAL = 0.1
# What a part of a GPU saves of an unknown context: its standard deviation as a share, a choice.
_UNSURE = 0.5

Z95 = 1.645  # standard normal quantile


@dataclass(frozen=True, slots=True)
class Context:
    """Size of CUDA contexts, fitted to measured processes.

    Attributes:
        usual_mib: Size to assume if the driver does not report it.
        per_sm_mib: Saving for each SM that an MPS limit or an instance takes away: the context
            keeps local memory for every thread that its SMs can hold. 4.4 under limits of an H200;
            4.2 on slices of an A100, by the memory that two networks held on them (MIGPerf).
    """

    usual_mib: float
    per_sm_mib: float

    def __post_init__(self) -> None:
        check(self, ("usual_mib", "per_sm_mib"), MOST_MIB)


@dataclass(frozen=True, slots=True)
class Need:
    """Device memory of one process, MiB.

    Attributes:
        held_mib: Memory held when nothing stops it.
        least_mib: Live tensors at their peak, and the context.
        spread_mib: Standard deviation, if it is an estimate.
        pliable: Share of its cache that it gives up, relative to a job of convolutions.
    """

    held_mib: float
    least_mib: float
    spread_mib: float = 0.0
    pliable: float = 1.0

    @property
    def cache_mib(self) -> float:
        """Return the memory beyond its least need that it gives up when memory is short."""
        return self.pliable * (self.held_mib - self.least_mib)

    def interval_mib(self, sigma: float) -> Interval:
        """Return the interval of `held_mib`; `sigma` is the relative standard error if measured."""
        wide = hypot(sigma, self.spread_mib / self.held_mib if self.held_mib else 0.0)
        ends = (upper_end_mib(self.held_mib, each) for each in (-wide, 0.0, wide))
        return Interval(*ends)


def need(profile: Profile, context: Context, *, under_mps: bool, sms_taken: float = 0) -> Need:
    """Return the memory of one process of `profile`, with contexts like `context`.

    An MPS limit or an instance takes `sms_taken` SMs away.
    """
    memory = profile.mps.memory if under_mps and profile.mps else profile.memory
    measured = memory.context_mib
    whole_mib = context.usual_mib if measured is None else measured
    spread = profile.other_batches.memory_spread if profile.other_batches else 0.0
    saved_mib = min(whole_mib, sms_taken * context.per_sm_mib)
    if memory.reserved_mib is None or memory.allocated_mib is None:
        # The size of its cache is unknown, and so is that of a context that can be smaller.
        held_mib = max(0.0, (memory.device_mib or 0.0) - saved_mib)
        return Need(held_mib, held_mib, hypot(spread * held_mib, _UNSURE * saved_mib))
    context_mib, tensors_mib = whole_mib - saved_mib, memory.reserved_mib
    least_mib = memory.allocated_mib + context_mib
    return Need(tensors_mib + context_mib, least_mib, spread * tensors_mib, _pliable(profile))


@cached_by_profiles
def _pliable(profile: Profile) -> float:
    if profile.trace is None:
        return _RIGID
    us = np.asarray(profile.trace.duration_us)
    of_conv = np.array(profile.trace.classes)[list(profile.trace.class_of)] == "conv"
    return 1.0 if float(us[of_conv].sum()) > _CONVOLUTIONAL * float(us.sum()) else _RIGID


def needs(
    profiles: Sequence[Profile], sharing: Arrangement, context: Context, gpu: Gpu
) -> list[Need]:
    """Return the memory of each of `profiles` under `sharing`, in order.

    The context on a compute instance is taken to be as large as on the whole GPU instance, which
    owns the memory: no smaller one was measured.
    """
    by_job: dict[int, Need] = {}
    for part in partitions(sharing, len(profiles)):
        partition = _partition(part, gpu)
        limited = [partition.sms - partition.limited(each).sms for each in part.sharing.limits]
        beyond = gpu.sms - _partition(replace(part, slices=None), gpu).sms
        for number, own in zip(part.jobs, limited or [0] * len(part.jobs), strict=True):
            under_mps, profile = part.sharing.under_mps, profiles[number - 1]
            by_job[number] = need(profile, context, under_mps=under_mps, sms_taken=beyond + own)
    return [by_job[number] for number in sorted(by_job)]


def upper_end_mib(held_mib: FloatOrArray, sigma: float) -> FloatOrArray:
    """Return the upper end of the memory of processes that are predicted to hold `held_mib`."""
    return held_mib * (1 + Z95 * sigma)


def leaves_free(upper_mib: FloatOrArray, capacity_mib: float, margin: float) -> Bools:
    """Return whether a share `margin` of the memory stays free if processes take `upper_mib`."""
    return np.asarray(upper_mib <= (1 - margin) * capacity_mib)


@dataclass(frozen=True, slots=True)
class Pool:
    """Memory of a GPU or MIG instance, the positions of the jobs on it, and how they share.

    Attributes:
        at_once: Most of the jobs that run at the same time, in any combination.
    """

    jobs: tuple[int, ...]
    capacity_mib: float
    mode: Mode
    at_once: int

    def most_mib(self, held_mib: Iterable[float]) -> float:
        """Return the most that jobs which run at the same time hold, by what each holds."""
        return sum(nlargest(self.at_once, held_mib))


def pools(gpu: Gpu, sharing: Sharing, jobs: int, mps_server_mib: float) -> list[Pool]:
    """Return the pools of `jobs` jobs, one group after another; jobs in turn have one each."""
    shared = []
    for parts in memories(sharing, jobs):
        servers = sum(part.sharing.under_mps for part in parts)
        capacity_mib = float(_partition(parts[0], gpu).memory_mib) - servers * mps_server_mib
        positions = tuple(number - 1 for part in parts for number in part.jobs)
        at_once = parts[0].at_once or len(positions)
        shared.append(Pool(positions, capacity_mib, parts[0].sharing.mode, at_once))
    return shared


def pools_of(mix: MixPrediction, gpu: Gpu) -> list[Pool]:
    """Return the pools that the jobs of `mix` share on `gpu`."""
    server_mib = MPS_SERVER_MIB if mix.mps_server_mib is None else mix.mps_server_mib
    return pools(gpu, mix.sharing, len(mix.jobs), server_mib)


def _partition(part: SharedPartition, gpu: Gpu) -> Partition:
    return partition_of(gpu, part.instance.profile if part.instance else None, part.slices)


Numbers = float | Floats

_MOST_SPREAD = 1000.0  # of a share of memory


def caches_mib(needs: Sequence[Need]) -> float:
    """Return the memory that processes together can give up beyond their least need.

    Their caches are full at different times, so the squares add up.
    """
    return hypot(*(each.cache_mib for each in needs))


def deviations_over(
    held_mib: Numbers,
    cache_mib: Numbers,
    capacity_mib: Numbers,
    edge: tuple[Numbers, Numbers, Numbers],
    own_spread_mib: Numbers = 0.0,
) -> Floats:
    """Return how many standard deviations processes are over even odds of running out of memory.

    Errors of the processes are taken to be correlated, because one driver and one allocator cause
    them. `edge` is share, width and sigma of an `Edge`; `own_spread_mib` the standard deviation of
    estimated processes together. Arrays are broadcast.
    """
    share, width, sigma = edge
    even_mib = held_mib - (1 - share) * cache_mib
    spread_mib = np.hypot(np.hypot(sigma * held_mib, width * cache_mib), 1e-9 + own_spread_mib)
    return np.asarray((even_mib - capacity_mib) / spread_mib)


@dataclass(frozen=True, slots=True)
class Edge:
    """Edge at which processes that share memory run out of it, learnt from outcomes of real runs.

    A process that is refused memory first gives up its own cache, so a mix may fit that would hold
    more if nothing stopped it. But no process gives up its cache for another.

    Attributes:
        share: Size of the card for even odds: 0 holds the processes without all caches, 1 with
            them; see `caches_mib`.
        width: Standard deviation of that share from mix to mix.
        sigma: Standard deviation of the processes' memory, as a share of it.
        victims: Mean number of processes that are refused in a mix that runs out.
    """

    share: float
    width: float
    sigma: float
    victims: float

    def __post_init__(self) -> None:
        if not (isfinite(self.share) and self.victims >= 0):
            raise InvalidInput(f"an edge is somewhere, and has victims, got {self}")
        check(self, ("width", "sigma"), _MOST_SPREAD)

    def risk(self, needs: Sequence[Need], capacity_mib: float) -> float:
        """Return the chance that `needs` together run out of `capacity_mib`, 0..1."""
        held_mib = sum(need.held_mib for need in needs)
        spread_mib = sum(need.spread_mib for need in needs)
        edge = self.share, self.width, self.sigma
        over = deviations_over(held_mib, caches_mib(needs), capacity_mib, edge, spread_mib)
        return 0.5 * (1 + erf(float(over) / sqrt(2)))

    def allows(
        self, held_mib: Floats, cache_mib: Floats, capacity_mib: float, most_risk: float
    ) -> Bools:
        """Return whether sets of processes run out at a chance of at most `most_risk`.

        Arrays have the shape (sets,); see `deviations_over`. `most_risk` is 0..1, neither end.
        """
        edge = self.share, self.width, self.sigma
        over = deviations_over(held_mib, cache_mib, capacity_mib, edge)
        return np.asarray(over <= NormalDist().inv_cdf(most_risk))

    def risk_of_each(self, needs: Sequence[Need], risk: float) -> list[float]:
        """Return the chance that each of `needs` is refused memory, if one is at that `risk`.

        Half of the risk goes evenly and half by caches, which jobs allocate until the end.
        """
        # Even shares where no process has a cache.
        caches_mib = [need.held_mib - need.least_mib + 1e-9 for need in needs]
        parts = [(1 / len(needs) + each / sum(caches_mib)) / 2 for each in caches_mib]
        return [risk * min(1.0, self.victims * part) for part in parts]


def cautious_edge(sigma: float) -> Edge:
    """Return the edge without outcomes: no cache is given up, and all processes are refused."""
    return Edge(share=1.0, width=0.0, sigma=sigma, victims=float("inf"))


def edge_for(edges: Mapping[Mode, Edge], mode: Mode, processes: int, sigma: float) -> Edge:
    """Return the edge of processes that share one memory, of a whole GPU or an instance.

    Without trials of this kind, the edge of other mixes is taken: the driver refuses all processes
    by the same rule, and a process alone is never refused for the cache of another. `sigma` is the
    relative standard error of a process's memory, where no outcome was measured.
    """
    # Compute instances have a job each, and their memory in common.
    shared: Mode = "naive" if mode == "serial" else mode
    own = edges.get("serial" if processes == 1 else shared)
    return own or edges.get("naive") or cautious_edge(sigma)


def memory_caps(gpu: Gpu, mix: MixPrediction) -> dict[int, int]:
    """Return the memory cap in MiB of each job that needs one, by job number from 1.

    Caps are set only for jobs under MPS that fit together with their least memory, and not without
    caps. Memory beyond the least is shared out in proportion to the jobs' caches.
    """
    clients = {job for server in mps_servers(mix.sharing, len(mix.jobs)) for job in server}
    caps: dict[int, int] = {}
    for pool in pools_of(mix, gpu):
        held_mib = {job: mix.jobs[job].memory_mib for job in pool.jobs}
        least_mib = pool.most_mib(mix.jobs[job].memory_min_mib for job in pool.jobs)
        if clients.issuperset(pool.jobs) and (
            least_mib <= pool.capacity_mib < pool.most_mib(held_mib.values())
        ):
            caps |= _parts_mib(mix, pool, held_mib)
    return caps


def memory_requests(gpu: Gpu, mix: MixPrediction) -> dict[int, int]:
    """Return the memory in MiB to reserve for each job, by job number from 1.

    It is the upper end of what the job holds, or less where jobs that run at the same time would
    reserve more than the GPU or instance has. They need no less than their least memory.
    """
    requests: dict[int, int] = {}
    for pool in pools_of(mix, gpu):
        jobs = {job: mix.jobs[job] for job in pool.jobs}
        upper_mib = {
            job: max(own.memory_mib, own.memory_interval_mib.p95) for job, own in jobs.items()
        }
        requests |= _parts_mib(mix, pool, upper_mib)
    return requests


def _parts_mib(mix: MixPrediction, pool: Pool, wanted_mib: Mapping[int, float]) -> dict[int, int]:
    """MiB of each job by number: what it wants, as far as the memory of `pool` is enough."""
    needs_mib = {job: mix.jobs[job].memory_min_mib for job in pool.jobs}
    least_mib, most_mib = pool.most_mib(needs_mib.values()), pool.most_mib(wanted_mib.values())
    part = 1.0
    if most_mib > pool.capacity_mib:
        part = max(0.0, (pool.capacity_mib - least_mib) / (most_mib - least_mib))
    return {
        job + 1: int(own_mib + part * (wanted_mib[job] - own_mib))
        for job, own_mib in needs_mib.items()
    }
