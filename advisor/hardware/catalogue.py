"""GPU models and their MIG tables, with sources, from `catalogue.json` in this folder."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from advisor.errors import InvalidInput, UnknownName
from advisor.hardware.gpu_rates import GpuRates

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
        """Memory that processes can have; all of it if the driver's own share is unknown."""
        return self.memory_mib - (self.reserved_mib or 0)


def _gpu(key: str, entry: dict[str, Any]) -> Gpu:
    mig = tuple(MigProfile(**row | {"starts": tuple(row["starts"])}) for row in entry["mig"])
    rates = GpuRates(bandwidth_gb_s=entry["bandwidth_gb_s"], **entry["rates"])
    fields = {"products": tuple(entry["products"]), "mig": mig, "rates": rates}
    return Gpu(key=key, **entry | fields)


@cache
def catalogue() -> dict[str, Gpu]:
    """Every GPU model known, by key."""
    document = json.loads(files("advisor.hardware").joinpath("catalogue.json").read_text())
    return {key: _gpu(key, entry) for key, entry in document["gpus"].items()}


def gpu(key: str) -> Gpu:
    """The GPU model called `key`.

    Raises:
        UnknownName: The catalogue has none of that key.
    """
    try:
        return catalogue()[key]
    except KeyError:
        raise UnknownName("GPU", key, catalogue(), "`advisor gpus` lists all.") from None


def gpu_meant(word: str) -> Gpu:
    """The GPU model that `word` names.

    `word` is its key, NVML's name of the product, or an unambiguous part of either, in letters of
    any case: ``"H200"``, ``"A100 40GB"``, ``"NVIDIA H100 PCIe"``.

    Raises:
        InvalidInput: Several models match.
        UnknownName: None matches.
    """
    asked = _parts(word)
    names = {key: [_parts(name) for name in (key, *each.products)]
             for key, each in catalogue().items()}  # fmt: skip
    exact = [key for key, known in names.items() if asked in known]
    meant = exact or [key for key, known in names.items() if _begins(asked, known)]
    if len(meant) > 1:
        raise InvalidInput(f"{word!r} may be {' or '.join(meant)}. Say which.")
    return gpu(meant[0] if meant else word)


def _parts(name: str) -> tuple[str, ...]:
    """The parts of a name, without the maker and the product line."""
    parts = re.split(r"[^a-z0-9]+", name.lower())
    return tuple(part for part in parts if part and part not in _MAKERS)


def _begins(asked: tuple[str, ...], names: Sequence[tuple[str, ...]]) -> bool:
    """Whether one of `names` is of the model that `asked` begins with, and has all its parts."""
    return any(asked[:1] == name[:1] and set(asked) <= set(name) for name in names)


def gpu_of_product(product: str) -> Gpu | None:
    """The GPU model that NVML calls `product`; None if it is not in the catalogue."""
    return next((known for known in catalogue().values() if product in known.products), None)
