"""GPU models and their MIG tables, as data with sources: `catalogue.json` beside this file."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from advisor.errors import InvalidInput, UnknownName

_MAKERS = frozenset({"nvidia", "tesla", "geforce", "quadro"})


@dataclass(frozen=True, slots=True, kw_only=True)
class MigProfile:
    """One kind of MIG GPU instance.

    Attributes:
        name: As the driver prints it, e.g. ``"3g.71gb"``.
        profile_id: What ``nvidia-smi mig -cgi`` takes.
        compute_slices: Compute slices of an instance.
        memory_slices: Memory slices of an instance.
        memory_mib: Memory usable by an instance; the driver at hand may differ a little.
        memory_estimated: Whether no driver was seen to say `memory_mib`.
        sms: Streaming multiprocessors of an instance; None where unknown.
        max_instances: Most that one GPU offers.
        starts: First memory slices at which an instance may lie.
        min_driver: Branch of the first driver that offers it; None where nobody says, and
            where the driver at hand offers it.
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
    """A GPU model; None where nothing trustworthy says.

    Attributes:
        key: What ``--gpu`` takes, e.g. ``"h200-141gb"``.
        products: Names by which NVML calls it.
        memory_mib: Memory that the driver reports in all.
        reserved_mib: What of it the driver keeps for itself while nothing runs; None where
            nobody looked.
        bandwidth_gb_s: Peak DRAM bandwidth, 1e9 bytes a second.
        memory_slices: Memory slices in MIG mode; 0 where it has no MIG.
        threads_per_sm: Threads that one SM holds at once.
        max_mps_clients: MPS clients at most.
        sources: Field name -> where its value comes from.
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

    def __hash__(self) -> int:
        """Of what tells GPUs apart: answers are remembered by their GPU, and asked for often."""
        return hash((self.key, self.sms))

    @property
    def usable_mib(self) -> int:
        """Memory that processes can have; all of it where the driver's own share is unknown."""
        return self.memory_mib - (self.reserved_mib or 0)


def _gpu(key: str, entry: dict[str, Any]) -> Gpu:
    mig = tuple(MigProfile(**row | {"starts": tuple(row["starts"])}) for row in entry["mig"])
    return Gpu(key=key, **entry | {"products": tuple(entry["products"]), "mig": mig})


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
    """The GPU model that somebody means by `word`.

    That is its key, NVML's name of the product, or as much of either as fits no other model, in
    letters of any case: ``"H200"``, ``"A100 40GB"``, ``"NVIDIA H100 PCIe"``.

    Raises:
        InvalidInput: Several may be meant.
        UnknownName: None is.
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
    """What a name consists of, without its maker and what the driver says of its line."""
    parts = re.split(r"[^a-z0-9]+", name.lower())
    return tuple(part for part in parts if part and part not in _MAKERS)


def _begins(asked: tuple[str, ...], names: Sequence[tuple[str, ...]]) -> bool:
    """Whether one of `names` is of the model that `asked` begins with, and has all its parts."""
    return any(asked[:1] == name[:1] and set(asked) <= set(name) for name in names)


def gpu_of_product(product: str) -> Gpu | None:
    """The GPU model that NVML calls `product`; None where the catalogue has none."""
    return next((known for known in catalogue().values() if product in known.products), None)
