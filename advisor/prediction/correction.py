"""The correction of replay's steps: a regression over features, and its error for unseen jobs."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from advisor.errors import AdvisorError, InvalidInput
from advisor.hardware.gpus import Gpu
from advisor.hardware.partition import limit_shares
from advisor.prediction.cache import once_a_profile
from advisor.prediction.capacity import ResidualBounds, capacity_steps, is_gpu_bound
from advisor.prediction.host import log_beyond_host
from advisor.prediction.memory import Z95
from advisor.prediction.replay import Replayed
from advisor.prediction.trace import Floats, demand
from advisor.sharing import Concurrent
from advisor.workload.profile import Profile, pace_spread
from advisor.workload.reading import MOST_LOG, cache_folder, check, check_scaled

TRAITS = (
    "over_one_wave",  # share of kernel time in grids of more blocks than fit on the GPU at once
    "log_waves",
    "sm_demand",  # share of the SMs that its kernels can use
    "sm_demand_spread",  # the same if each block had an SM to itself
    "moves_data",  # share of kernel time in kernels that move data rather than multiply
    "multiplies",
    "convolves",
    "wave_tail",  # share of the SMs that last waves leave free
    "log_mean_kernel_us",
    "log_kernels",
    "tensor",  # tensor activity while the GPU works for the job
    "sm_active",  # while the GPU works for the job
    "host_share",  # host path over step
    "log_at_tightest",  # slowdown alone under the tightest limit of the probe
    "log_at_loosest",
)

_MULTIPLY, _CONVOLVE = frozenset({"gemm", "attention", "recurrent"}), frozenset({"conv"})

# Where a share of SMs is below this, a job of large kernels keeps them all busy.
_TYPICAL_DEMAND = 0.85


@once_a_profile
def traits(profile: Profile, gpu: Gpu) -> Floats:
    """Compute `TRAITS` of a job that has a kernel trace, shape (traits,)."""
    trace, at_limits = profile.trace, [0.0, 0.0]
    assert trace is not None
    if profile.mps and profile.mps.limited:
        whole_s = profile.mps.unlimited.step_s
        by_limit = sorted(profile.mps.limited, key=lambda run: run.limit_pct)
        at_limits = [float(np.log(run.step_s / whole_s)) for run in (by_limit[0], by_limit[-1])]
    duration = np.asarray(trace.duration_us)
    weight = duration / max(float(duration.sum()), 1e-9)
    blocks = np.asarray(trace.blocks, dtype=np.float64)
    waves = blocks / (gpu.sms * np.maximum(1, np.asarray(trace.resident_blocks)))
    tail = np.where(waves > 1, 1 - waves / np.maximum(1, np.ceil(waves)), 0.0)
    kind = np.asarray(trace.class_of)
    multiplies, convolves = (
        np.isin(kind, [i for i, name in enumerate(trace.classes) if name in chosen])
        for chosen in (_MULTIPLY, _CONVOLVE)
    )
    columns = (
        waves > 1, np.log(np.maximum(waves, 0.05)), demand(trace, gpu.sms, 0.45),
        np.minimum(1, blocks / gpu.sms), ~(multiplies | convolves), multiplies, convolves, tail,
    )  # fmt: skip
    return np.array([
        *(float((weight * column).sum()) for column in columns),
        float(np.log(duration.mean() + 1e-3)),
        float(np.log(len(duration))),
        _while_busy(profile, "tensor_active", 0.0),
        _while_busy(profile, "sm_active", 0.5),
        (profile.host_s or 0.0) / profile.step_s,
        *at_limits,
    ])  # fmt: skip


def _while_busy(profile: Profile, counter: str, otherwise: float) -> float:
    measured = getattr(profile.counters, counter, None)
    return otherwise if measured is None else measured / (profile.busy_share or 1.0)


def log_slowdown_alone(profile: Profile, share: float, gpu: Gpu) -> float:
    """Return the log of the slowdown of the job alone, if it may use a share of the SMs, 0..1.

    It is interpolated, over the log of the share, between the points that the probe measured;
    without a probe it is in proportion to the SMs that a job of large kernels misses.
    """
    if not (profile.mps and profile.mps.limited):
        return max(0.0, float(np.log(_TYPICAL_DEMAND / share)))
    log_shares, logs = _probed(profile, gpu)
    return max(0.0, float(np.interp(np.log(share), log_shares, logs)))


@once_a_profile
def _probed(profile: Profile, gpu: Gpu) -> tuple[Floats, Floats]:
    """Return logs of the share and of the slowdown at each point of the probe, and unlimited."""
    assert profile.mps is not None
    whole_s = profile.mps.unlimited.step_s
    points = sorted(
        (run.sms / gpu.sms if run.sms else run.limit_pct / 100, float(np.log(run.step_s / whole_s)))
        for run in profile.mps.limited
    )
    shares, logs = np.array([*points, (1.0, 0.0)]).T
    return np.log(shares), logs


def counter(profile: Profile, name: str) -> float:
    """Return a GPM counter; without one, a typical share of its busy time."""
    measured = getattr(profile.counters, name, None)
    return 0.3 * (profile.busy_share or 1.0) if measured is None else float(measured)


IN_COMPANY = (
    "log_replayed_slowdown",  # slowdown by replay
    "log_ceding",  # replay with more SMs ceded to later kernels, over replay
    "log_packing",  # replay with blocks packed more closely on SMs, over replay
    "log_capacity",  # the capacity model over replay
    "log_degree",
    "busy_share",  # the job's GPU time over its step, alone
    "busy_at_pace",  # the same at its replayed pace
    "mates_busy",  # the others' at their replayed pace, summed
    "busy_of_all",  # of all jobs, alone
    "dram",  # the job's DRAM activity while the GPU works for it
    "mates_dram",  # the others' at their replayed pace, summed
    "dram_times_mates",
    "occupancy",
    "mates_occupancy",
    "log_kernel_us",  # long kernels make short ones wait
    "log_mates_kernel_us",
    "log_alone_under_mps",  # what being an MPS client costs or gains alone
    "log_limit",
    "limits_over_one",  # how far the limits together exceed the GPU
    "log_alone_limited",  # slowdown alone under its limit
    "log_alone_limited_over_replayed",
    "headroom",  # how much less a limit slows it, alone, than its share of the SMs suggests
    "mates_headroom",
    "headroom_times_mates_dram",
)
FEATURES = (*IN_COMPANY, *TRAITS, *(f"mates_{trait}" for trait in TRAITS))


def features(
    profiles: Sequence[Profile], sharing: Concurrent, gpu: Gpu, replayed: Replayed
) -> Floats:
    """Compute a row for each job with a column for each of `FEATURES`, shape (jobs, features)."""
    step_s, busy, dram, occupancy, log_kernel_us, log_under_mps = np.array(
        [_alone(each) for each in profiles]
    ).T
    speed, degree = step_s / replayed.steps_s, len(profiles)
    steps = capacity_steps(profiles, sharing)
    by_capacity = replayed.steps_s if steps is None else np.array(steps)
    shares = np.array(limit_shares(sharing.limits, gpu.sms) or [1.0] * degree)
    pairs = zip(profiles, shares, strict=True)
    limited = np.array([log_slowdown_alone(each, float(share), gpu) for each, share in pairs])
    headroom = -np.log(shares) - limited
    columns = {
        "log_replayed_slowdown": -np.log(speed),
        "log_ceding": np.log(replayed.ceding_s / replayed.steps_s),
        "log_packing": np.log(replayed.packing_s / replayed.steps_s),
        "log_capacity": np.log(by_capacity / replayed.steps_s),
        "log_degree": np.full(degree, np.log(degree)),
        "busy_share": busy,
        "busy_at_pace": busy * speed,
        "mates_busy": of_others(busy * speed),
        "busy_of_all": np.full(degree, busy.sum()),
        "dram": dram / busy,
        "mates_dram": of_others(dram * speed),
        "dram_times_mates": dram / busy * of_others(dram * speed),
        "occupancy": occupancy / busy,
        "mates_occupancy": of_others(occupancy * speed),
        "log_kernel_us": log_kernel_us,
        "log_mates_kernel_us": _mean_of_others(log_kernel_us, busy * speed),
        "log_alone_under_mps": log_under_mps,
        "log_limit": np.log(shares),
        "limits_over_one": np.full(degree, max(0.0, float(shares.sum()) - 1)),
        "log_alone_limited": limited,
        "log_alone_limited_over_replayed": limited + np.log(speed),
        "headroom": headroom,
        "mates_headroom": _mean_of_others(headroom, busy * speed),
        "headroom_times_mates_dram": headroom * of_others(dram * speed),
    }
    company = np.column_stack([columns[name] for name in IN_COMPANY])
    own = np.stack([traits(each, gpu) for each in profiles])
    others = _mean_of_others(np.ascontiguousarray(own.T), busy * speed).T
    return np.hstack([company, own, others])


@once_a_profile
def _alone(profile: Profile) -> tuple[float, ...]:
    """Return step, busy share, DRAM, occupancy, log kernel and log under MPS of one job alone."""
    under_mps_s = profile.mps.unlimited.step_s if profile.mps else profile.step_s
    kernel_us = 100.0  # of the kernel that is running at a random busy moment
    if profile.trace is not None:
        us = np.asarray(profile.trace.duration_us)
        kernel_us = float((us * us).sum() / max(us.sum(), 1e-9)) + 1.0
    return (
        profile.step_s,
        profile.busy_share or 1.0,
        counter(profile, "dram_active"),
        counter(profile, "sm_occupancy"),
        float(np.log(kernel_us)),
        float(np.log(under_mps_s / profile.step_s)),
    )


def of_others(values: Floats) -> Floats:
    """Sum over the other jobs, in the shape of `values`, (..., jobs)."""
    return np.asarray(values.sum(axis=-1, keepdims=True) - values)


def _mean_of_others(values: Floats, weights: Floats) -> Floats:
    """Average over the other jobs, weighted by `weights`; of a job alone, its own value."""
    if len(weights) == 1:
        return values
    return np.asarray(of_others(values * weights) / np.maximum(of_others(weights), 1e-9))


_BLOCK = 64

Factor = list[NDArray[np.float32]]
"""A Cholesky factor in rows of blocks: those left of the diagonal, then the inverse of the last.

