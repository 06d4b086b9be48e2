"""GPU models and their MIG tables, with sources, from `catalogue.json` in this folder.

A GPU that is not in it is read from its driver where it is (`advisor.hardware.unlisted_gpu`), and
kept in the user's data folder, so that commands elsewhere know it too.
"""

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from advisor.errors import InvalidInput, UnknownName
from advisor.hardware.gpu_rates import GpuRates
from advisor.workload.documents import read_json
from advisor.workload.files import read_once, user_folder
from advisor.workload.plausible import check_number
from advisor.workload.writing import write_whole

# What a driver keeps for itself where nobody has read it: as much as on the H200.
_RESERVED_MIB = 615

# Of any count or size of a GPU in its unit: 16 TiB of memory.
_MOST_OF_A_GPU = 2**24

# Among the sources of a GPU that a driver described: what it said.
DESCRIBED = "driver"

_MAKERS = frozenset({"nvidia", "tesla", "geforce", "quadro"})


@dataclass(frozen=True, slots=True, kw_only=True)
class MigProfile:
    """One kind of MIG GPU instance.

    Attributes:
        name: As the driver prints it, e.g. ``"3g.71gb"``.
        profile_id: What ``nvidia-smi mig -cgi`` takes.
        compute_slices: Compute slices of an instance.
        memory_slices: Memory slices of an instance.
        memory_mib: Memory usable by an instance; a driver may report slightly less or more.
        memory_estimated: Whether `memory_mib` is an estimate that no driver has reported.
        sms: Streaming multiprocessors of an instance; None if unknown.
        max_instances: Most instances on one GPU.
        starts: First memory slices at which an instance may start.
        min_driver: Branch of the first driver that offers it; None if unknown, or if the installed
            driver offers it.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU model; a field is None if no trustworthy source states it.

    Attributes:
        key: What ``--gpu`` takes, e.g. ``"h200-141gb"``.
        products: Names by which NVML calls it.
        memory_mib: Memory that the driver reports in all.
        reserved_mib: Memory that the driver reserves while nothing runs; None if not measured.
        bandwidth_gb_s: Peak DRAM bandwidth, 1e9 bytes a second.
        memory_slices: Memory slices in MIG mode; 0 without MIG.
        threads_per_sm: Threads that one SM holds at once.
        max_mps_clients: Most MPS clients.
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


def _gpu(key: str, entry: dict[str, Any]) -> Gpu:
    rates = GpuRates(bandwidth_gb_s=entry["bandwidth_gb_s"], **entry["rates"])
    fields = {"products": tuple(entry["products"]), "mig": _mig_of(entry), "rates": rates}
    return Gpu(key=key, **entry | fields)


@cache
def catalogue() -> dict[str, Gpu]:
    """Every GPU model that comes with this package, by key."""
    document = json.loads(files("advisor.hardware").joinpath("catalogue.json").read_text())
    return {key: _gpu(key, entry) for key, entry in document["gpus"].items()}


def known_gpus() -> dict[str, Gpu]:
    """Every GPU model known, by key: the catalogue's, then those that a driver described.

    Files that hold none are passed over; `gpu` says what is wrong with one that is asked for.
    """
    kept = {}
    for path in sorted(user_folder("gpus").glob("*.json")):
        with suppress(InvalidInput):
            kept[path.stem] = read_gpu(path)
    return {**catalogue(), **{key: each for key, each in kept.items() if key not in catalogue()}}


# What reading a document meets that is not of the form that it should have.
_WRONG = (
    ArithmeticError, AttributeError, LookupError, TypeError, ValueError, InvalidInput,
)  # fmt: skip


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
    found = Gpu(**fields | {"products": tuple(document["products"]), "mig": _mig_of(document)})
    words = (found.architecture, found.compute_capability, *found.products, *found.sources)
    if not all(isinstance(each, str) for each in words):
        raise InvalidInput("a name in it is no text")
    for name in (*_NUMBERS, *_NEEDED):
        value = getattr(found, name)
        if value is not None or name in _NEEDED:
            check_number(name, float(value), _MOST_OF_A_GPU, 1 if name in _NEEDED else 0)
    return found


def keep_gpu(described: Gpu) -> None:
    """Keep what a driver said of a GPU, for commands without it.

    Raises:
        AdvisorError: The user's data folder cannot be written.
    """
    fields = {name: value for name, value in asdict(described).items() if name != "rates"}
    text = json.dumps({"schema": 1, **fields}, indent=1) + "\n"
    write_whole(user_folder("gpus") / f"{described.key}.json", text)


# Counts and sizes of a GPU, and which of them it cannot be without.
_NUMBERS = (
    "reserved_mib", "bandwidth_gb_s", "l2_mib", "power_limit_w", "power_limit_min_w",
    "memory_slices",
)  # fmt: skip
_NEEDED = ("sms", "memory_mib", "threads_per_sm", "max_mps_clients")


def gpu(key: str) -> Gpu:
    """The GPU model called `key`.

    Raises:
        UnknownName: There is none of that key.
        InvalidInput: What was kept of it is malformed.
    """
    if (listed := catalogue().get(key)) is not None:
        return listed
    path = user_folder("gpus") / f"{key}.json"
    with suppress(OSError):  # a key that is longer than a file's name may be
        if key and key == Path(key).name and path.is_file():
            return read_gpu(path)
    remedy = "`advisor gpus` lists all, and reads the one at hand."
    raise UnknownName("GPU", key, known_gpus(), remedy)


def gpu_meant(word: str) -> Gpu:
    """The GPU model that `word` names.

    `word` is its key, NVML's name of the product, or an unambiguous part of either, in letters of
    any case: ``"H200"``, ``"A100 40GB"``, ``"NVIDIA H100 PCIe"``.

    Raises:
        InvalidInput: Several models match.
        UnknownName: None matches.
    """
    if word in catalogue():
        return gpu(word)
    asked = name_parts(word)
    names = {key: [name_parts(name) for name in (key, *each.products)]
             for key, each in known_gpus().items()}  # fmt: skip
    exact = [key for key, known in names.items() if asked in known]
    meant = exact or [key for key, known in names.items() if _begins(asked, known)]
    if len(meant) > 1:
        raise InvalidInput(f"{word!r} may be {' or '.join(meant)}. Say which.")
    return gpu(meant[0] if meant else word)


def name_parts(name: str) -> tuple[str, ...]:
    """The parts of a name, without the maker and the product line."""
    parts = re.split(r"[^a-z0-9]+", name.lower())
    return tuple(part for part in parts if part and part not in _MAKERS)


def _begins(asked: tuple[str, ...], names: Sequence[tuple[str, ...]]) -> bool:
    """Whether one of `names` is of the model that `asked` begins with, and has all its parts."""
    return any(asked[:1] == name[:1] and set(asked) <= set(name) for name in names)


def gpu_of_product(product: str) -> Gpu | None:
    """The GPU model that NVML calls `product`; None if it is not known."""
    return next((known for known in known_gpus().values() if product in known.products), None)
