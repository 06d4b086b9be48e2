"""GPU models and their MIG tables, with sources, from `catalogue.json` in this folder.

A GPU that is not in it is read from its driver where it is (`advisor.hardware.live_gpu`), and
kept in the user's data folder, so that commands elsewhere know it too.
"""

import json
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cache
from importlib.resources import files
from math import log
from pathlib import Path
from typing import Any

from advisor.errors import InvalidInput, UnknownName, with_article
from advisor.hardware import DEFAULT_GPU
from advisor.workload.calibration import Calibration, GpuSide
from advisor.workload.profile import Profile
from advisor.workload.reading import check_number, read_json, read_once, user_folder
from advisor.workload.writing import write_whole


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRates:
    """Rates of a whole GPU, of which ratios between two GPUs are taken.

    Attributes:
        fp32_tflops: FP32 arithmetic on vector units, 1e12 operations a second.
        tf32_tflops: TF32 products on tensor cores, without sparsity; None if it has none.
        fp16_tflops: FP16 products on tensor cores, accumulated in FP32, without sparsity; BF16 has
            the same rate where a GPU has it (compute capability 8.0 and later).
        bandwidth_gb_s: To its memory, 1e9 bytes a second.
        clock_mhz: Highest clock of its SMs.
        launch_us: Between the starts of two kernels that do nothing; None if not measured.
    """

    fp32_tflops: float
    tf32_tflops: float | None
    fp16_tflops: float
    bandwidth_gb_s: float
    clock_mhz: float
    launch_us: float | None = None


# Memory that a driver keeps for itself if it was not read: as much as on the H200.
_RESERVED_MIB = 615

# Key among the sources of a GPU that its driver described.
DESCRIBED = "driver"

# NVML's name of a MIG device has that of its GPU before this, and its profile behind.
OF_MIG = " MIG "

# A GPU with a number of them: 8xh100, h100x8 or h100:8.
_COUNTED = re.compile(
    r"(?P<times>\d+)\s*[x*]\s*(?P<after>.+)|(?P<before>.+?)\s*[x*:]\s*(?P<count>\d+)", re.IGNORECASE
)

_MAKERS = frozenset({"nvidia", "tesla", "geforce", "quadro"})


