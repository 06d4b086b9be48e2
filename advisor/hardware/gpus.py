"""GPU models and their MIG tables, with sources, from `catalogue.json` in this folder.

Others are read from their driver (`advisor.hardware.live_gpu`) and kept in the user's data folder.
"""

import json
import re
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Any

from advisor.errors import InvalidInput, UnknownName
from advisor.files.reading import read_json, read_once, read_toml, user_folder
from advisor.files.records import check_record
from advisor.files.units import Within
from advisor.files.writing import write_whole
from advisor.hardware import DEFAULT_GPU

# Of any count or size of a GPU in its unit: 16 TiB of memory.
_MOST = 2**24
_Number = Annotated[float, Within(0, _MOST)]
_Positive = Annotated[float, Within(1, _MOST)]
_Amount = Annotated[int, Within(1, _MOST)]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRates:
    """Rates of a whole GPU, of which ratios between two GPUs are taken.

    Attributes:
        fp32_tflops: FP32 arithmetic on vector units, 1e12 operations a second.
        tf32_tflops: TF32 products on tensor cores, without sparsity; None if it has none.
        fp16_tflops: Likewise FP16, accumulated in FP32; BF16 has the same rate from 8.0 on.
        bandwidth_gb_s: To its memory, 1e9 bytes a second.
        clock_mhz: Highest clock of its SMs.
    """

    fp32_tflops: float
    tf32_tflops: float | None
    fp16_tflops: float
    bandwidth_gb_s: float
    clock_mhz: float


# Memory that a driver keeps for itself if it was not read: as much as on the H200.
_RESERVED_MIB = 615

# Key among the sources of a GPU that its driver described.
DESCRIBED = "driver"

# NVML's name of a MIG device has that of its GPU before this, and its profile behind.
OF_MIG = " MIG "

MAX_MPS_CLIENTS = 48  # from Volta on: CUDA MPS documentation, contexts up to CUDA 13.0

# A GPU with a number of them: 8xh100, h100x8 or h100:8.
_COUNTED = re.compile(
    r"(?P<times>\d+)\s*[x*]\s*(?P<after>.+)|(?P<before>.+?)\s*[x*:]\s*(?P<count>\d+)", re.IGNORECASE
)