In single precision, because spreads are never read to more than three digits. That takes half the
time of LAPACK in double precision, and needs numpy only.
"""


def cholesky(covariance: NDArray[np.float32]) -> Factor:
    """Compute the factor of `covariance`, which it overwrites.

    Raises:
        numpy.linalg.LinAlgError: It is not positive definite.
    """
    lower, factor = covariance, []
    for start in range(0, len(lower), _BLOCK):
        own, below = slice(start, start + _BLOCK), slice(start + _BLOCK, None)
        lower[start:, own] -= lower[start:, :start] @ lower[own, :start].T
        inverse = np.linalg.inv(np.linalg.cholesky(lower[own, own]))
        factor.append(np.hstack([lower[own, :start], inverse]))
        lower[below, own] = lower[below, own] @ inverse.T
    return factor


def whitened(factor: Factor, columns: NDArray[Any]) -> NDArray[np.float32]:
    """Return the solution x of ``L x = columns``, in the same shape (points, columns)."""
    x = columns.astype(np.float32)
    for row in factor:
        start = row.shape[1] - len(row)
        own = x[start : row.shape[1]]
        own[:] = row[:, start:] @ (own - row[:, :start] @ x[:start])
    return x


def _read_factor(content: memoryview, points: int) -> Factor:
    """Read the rows of a factor of `points` points, written one after another."""
    ends = [min(start + _BLOCK, points) for start in range(0, points, _BLOCK)]
    sizes = [(end - start) * end for start, end in zip([0, *ends], ends, strict=False)]
    rows = np.split(np.frombuffer(content, np.float32), np.cumsum(sizes)[:-1])
    return [row.reshape(-1, end) for row, end in zip(rows, ends, strict=True)]


Points = tuple[tuple[float, ...], ...]
"""The jobs that a correction was fitted to, shape (points, features)."""

# Files of the factors of points, by the id of these; holding the points keeps their id from being
# reused. Computing the factors of the shipped model takes a tenth of a ranking's time.
_kept: dict[int, tuple[Points, Path]] = {}


def keep_factors(model: Path, points: Mapping[str, Points]) -> None:
    """Keep the factors of the model in the file `model` from now on; `points` is by mode."""
    with suppress(RuntimeError):  # this user has no home
        whose = sha256(bytes(model)).hexdigest()[:16]
        for mode, of_mode in points.items():
            path = cache_folder("factors") / f"{whose}-{mode}.bin"
            _kept[id(of_mode)] = of_mode, path


def kept_factor(points: Points, inputs: bytes, make: Callable[[], Factor]) -> Factor:
    """Return the factor that `make` computes, or that another process computed and kept.

    `points` is the very object that `keep_factors` got; `inputs` determine the factor.
    """
    if id(points) not in _kept:
        return make()
    path, key = _kept[id(points)][1], sha256(Path(__file__).read_bytes() + inputs).digest()
    with suppress(OSError):
        content = path.read_bytes()
        head, body = content[: len(key) + 4], memoryview(content)[len(key) + 4 :]
        if head == key + crc32(body).to_bytes(4):  # else it is damaged or of other inputs
            return _read_factor(body, len(points))
    from advisor.workload.writing import write_whole

    made = make()
    written = b"".join(row.tobytes() for row in made)
    with suppress(AdvisorError):  # no room, or no folder that can be written
        write_whole(path, key + crc32(written).to_bytes(4) + written)
    return made


# The steps of jobs that fill the GPU, alone, repeat so closely on another host and day.
SOLO_SPREAD = 0.03

# Ends lie at most so many standard deviations from the middle. What the host adds shrinks at
# one part in so many with the distance to the host's path, so a slower step never ends earlier.
MOST = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """Covariance of two jobs in their mixes: a squared exponential of their distance.

    Attributes:
        length: Length scale, in columns of scale 1.
        signal: Variance of replay's residual.
        noise: Variance from one run to the next.
    """

    length: float
    signal: float
    noise: float

    def __post_init__(self) -> None:
        if min(self.length, self.signal, self.noise) <= 0:
            raise InvalidInput("a kernel's length, signal and noise are above 0")

    def likeness(self, rows: NDArray[Any], points: NDArray[Any]) -> NDArray[Any]:
        """Return the covariance of each row with each point, shape (rows, points), as precise."""
        squares = (rows**2).sum(axis=1)[:, None] + (points**2).sum(axis=1)[None, :]
        squares -= 2 * rows @ points.T
        np.maximum(0.0, squares, out=squares)
        squares *= -0.5 / self.length**2
        return np.asarray(self.signal * np.exp(squares, out=squares))


def host_spread(profiles: Sequence[Profile], steps_s: Floats, host_sigma: float = 0.0) -> Floats:
    """Return the standard deviation of the log of each step by its host, shape (jobs,).

    The profile's own windows and `host_sigma` of `Doubt` count as far as a step follows its host.
    """
    unsteady = np.hypot(host_sigma, [pace_spread(each.windows) for each in profiles])
    beyond = [log_beyond_host(p, float(s)) for p, s in zip(profiles, steps_s, strict=True)]
    return np.maximum(0.0, unsteady - np.array(beyond) / MOST)


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """Uncertainty of predictions for unseen families, by jobs that keep the GPU busy alone or not.

    Attributes:
        host_sigma: Standard deviation of the log of a host-bound job's step alone, between its
            profile and another run.
    """

    host_sigma: float
    gpu_bound: ResidualBounds
    host_bound: ResidualBounds

    def __post_init__(self) -> None:
        check(self, ("host_sigma",), MOST_LOG)

    def scale(self, profiles: Sequence[Profile], steps_s: Floats, spread: Floats) -> Floats:
        """Return the standard deviation of the log of each predicted step, shape (jobs,).

        `spread` is the model's own, shape (jobs,); `host_spread` adds to it.
        """
        return np.asarray(np.hypot(spread, host_spread(profiles, steps_s, self.host_sigma)))

    def log_bounds(
        self, profiles: Sequence[Profile], steps_s: Floats, spread: Floats
    ) -> tuple[Floats, Floats]:
        """Return log distances to both ends of the 90 % interval of each job, shapes (jobs,)."""
        scale = self.scale(profiles, steps_s, spread)
        bounds = [self.gpu_bound if is_gpu_bound(each) else self.host_bound for each in profiles]
        low, high = np.array([(each.low, each.high) for each in bounds]).T
        return low * scale, high * scale


@dataclass(frozen=True, kw_only=True)
class Correction:
    """Residual of replay in one mode: a Gaussian process over a job's features in its mix.

    It predicts the log of measured over replayed step. Far from every job it was fitted to it is 0,
    so replay is not corrected, and its spread is widest there.

    Attributes:
        scale: Standard deviation of each column.
        points: The jobs fitted to, in columns of mean 0 and scale 1, shape (points, features).
        weights: Weight of each point.
        doubt: On a host whose speed is not known.
        doubt_on_known_cores: If profiles are converted to the speed of the host's cores.
    """

    features: tuple[str, ...]
    mean: tuple[float, ...]
    scale: tuple[float, ...]
    points: tuple[tuple[float, ...], ...]
    weights: tuple[float, ...]
    kernel: Kernel
    doubt: Doubt
    doubt_on_known_cores: Doubt

    def __post_init__(self) -> None:
        if self.features != FEATURES:
            raise InvalidInput("the model was fitted to other features than this advisor computes")
        widths = {len(self.mean), len(self.scale), *map(len, self.points)}
        if widths != {len(FEATURES)} or len(self.weights) != len(self.points):
            raise InvalidInput("the model's columns are not as long as its list of features")
        mean, _, points, weights = self._arrays
        most = max(float(np.abs(each).max()) for each in (mean, points, weights))
        check_scaled("a model's columns", self.scale, most)

    def near(self, rows: Floats) -> Floats:
        """Return covariances with the points, shape (jobs, points) for rows (jobs, features)."""
        mean, scale, points, _ = self._arrays
        return self.kernel.likeness((rows - mean) / scale, points)

    def log_correction(self, near: Floats) -> Floats:
        """Predict log(measured / replayed) from `near`, shape (jobs,)."""
        *_, weights = self._arrays
        return np.clip(near @ weights, -MOST_LOG, MOST_LOG)

    def spread(self, near: Floats) -> Floats:
        """Return the standard deviation of that log, shape (jobs,); wider far from all points."""
        white = whitened(self._factor, near.T)
        explained = (white * white).sum(axis=0, dtype=np.float64)
        unexplained = self.kernel.noise + np.maximum(0.0, self.kernel.signal - explained)
        return np.asarray(np.sqrt(unexplained))

    @cached_property
    def _arrays(self) -> tuple[Floats, Floats, Floats, Floats]:
        """Means, scales, points and weights."""
        scales = np.array(self.mean), np.array(self.scale)
        return *scales, np.array(self.points), np.array(self.weights)

    @cached_property
    def _factor(self) -> Factor:
        """The factor of the points' covariance."""
        points = self._arrays[2]

        def make() -> Factor:
            short = points.astype(np.float32)
            covariance = self.kernel.likeness(short, short)
            covariance[np.diag_indices_from(covariance)] += self.kernel.noise
            try:
                return cholesky(covariance)
            except np.linalg.LinAlgError:
                why = "the model's points contradict its kernel. Fit it again"
                raise InvalidInput(why) from None

        return kept_factor(self.points, repr(self.kernel).encode() + points.tobytes(), make)


def wider_bounds(low: Floats, high: Floats, spread: Floats) -> tuple[Floats, Floats]:
    """Return log distances of both ends of 90 % intervals, wider by `spread`."""
    more = Z95 * spread
    return -np.hypot(low, more), np.hypot(high, more)


def others_spread(profiles: Sequence[Profile], steps_s: Floats) -> Floats:
    """Return the standard deviation of log steps by the hosts of co-located jobs, shape (jobs,).

    Under naive sharing a job that fills the GPU has the time that the others leave: if they work on
    the GPU for the shares a of their steps, its step takes its GPU part over 1 - sum(a). A job
    slowed by its host leaves more. 0 for jobs that do not fill the GPU. `steps_s` are those in the
    mix.
    """
    share = np.array([each.gpu_s or 0.0 for each in profiles]) / steps_s
    varied = (share * host_spread(profiles, steps_s)) ** 2
    fills = np.array([is_gpu_bound(each) for each in profiles])
    by_others = np.sqrt(np.maximum(0.0, varied.sum() - varied))
    return np.where(fills, by_others / np.where(fills, share, 1.0), 0.0)