@dataclass(frozen=True, slots=True, kw_only=True)
class MigProfile:
    """One kind of MIG GPU instance.

    Attributes:
        name: As the driver prints it, e.g. ``"3g.71gb"``.
        profile_id: What ``nvidia-smi mig -cgi`` takes.
        memory_mib: Memory usable by an instance: the smallest that any driver reported.
        memory_estimated: Whether `memory_mib` is an estimate that no driver has reported.
        sms: Streaming multiprocessors of an instance; None if unknown.
        starts: First memory slices at which an instance may start.
        newest_mib: What the newest driver reports, if that is more.
        min_driver: Branch of the first driver that offers it; None: the installed one, or unknown.
    """

    name: str
    profile_id: int
    compute_slices: int
    memory_slices: int
    memory_mib: int
    sms: int | None
    max_instances: int
    starts: tuple[int, ...]
    min_driver: int | None = None
    memory_estimated: bool = False
    newest_mib: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU model; a field is None if no trustworthy source states it.

    Attributes:
        key: What ``--gpu`` takes, e.g. ``"h200-141gb"``.
        products: NVML's names of it.
        memory_mib: Memory that the driver reports in all.
        reserved_mib: Memory that the driver reserves while nothing runs; None if not measured.
        bandwidth_gb_s: Peak DRAM bandwidth, 1e9 bytes a second.
        memory_slices: In MIG mode; 0 without MIG.
        threads_per_sm: Threads that one SM holds at once.
        rates: As its maker states them; None if it is not in the catalogue.
        sources: Field name -> source of its value.
    """

    key: str
    products: tuple[str, ...]
    architecture: str
    compute_capability: str
    sms: int
    memory_mib: int
    reserved_mib: int | None
    bandwidth_gb_s: float | None
    l2_mib: float | None
    power_limit_w: float | None
    power_limit_min_w: float | None
    threads_per_sm: int
    max_mps_clients: int
    memory_slices: int
    mig: tuple[MigProfile, ...]
    sources: dict[str, str]
    rates: GpuRates | None = None

    def __hash__(self) -> int:
        """Hash of the fields that identify a GPU, since answers are cached by GPU."""
        return hash((self.key, self.sms))

    @property
    def usable_mib(self) -> int:
        """Memory that processes can have; less an H200's share where the driver's is unknown."""
        reserved_mib = _RESERVED_MIB if self.reserved_mib is None else self.reserved_mib
        return self.memory_mib - reserved_mib


def _mig_of(entry: dict[str, Any]) -> tuple[MigProfile, ...]:
    return tuple(MigProfile(**row | {"starts": tuple(row["starts"])}) for row in entry["mig"])


@cache
def catalogue() -> dict[str, Gpu]:
    """Every GPU model that comes with this package, by key."""
    document = json.loads(files("advisor.hardware").joinpath("catalogue.json").read_text())
    gpus = {}
    for key, entry in document["gpus"].items():
        rates = GpuRates(bandwidth_gb_s=entry["bandwidth_gb_s"], **entry["rates"])
        fields = {"products": tuple(entry["products"]), "mig": _mig_of(entry), "rates": rates}
        gpus[key] = Gpu(key=key, **entry | fields)
    return gpus


def known_gpus() -> dict[str, Gpu]:
    """Every GPU model known, by key: the catalogue's, then those that a driver described.

    Files that hold none are passed over; `gpu` reports the problem of such a file.
    """
    gpus = dict(catalogue())
    for path in sorted(user_folder("gpus").glob("*.json")):
        if path.stem not in gpus:
            with suppress(InvalidInput):
                gpus[path.stem] = read_gpu(path)
    return gpus


# What reading a document meets that is not of the form that it should have.
_WRONG = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, InvalidInput)

# Counts and sizes of a GPU, and which of them it cannot be without.
_NUMBERS = (
    "reserved_mib", "bandwidth_gb_s", "l2_mib", "power_limit_w", "power_limit_min_w",
    "memory_slices",
)  # fmt: skip
_NEEDED = ("sms", "memory_mib", "threads_per_sm", "max_mps_clients")

# Of any count or size of a GPU in its unit: 16 TiB of memory.
_MOST_OF_A_GPU = 2**24


@read_once(64)
def read_gpu(path: Path) -> Gpu:
    """The GPU model that a driver described, kept in `path` by `keep_gpu`.

    Raises:
        InvalidInput: The file is malformed.
    """
    remedy = "Remove it, and run `advisor gpus` where such a GPU is."
    document = read_json(path, remedy)
    try:
        return _described(document, path.stem)
    except _WRONG as error:
        raise InvalidInput(f"{path}: no description of a GPU: {error}. {remedy}") from None


def _described(document: dict[str, Any], key: str) -> Gpu:
    if document["schema"] != 1 or document["key"] != key:
        raise InvalidInput(f"it is not of {key} in schema 1")
    fields = {name: value for name, value in document.items() if name != "schema"}
    described = Gpu(**fields | {"products": tuple(document["products"]), "mig": _mig_of(document)})
    names = (described.architecture, described.compute_capability)
    if not all(isinstance(each, str) for each in (*names, *described.products, *described.sources)):
        raise InvalidInput("a name in it is not text")
    for name in (*_NUMBERS, *_NEEDED):
        value, needed = getattr(described, name), name in _NEEDED
        if value is not None or needed:
            check_number(name, float(value), _MOST_OF_A_GPU, 1 if needed else 0)
    return described


def keep_gpu(described: Gpu) -> None:
    """Keep a driver's description of a GPU in the user's data folder, for commands without it."""
    fields = {name: value for name, value in asdict(described).items() if name != "rates"}
    text = json.dumps({"schema": 1, **fields}, indent=1) + "\n"
    write_whole(user_folder("gpus") / f"{described.key}.json", text)


def gpu(key: str) -> Gpu:
    """The GPU model called `key`.

    Raises:
        UnknownName: There is none of that key.
        InvalidInput: The description kept of it is malformed.
    """
    if (listed := catalogue().get(key)) is not None:
        return listed
    path = user_folder("gpus") / f"{key}.json"
    with suppress(OSError):  # a key that is longer than a file's name may be
        if key and key == Path(key).name and path.is_file():
            return read_gpu(path)
    remedy = (
        f"Write a model of NVIDIA's, such as {DEFAULT_GPU}: `advisor gpus` lists all, and reads "
        f"those of this machine."
    )
    if match := _COUNTED.fullmatch(key):
        with suppress(InvalidInput):
            model = gpu_meant(match["before"] or match["after"]).key
            remedy = f"Write --gpu {model} --gpus {match['times'] or match['count']}."
    raise UnknownName("GPU", key, known_gpus(), remedy)


def gpu_meant(word: str) -> Gpu:
    """The GPU model that `word` names: its key, NVML's name, or an unambiguous part of either.

    In letters of any case: ``"H200"``, ``"A100 40GB"``, ``"NVIDIA H100 PCIe"``, ``"3090"``.

    Raises:
        InvalidInput: Several models match.
        UnknownName: None matches.
    """
    if word in catalogue():
        return gpu(word)
    parts = _parts_without_version(word)
    names = {
        key: [_parts_without_version(name) for name in (key, *each.products)]
        for key, each in known_gpus().items()
        if not any(OF_MIG in name for name in each.products)  # those have to be named in full
    }
    meant = (
        [key for key, own in names.items() if parts in own]
        or [key for key, own in names.items() if any(_is_part(parts, name) for name in own)]
        or [key for key, own in names.items() if any(_is_joined(parts, name) for name in own)]
    )
    if len(meant) > 1:
        raise InvalidInput(f"{word!r} may be {' or '.join(meant)}. Write one of these.")
    return gpu(meant[0] if meant else word)


def _parts_without_version(name: str) -> tuple[str, ...]:
    """`name_parts`, with SXM5 and all others of that socket as SXM."""
    return tuple(re.sub(r"^sxm\d$", "sxm", part) for part in name_parts(name))


def _is_part(parts: tuple[str, ...], name: tuple[str, ...]) -> bool:
    """True if all `parts` are of `name`, in any order, and one is a number that is not memory."""
    models = [part for part in parts if part in name and re.search(r"\d", part)]
    return any(not part.endswith("gb") for part in models) and all(
        {part, f"{part}b", f"{part}gb"} & {*name} for part in parts
    )


def _is_joined(parts: tuple[str, ...], name: tuple[str, ...]) -> bool:
    """True if `parts` without spaces are `name` or its first parts, as ``h100sxm``."""
    starts = ("".join(name[: number + 1]) for number in range(len(name)))
    return bool(parts) and "".join(parts) in starts


def name_parts(name: str) -> tuple[str, ...]:
    """The parts of a name, without the maker and the product line."""
    parts = re.split(r"[^a-z0-9]+", name.lower())
    return tuple(part for part in parts if part and part not in _MAKERS)


def gpu_of_product(product: str) -> Gpu | None:
    """The GPU model that NVML calls `product`; None if it is not known."""
    return next((each for each in known_gpus().values() if product in each.products), None)


# The share of its maker's rate that a GPU attains. FP32: best product of an A100 PCIe (0.93) and a
# V100 PCIe (0.95) among the timings in NeuSight's artifact (ASPLOS'25, sitar-lab/NeuSight), whose
# SMs have 64 lanes, as Turing's do; and of the same on an H100, whose SMs have 128,
# as all others here. Tensor cores: best product in TF32 on that H100; those of GPUs for graphics,
# with half of the rate or less to feed, are taken to attain what 64 lanes do. An H200 and another
# H100, measured afterwards, attain the same shares: 0.76 in FP32, 0.81 in
# TF32, 0.77 in FP16, 0.90 and 0.91 of their bandwidth.
_OF_64_LANES, _OF_128_LANES = 0.94, 0.80
_OF_TENSOR, _OF_SMALL_TENSOR = 0.74, 0.94
_WITH_64_LANES = ("7.0", "7.5", "8.0")
_FOR_GRAPHICS = ("7.5", "8.6", "8.9", "12.0", "12.1")
# Best addition, by the same timings: 0.85 of an A100, 0.91 of a V100 and 0.90 of an H100.
_OF_BANDWIDTH, _OF_A100_BANDWIDTH = 0.90, 0.85

# Watts that an SM takes for each GHz under arithmetic: with less, a GPU lowers its clock. An L4 has
# 0.6, and by NeuSight's timings attains 0.4 of its maker's rate; GPUs with more keep theirs.
_W_PER_SM_GHZ = 1.33

_RATES_NEEDED = ("fp32_tflops", "fp16_tflops", "bandwidth_gb_s")


def rates_of(gpu: Gpu, calibration: Calibration | None = None) -> GpuRates | None:
    """Attained rates of `gpu`; None if neither calibration nor catalogue has rates for its kind.

    A calibration of another GPU, or without a sweep of operators, is ignored.
    """
    rates = gpu.rates or _of_its_kind(gpu)
    stated = None
    if rates is not None:
        clock = 1.0  # share of its highest clock at which its power limit lets it compute
        if gpu.power_limit_w is not None:
            sm_ghz = gpu.sms * rates.clock_mhz * 1e-3
            clock = min(1.0, gpu.power_limit_w / sm_ghz / _W_PER_SM_GHZ)
        lanes = _OF_64_LANES if gpu.compute_capability in _WITH_64_LANES else _OF_128_LANES
        ampere = gpu.compute_capability == "8.0"
        bandwidth = (_OF_A100_BANDWIDTH if ampere else _OF_BANDWIDTH) * rates.bandwidth_gb_s
        stated = _scaled(rates, clock * lanes, clock * tensor_share(gpu), bandwidth)
    side = calibration.gpu_side if calibration and calibration.gpu == gpu.key else None
    return stated if side is None else _measured(side, stated)


def _of_its_kind(gpu: Gpu) -> GpuRates | None:
    """Rates scaled from the nearest GPU of equal compute capability; None if there is none."""
    kin = (each for each in catalogue().values()
           if each.compute_capability == gpu.compute_capability)  # fmt: skip
    nearest = min(kin, key=lambda each: abs(each.sms - gpu.sms), default=None)
    if nearest is None or gpu.bandwidth_gb_s is None:
        return None
    assert nearest.rates is not None, "the catalogue has the rates of every GPU"
    share = gpu.sms / nearest.sms
    return _scaled(nearest.rates, share, share, gpu.bandwidth_gb_s)


def _scaled(rates: GpuRates, vector: float, tensor: float, bandwidth_gb_s: float) -> GpuRates:
    """`rates` times the shares for vector units and tensor cores, with another bandwidth."""
    tf32_tflops = rates.tf32_tflops
    return replace(
        rates,
        fp32_tflops=vector * rates.fp32_tflops,
        tf32_tflops=None if tf32_tflops is None else tensor * tf32_tflops,
        fp16_tflops=tensor * rates.fp16_tflops,
        bandwidth_gb_s=bandwidth_gb_s,
    )


def unlikeness(one: Gpu, other: Gpu) -> float:
    """Distance between the log rates of two GPUs; less for GPUs of one architecture."""
    first, second = rates_of(one), rates_of(other)
    if first is None or second is None:
        return float("inf")
    apart = sum(abs(log(getattr(first, name) / getattr(second, name))) for name in _RATES_NEEDED)
    return apart + 10 * (one.architecture != other.architecture)


def tensor_share(gpu: Gpu) -> float:
    """Share of its peak that products on tensor cores attain at most, 0..1."""
    return _OF_SMALL_TENSOR if gpu.compute_capability in _FOR_GRAPHICS else _OF_TENSOR


def _measured(side: GpuSide, stated: GpuRates | None) -> GpuRates | None:
    """Rates of `side` where it measured them, else `stated`."""
    rates = {
        "fp32_tflops": side.tflops("fp32"),
        "tf32_tflops": side.tflops("tf32"),
        "fp16_tflops": side.tflops("fp16"),
        "bandwidth_gb_s": side.bandwidth_gb_s,
        "launch_us": side.empty_kernel_us,
    }
    measured = {name: rate for name, rate in rates.items() if rate is not None}
    if stated is not None:
        if stated.tf32_tflops is None:  # then it computed TF32 products in FP32
            measured.pop("tf32_tflops", None)
        return replace(stated, **measured)
    if side.sm_clock_mhz is None or not measured.keys() >= set(_RATES_NEEDED):
        return None
    tf32_tflops = measured.pop("tf32_tflops", None)
    return GpuRates(clock_mhz=side.sm_clock_mhz, tf32_tflops=tf32_tflops, **measured)


# Boards may be set a little above the limit of their model, and their sensors are some per cent
# off; a larger number is of another unit, or of another GPU.
_MOST_ABOVE_LIMIT = 1.15
# Of the limit: half of what an H200 or H100 draws while nothing runs, since sensors are off and
# other models idle at less. A smaller number is of another unit, or of another GPU.
_LEAST_OF_LIMIT = 0.05


def check_key(profile: Profile, where: str) -> Profile:
    """`profile`, whose GPU is a key of the catalogue, or an unknown one.

    Raises:
        InvalidInput: `where` names a known GPU by another name than its key, or means several.
    """
    if profile.gpu in known_gpus():
        return profile
    try:
        remedy = f"Write {gpu_meant(profile.gpu).key} there"
    except UnknownName:
        return profile
    except InvalidInput as error:
        remedy = str(error).removesuffix(".")
    problem = f"its gpu, {profile.gpu}, is not a key of `advisor gpus`"
    raise InvalidInput(f"{where}: {problem}. {remedy}.")


def check_power(profile: Profile, gpu: Gpu) -> Profile:
    """`profile`, which was taken on `gpu`; measured power is not checked.

    Raises:
        InvalidInput: It is bare numbers, and its power is more than `gpu` draws, or less.
    """
    limit_w, power_w = gpu.power_limit_w, profile.power_w
    bare = profile.workload.is_bare and not profile.is_estimate
    if not (limit_w and bare) or power_w is None:
        return profile
    least_w = _LEAST_OF_LIMIT * limit_w
    if least_w <= power_w <= _MOST_ABOVE_LIMIT * limit_w:
        return profile
    draws = f"more than {least_w:g} W at idle" if power_w < least_w else f"at most {limit_w:g} W"
    raise InvalidInput(
        f"{profile.name}: power_w is {power_w:g}, and {with_article(gpu.key)} draws {draws}. Give "
        f"the mean watts of that one GPU while the job runs, between idle and {limit_w:g}, as "
        f"nvidia-smi shows them; if they are not known, leave --power-w out, in a file null."
    )


# Shares of a GPU's memory that frameworks take at their start, whatever the job needs, and what
# stops that, by their documentation.
_TAKEN_AT_START = {
    (0.75, 0.75): ("JAX", "XLA_PYTHON_CLIENT_PREALLOCATE=false"),
    (0.90, 0.90): ("vLLM", "a lower --gpu-memory-utilization"),
    (0.95, 1.00): ("TensorFlow", "TF_FORCE_GPU_ALLOW_GROWTH=true"),
}
_ROUNDING, _CONTEXT_MIB = 0.01, 600


def preallocating_profiles(profiles: Iterable[Profile]) -> tuple[str, ...]:
    """Return a line for each job whose memory may be what its framework takes at its start.

    That of a job whose allocator was seen is what the job needs.
    """
    cards, doubts = known_gpus(), dict[str, str]()
    for profile in profiles:
        card = cards.get(profile.estimated_from or profile.gpu)
        held_mib = profile.memory.device_mib
        if card is None or held_mib is None or profile.memory.allocated_mib is not None:
            continue
        share, context = held_mib / card.memory_mib, _CONTEXT_MIB / card.memory_mib
        for (least, most), (framework, setting) in _TAKEN_AT_START.items():
            if least - _ROUNDING <= share <= most + _ROUNDING + context:
                doubts[profile.name] = (
                    f"{profile.name} holds {share:.0%} of the memory of {with_article(card.key)}, "
                    f"as {framework} does from its start, needed or not. If it is {framework}, set "
                    f"{setting}, and read the memory again"
                )
    return tuple(doubts.values())


@dataclass(frozen=True, slots=True)
class GpuCount:
    """So many equal GPUs on equal hosts.

    Attributes:
        gpu: Catalogue key; None: the model that the question is about.
        host_gpus: GPUs of each host.
    """

    gpu: str | None
    hosts: int
    host_gpus: int

    @property
    def gpus(self) -> int:
        return self.hosts * self.host_gpus

    def __str__(self) -> str:
        hosts = f"{self.hosts:,} hosts of " if self.hosts > 1 else ""
        return f"{hosts}{self.host_gpus:,} {self.gpu}"


_COUNT = re.compile(r"(?:(?P<gpu>[^:]+):)?(?:(?P<hosts>\d{1,5})x)?(?P<gpus>\d{1,5})")


def parse_gpus(gpus: int | str, most: int) -> tuple[GpuCount, ...]:
    """Return the GPUs of ``4``, of ``2x4`` on two hosts, or of ``a100-40gb:8,h100-sxm-80gb:2x4``.

    Raises:
        InvalidInput: It is malformed, names a GPU that is not known or twice, or more than `most`.
    """
    counts, text = [], str(gpus)
    for word in text.replace(" ", "").split(","):
        match = _COUNT.fullmatch(word)
        if match is None:
            raise InvalidInput(
                f"--gpus {text!r:.60}: expected a number of GPUs, as 4, or 2x4 for two hosts of "
                f"4, or with models, as a100-40gb:8,h100-sxm-80gb:2x4."
            )
        key = match["gpu"] and gpu_meant(match["gpu"]).key
        hosts, host_gpus = int(match["hosts"] or 1), int(match["gpus"])
        counts.append(GpuCount(key, hosts, host_gpus))
    keys = [each.gpu for each in counts]
    if len(set(keys)) < len(keys) or (None in keys and len(keys) > 1):
        raise InvalidInput(f"--gpus {text!r:.60}: name the model of each number of GPUs, once.")
    if min(each.gpus for each in counts) < 1 or sum(each.gpus for each in counts) > most:
        raise InvalidInput(f"--gpus {text!r:.60}: expected 1 to {most:,} GPUs.")
    return tuple(counts)
