"""Whether processes that share a GPU run out of its memory, and which caps keep them from it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import erf, hypot, isfinite, sqrt
from statistics import NormalDist

import numpy as np

from advisor.errors import InvalidInput
from advisor.hardware.catalogue import Gpu
from advisor.prediction.memory import Bools, Need, pools_of
from advisor.prediction.mix_prediction import MixPrediction
from advisor.prediction.trace import Floats
from advisor.sharing import Mode
from advisor.sharing.traversal import mps_servers
from advisor.workload.plausible import check

Numbers = float | Floats

_MOST_SPREAD = 1000.0  # of a share of memory


def caches_mib(needs: Sequence[Need]) -> float:
    """Memory that processes together can give up beyond their least need.

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
    """By how many standard deviations processes exceed even odds of running out of memory.

    Errors of the processes are taken to be correlated, since one driver and one allocator cause
    them. Arrays are broadcast.

    Args:
        held_mib: Memory that the processes together hold when nothing stops them.
        cache_mib: As of `caches_mib`.
        capacity_mib: Memory that there is.
        edge: Share, width and sigma as of `Edge`.
        own_spread_mib: Standard deviation of estimated processes together.
    """
    share, width, sigma = edge
    even_mib = held_mib - (1 - share) * cache_mib
    spread_mib = np.hypot(np.hypot(sigma * held_mib, width * cache_mib), 1e-9 + own_spread_mib)
    return np.asarray((even_mib - capacity_mib) / spread_mib)


@dataclass(frozen=True, slots=True)
class Edge:
    """When processes that share memory run out of it, learnt from the outcomes of real runs.

    A process that is refused memory first gives up its own cache, so a mix may fit that would hold
    more if nothing stopped it. But no process gives up its cache for another.

    Attributes:
        share: How far from where all caches are given up (0) to what the processes would hold (1)
            the card must reach for even odds; see `caches_mib`.
        width: Standard deviation of that share from mix to mix.
        sigma: Standard deviation of the processes' memory, as a share of it.
        victims: How many processes of a mix that runs out are refused, on average.
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
        """Chance that `needs` together run out of `capacity_mib`, 0..1."""
        held_mib = sum(need.held_mib for need in needs)
        spread_mib = sum(need.spread_mib for need in needs)
        over = self._over(held_mib, caches_mib(needs), capacity_mib, spread_mib)
        return 0.5 * (1 + erf(float(over) / sqrt(2)))

    def allows(
        self, held_mib: Floats, cache_mib: Floats, capacity_mib: float, most_risk: float
    ) -> Bools:
        """Whether the chance to run out is at most `most_risk`, shape (sets,).

        Args:
            held_mib: What the processes of each set hold together, shape (sets,).
            cache_mib: As of `caches_mib`, in the same shape.
            capacity_mib: What there is.
            most_risk: 0..1, neither end.
        """
        over = self._over(held_mib, cache_mib, capacity_mib)
        return np.asarray(over <= NormalDist().inv_cdf(most_risk))

    def _over(
        self, held_mib: Numbers, cache_mib: Numbers, capacity_mib: float, spread_mib: float = 0.0
    ) -> Floats:
        edge = (self.share, self.width, self.sigma)
        return deviations_over(held_mib, cache_mib, capacity_mib, edge, spread_mib)

    def risk_of_each(self, needs: Sequence[Need], capacity_mib: float) -> list[float]:
        """Chance that each of `needs` is refused, by who asks when the card is full.

        Weights are asked for before the card is full; what goes up and down, as the size of the
        cache tells, until the end. Half goes evenly and half by caches: on an H200 that told
        who was refused better than even shares, and better than shares of all memory.
        """
        risk = self.risk(needs, capacity_mib)
        # Even shares where nobody has a cache.
        caches_mib = [need.held_mib - need.least_mib + 1e-9 for need in needs]
        parts = [(1 / len(needs) + each / sum(caches_mib)) / 2 for each in caches_mib]
        return [risk * min(1.0, self.victims * part) for part in parts]


def cautious_edge(sigma: float) -> Edge:
    """The edge without measured outcomes: no cache is given up, and all processes are refused."""
    return Edge(share=1.0, width=0.0, sigma=sigma, victims=float("inf"))


def edge_for(edges: Mapping[Mode, Edge], mode: Mode, processes: int, sigma: float) -> Edge:
    """The edge of processes that share one memory, of a whole GPU or an instance.

    Without trials of this kind, the edge of other mixes is taken: the driver refuses all processes
    alike, and a process alone is never refused for the cache of another.

    Args:
        edges: Those that trials taught; serial: of a process alone.
        mode: How they share.
        processes: Number of processes.
        sigma: Relative standard error of a process's memory, where no outcome was measured.
    """
    # Compute instances have a job each, and their memory in common.
    alike: Mode = "naive" if mode == "serial" else mode
    own = edges.get("serial" if processes == 1 else alike)
    return own or edges.get("naive") or cautious_edge(sigma)


def memory_caps(gpu: Gpu, mix: MixPrediction) -> dict[int, int]:
    """Memory cap in MiB of each job that needs one, by job number from 1.

    Caps are set only for jobs under MPS whose least memory fits together while what they would take
    without caps does not. What is left beyond the least is shared out in proportion to what each
    job would take.
    """
    clients = {job for server in mps_servers(mix.sharing, len(mix.jobs)) for job in server}
    caps: dict[int, int] = {}
    for pool in pools_of(mix, gpu):
        needs = {job: mix.jobs[job] for job in pool.jobs}
        held_mib = sum(each.memory_mib for each in needs.values())
        least_mib = sum(each.memory_min_mib for each in needs.values())
        if clients.issuperset(needs) and least_mib <= pool.capacity_mib < held_mib:
            part = (pool.capacity_mib - least_mib) / (held_mib - least_mib)
            for job, each in needs.items():
                more_mib = part * (each.memory_mib - each.memory_min_mib)
                caps[job + 1] = int(each.memory_min_mib + more_mib)
    return caps
