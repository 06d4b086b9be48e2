"""The result of a simulation: when each job ends, what the GPUs do meanwhile, what it costs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import fsum
from statistics import median

from advisor.prediction.mix_prediction import LEVELS, Interval
from advisor.sharing import Sharing
from advisor.timeline.event_loop import History, PlacedJobs
from advisor.timeline.queue_policies import Policy
from advisor.workload.job import Job
from advisor.workload.profile import Profile

_HOUR_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedJob:
    """The simulated times of one job.

    Attributes:
        gpu: By number, from 0.
        place: Of that GPU, by number, from 0.
        start_s: When it starts if all steps take their median time.
        end_s: When it ends; the errors of all jobs are assumed to be fully correlated.
    """

    job: Job
    arrival_s: float
    gpu: int
    place: int
    start_s: float
    end_s: Interval

    @property
    def completion_s(self) -> float:
        """Seconds from its arrival until its end."""
        return self.end_s.p50 - self.arrival_s

    @property
    def wait_s(self) -> float:
        return self.start_s - self.arrival_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What one GPU does while the same jobs run on it.

    Attributes:
        jobs: Positions of the jobs that run, shape (jobs,).
        speeds: Steps a second of each, shape (jobs,).
        memory_mib: Memory of their processes together.
        gract: Share of time in which the engine is active, 0..1; None if not measured.
        smact: Mean share of SMs with work, 0..1; None if not measured.
        power_w: Of the whole GPU; None if not measured.
    """

    gpu: int
    start_s: float
    end_s: float
    jobs: tuple[int, ...]
    speeds: tuple[float, ...]
    memory_mib: float
    gract: float | None
    smact: float | None
    power_w: float | None

    @property
    def seconds(self) -> float:
        return self.end_s - self.start_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """Jobs on equal GPUs from second 0 until the last one ends; medians unless said otherwise.

    Attributes:
        gpu: Catalogue key.
        gpus: Number of GPUs.
        jobs: In the order in which they were given.
        usage: Of all GPUs, in the order of the ends, without idle GPUs.
        makespan_s: Until the last job ends.
        energy_j: Of all GPUs until then, those without jobs at idle power; None: not measured.
        idle_power_w: Power of a GPU on which nothing runs; None: not measured.
        price_eur_per_gpu_hour: As given.
        confirmed_on_hardware: Whether the model was fitted to real runs of this kind of sharing.
    """

    gpu: str
    sharing: Sharing
    gpus: int
    policy: Policy
    jobs: tuple[SimulatedJob, ...]
    usage: tuple[Usage, ...]
    makespan_s: Interval
    energy_j: Interval | None
    idle_power_w: float | None
    price_eur_per_gpu_hour: float | None
    confirmed_on_hardware: bool

    @property
    def first(self) -> Usage:
        """The first usage of the GPU that is used first."""
        return min(self.usage, key=lambda each: (each.start_s, each.gpu))

    @property
    def jobs_per_hour(self) -> float:
        return len(self.jobs) / self.makespan_s.p50 * _HOUR_S

    @property
    def mean_completion_s(self) -> float:
        return fsum(each.completion_s for each in self.jobs) / len(self.jobs)

    @property
    def mean_wait_s(self) -> float:
        return fsum(each.wait_s for each in self.jobs) / len(self.jobs)

    @property
    def gpu_hours(self) -> Interval:
        """All GPUs are held until the last job ends."""
        return self.makespan_s.scaled(self.gpus / _HOUR_S)

    @property
    def occupied_gpu_hours(self) -> float:
        """Of these, those in which a job runs."""
        return fsum(each.seconds for each in self.usage) / _HOUR_S

    @property
    def cost_eur(self) -> Interval | None:
        """Of all GPUs until the last job ends; None without a price."""
        price = self.price_eur_per_gpu_hour
        return None if price is None else self.gpu_hours.scaled(price)

    @property
    def mean_gract(self) -> float | None:
        """Engine activity, mean over time and GPUs, 0..1; None: not measured."""
        return self._mean([each.gract for each in self.usage])

    @property
    def peak_memory_mib(self) -> float:
        """Most that processes hold on one GPU."""
        return max(each.memory_mib for each in self.usage)

    def _mean(self, values: Sequence[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        if len(known) < len(values):
            return None
        total = fsum(value * use.seconds for value, use in zip(known, self.usage, strict=True))
        return total / (self.gpus * self.makespan_s.p50)


# Less time than this without a job is rounding, as a share of all time.
_DUST = 1e-9


def around(values: Sequence[float]) -> Interval:
    """The interval of the results at each of `LEVELS`.

    With queues, slower steps may let the last job end sooner, since others start elsewhere.
    """
    return Interval(min(values), values[LEVELS.index("p50")], max(values))


def idle_power_w(profiles: Sequence[Profile]) -> float | None:
    """Median idle power of `profiles`; None: not measured."""
    measured = [each.idle_power_w for each in profiles if each.idle_power_w is not None]
    return median(measured) if measured else None


def energy_j(
    histories: Sequence[History],
    power_w: Callable[[PlacedJobs], Interval | None],
    idle_w: float | None,
    gpus: int = 1,
) -> Interval | None:
    """Joules of all GPUs until the last job ends; None if a power is not known.

    Args:
        histories: One for each of `LEVELS`.
        power_w: Of a GPU while these jobs run on it.
        idle_w: While none does.
        gpus: How many there are.
    """
    totals = []
    for level, history in zip(LEVELS, histories, strict=True):
        powers = [power_w(each.seats) for each in history.stretches]
        known = [each.at(level) for each in powers if each is not None]
        held_s = gpus * history.makespan_s
        free_s = held_s - fsum(each.seconds for each in history.stretches)
        idle_j = 0.0 if free_s < _DUST * held_s else None if idle_w is None else free_s * idle_w
        if len(known) < len(powers) or idle_j is None:
            return None
        busy_j = (p * each.seconds for p, each in zip(known, history.stretches, strict=True))
        totals.append(fsum(busy_j) + idle_j)
    return around(totals)