_MAKERS = frozenset({"nvidia", "tesla", "geforce", "quadro"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Capability:
    """An SM of a compute capability: CUDA C++ Programming Guide, technical specifications.

    Attributes:
        lanes: CUDA cores.
        threads: Most threads that it holds at once, in at most so many `blocks`.
        shared_kib: Shared memory, of which the system reserves `reserved_kib` for each block.
        for_graphics: Whether its tensor cores are the smaller ones of GPUs for graphics.
    """

    architecture: str
    lanes: int
    threads: int
    blocks: int
    shared_kib: int
    reserved_kib: int
    for_graphics: bool


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
    sms: _Amount
    memory_mib: _Amount
    reserved_mib: Annotated[int, Within(0, _MOST)] | None
    bandwidth_gb_s: _Number | None
    l2_mib: _Number | None
    power_limit_w: _Number | None
    power_limit_min_w: _Number | None
    threads_per_sm: _Amount
    max_mps_clients: _Amount
    memory_slices: Annotated[int, Within(0, _MOST)]
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


@cache
def _shipped() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(
        Path(__file__).with_name("catalogue.json").read_text("utf-8")
    )
    return document


@cache
def capabilities() -> dict[str, Capability]:
    """Return every supported compute capability, e.g. ``"9.0"``."""
    return {key: Capability(**row) for key, row in _shipped()["capabilities"].items()}


@cache
def catalogue() -> dict[str, Gpu]:
    """Return every GPU model that comes with this package, by key."""
    gpus = {}
    for key, entry in _shipped()["gpus"].items():
        rates = GpuRates(bandwidth_gb_s=entry["bandwidth_gb_s"], **entry["rates"])
        mig = tuple(MigProfile(**row | {"starts": tuple(row["starts"])}) for row in entry["mig"])
        parts = {"products": tuple(entry["products"]), "mig": mig, "rates": rates}
        gpus[key] = Gpu(key=key, **entry | parts)
    return gpus


def known_gpus() -> dict[str, Gpu]:
    """Return every known GPU model by key: the catalogue's, then those that a driver described.

    Files that hold none are passed over; `gpu` reports the problem of such a file.
    """
    gpus = dict(catalogue())
    for path in sorted(user_folder("gpus").glob("*.json")):
        if path.stem not in gpus:
            with suppress(InvalidInput):
                gpus[path.stem] = read_gpu(path)
    return gpus


@read_once(64)
def read_gpu(path: Path) -> Gpu:
    """Return the GPU model that a driver described, kept in `path` by `keep_gpu`.

    Raises:
        InvalidInput: The file is malformed.
    """
    remedy = "Remove it, and run `advisor gpus` on a machine with such a GPU."
    document = read_json(path, remedy)
    schema = document.pop("schema", None) if isinstance(document, dict) else None
    kept = check_record(Gpu, document, str(path), remedy)
    if schema != 1 or kept.key != path.stem:
        raise InvalidInput(f"{path}: expected a file of {path.stem} in schema 1. {remedy}")
    return kept


_OWN_REMEDY = "Correct the file: `advisor init gpu` writes one to start from."
_KEY = re.compile(r"[a-z0-9][a-z0-9.-]{0,59}")


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnGpu:
    """A GPU model that a user describes in a file, by its data sheet and nvidia-smi.

    Attributes:
        key: Its name for ``--gpu`` from then on.
        products: Its names as nvidia-smi prints them.
        compute_capability: e.g. ``"8.6"``.
        memory_slices: In MIG mode; 0 without MIG.
        source: Of its numbers.
    """

    key: str
    products: tuple[str, ...]
    compute_capability: str
    sms: _Amount
    memory_mib: _Amount
    bandwidth_gb_s: _Positive
    clock_mhz: _Positive
    fp32_tflops: _Positive
    fp16_tflops: _Positive
    tf32_tflops: _Positive | None = None
    l2_mib: _Positive | None = None
    power_limit_w: _Positive | None = None
    memory_slices: int = 0
    mig: tuple[MigProfile, ...] = ()
    source: str = "its owner"

    def __post_init__(self) -> None:
        if not _KEY.fullmatch(self.key):
            raise InvalidInput(f"key: write letters a-z, digits, . and -, got {self.key!r:.60}")
        names = {name for each in catalogue().values() for name in (each.key, *each.products)}
        if taken := names & {self.key, *self.products}:
            raise InvalidInput(
                f"{min(taken)} is a GPU of `advisor gpus`. Choose another key and name"
            )
        if self.compute_capability not in capabilities():
            raise InvalidInput(
                f"compute_capability: write one of {', '.join(capabilities())} in quotes, got "
                f"{self.compute_capability!r:.20}"
            )
        for row in self.mig:
            if not row.starts or max(row.starts) + row.memory_slices > self.memory_slices:
                raise InvalidInput(
                    f"mig: {row.name} does not fit into memory_slices, counted from 0"
                )
            if row.memory_mib > self.memory_mib or (row.sms or 0) > self.sms:
                raise InvalidInput(f"mig: {row.name} is larger than the GPU")

    def described(self) -> Gpu:
        """Return it as other models are described."""
        capability = capabilities()[self.compute_capability]
        described, rates = (
            {name: getattr(self, name) for name in self.__slots__ if name in kind.__slots__}
            for kind in (Gpu, GpuRates)
        )
        return Gpu(
            **described,
            architecture=capability.architecture,
            rates=GpuRates(**rates),
            reserved_mib=None,
            power_limit_min_w=None,
            threads_per_sm=capability.threads,
            max_mps_clients=MAX_MPS_CLIENTS,
            sources={"file": self.source, "mig": self.source},
        )


def read_own_gpu(path: Path) -> Gpu:
    """Return the GPU model that the TOML file `path` describes, and keep it for later commands.

    Raises:
        InvalidInput: The file is malformed, or describes what cannot be.
    """
    own = check_record(OwnGpu, read_toml(path), str(path), _OWN_REMEDY).described()
    keep_gpu(own)
    return own


def keep_gpu(described: Gpu) -> None:
    """Keep the description of a GPU in the user's data folder, for commands without its source."""
    text = json.dumps({"schema": 1, **asdict(described)}, indent=1) + "\n"
    write_whole(user_folder("gpus") / f"{described.key}.json", text)


def gpu(key: str) -> Gpu:
    """Return the GPU model called `key`.

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
        f"Write an NVIDIA model, such as {DEFAULT_GPU}: `advisor gpus` lists all, and reads "
        f"those of this machine."
    )
    if match := _COUNTED.fullmatch(key):
        with suppress(InvalidInput):
            model = gpu_meant(match["before"] or match["after"]).key
            remedy = f"Write --gpu {model} --gpus {match['times'] or match['count']}."
    raise UnknownName("GPU", key, known_gpus(), remedy)


def gpu_meant(word: str) -> Gpu:
    """Return the GPU model that `word` names: its key, NVML's name, or a clear part of either.

    In letters of any case: ``"H200"``, ``"A100 40GB"``, ``"NVIDIA H100 PCIe"``, ``"3090"``.

    Raises:
        InvalidInput: Several models match, or the file is malformed.
        UnknownName: None matches.
    """
    if word in catalogue():
        return gpu(word)

    def parts_of(name: str) -> tuple[str, ...]:  # SXM5 and all others of that socket as SXM
        return tuple(re.sub(r"^sxm\d$", "sxm", part) for part in name_parts(name))

    def names_some(own: tuple[str, ...]) -> bool:  # in any order, with a number that is not memory
        models = [part for part in parts if part in own and re.search(r"\d", part)]
        return any(not part.endswith("gb") for part in models) and all(
            {part, f"{part}b", f"{part}gb"} & {*own} for part in parts
        )

    parts = parts_of(word)
    names = {
        key: [parts_of(name) for name in (key, *each.products)]
        for key, each in known_gpus().items()
        if not any(OF_MIG in name for name in each.products)  # those have to be named in full
    }
    joined = "".join(parts)  # without spaces they may be the first parts, as in h100sxm
    meant = (
        [key for key, own in names.items() if parts in own]
        or [key for key, own in names.items() if any(map(names_some, own))]
        or [key for key, own in names.items() if any(joined in accumulate(name) for name in own)]
    )
    if len(meant) > 1:
        raise InvalidInput(f"{word!r} may be {' or '.join(meant)}. Write one of these.")
    return gpu(meant[0] if meant else word)


def name_parts(name: str) -> tuple[str, ...]:
    """Return the parts of a name, without the maker and the product line."""
    parts = re.split(r"[^a-z0-9]+", name.lower())
    return tuple(part for part in parts if part and part not in _MAKERS)


def gpu_of_product(product: str) -> Gpu | None:
    """Return the GPU model that NVML calls `product`; None if it is unknown."""
    return next((each for each in known_gpus().values() if product in each.products), None)


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
        InvalidInput: It is malformed, names a GPU that is unknown or twice, or more than `most`.
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
        raise InvalidInput(f"--gpus {text!r:.60}: name the model of each number of GPUs once.")
    if min(each.gpus for each in counts) < 1 or sum(each.gpus for each in counts) > most:
        raise InvalidInput(f"--gpus {text!r:.60}: expected 1 to {most:,} GPUs.")
    return tuple(counts)
