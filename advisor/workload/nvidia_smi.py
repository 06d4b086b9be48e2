"""Reads what ``nvidia-smi`` printed while a job ran alone: its table, or CSV with a first line."""

import csv
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from statistics import fmean

from advisor.errors import InvalidInput
from advisor.hardware.gpus import known_gpus

_MOST_CHARACTERS, _MOST_OF_LINE = 200_000, 300
_REMEDY = "Paste all that `nvidia-smi` prints while the job trains alone on its GPU."

# Two lines of a GPU in the table, and one of a process. Drivers before 450 print no MIG instances.
_GPU = re.compile(r"\|\s*(\d{1,3})\s+(\S.{0,60}?)\s+(?:On|Off|N/A|WDDM|TCC)\s*\|\s+[\dA-F]{4,8}:")
_USE = re.compile(
    r"(\d{1,4}|N/A)W?\s*/\s*[\dN/A]{1,5}W?\s*\|\s*(\d{1,7})MiB\s*/\s*\d{1,7}MiB\s*"
    r"\|\s*(?:(\d{1,3})%|N/A|ERR!)\s"
)
_PROCESS = re.compile(
    r"\|\s*(\d{1,3})\s+(?:(N/A|\d{1,3})\s+(?:N/A|\d{1,3})\s+)?\d{1,10}\s+(C|G|C\+G|M|M\+C)\s+"
    r"(\S.{0,200}?)\s+(?:(\d{1,7})MiB|N/A)\s*\|"
)
_MPS_SERVER = "nvidia-cuda-mps-server"

# How CSV names the columns that count, without units.
_INDEX, _NAME = ("index", "uuid", "gpu_uuid", "pci.bus_id", "gpu_bus_id"), ("name", "gpu_name")
_USED, _HELD = "memory.used", ("used_memory", "used_gpu_memory")
_NUMBER = re.compile(r"\s*(\d{1,9}(?:\.\d{1,9})?)\s*(?:MiB|W|%)?\s*")


@dataclass
class _Gpu:
    """The lines of one GPU; the figures of several moments are lists."""

    product: str | None = None
    used_mib: list[float] = field(default_factory=list)
    busy: list[float] = field(default_factory=list)
    memory_busy: list[float] = field(default_factory=list)
    power_w: list[float] = field(default_factory=list)
    held_mib: list[float] = field(default_factory=list)  # by each job; NaN: not shown
    in_instances: bool = False


@dataclass(frozen=True, slots=True)
class JobAlone:
    """A job that ran alone on a GPU, as far as ``nvidia-smi`` showed it.

    Attributes:
        product: Name of the GPU as shown; None: not shown.
        gpu: Catalogue key of the GPU; None: not shown in full, or not in the catalogue.
        memory_mib: GPU memory of its process, or of the whole GPU if no process is listed.
        gpu_utilization: Share of time in which any kernel ran, 0..1, mean of several moments.
        memory_utilization: Share of time in which memory was read or written, 0..1, mean.
        power_w: Power of the whole GPU, mean of several moments.
    """

    product: str | None
    gpu: str | None
    memory_mib: float | None
    gpu_utilization: float | None
    memory_utilization: float | None
    power_w: float | None


def read_nvidia_smi(text: str) -> JobAlone:
    """Return the job alone on a GPU in what ``nvidia-smi`` printed.

    Raises:
        InvalidInput: The text is something else, or shows no job, several, or one on an instance.
    """
    if len(text) > _MOST_CHARACTERS:
        raise InvalidInput(f"The text has more than {_MOST_CHARACTERS:,} characters. {_REMEDY}")
    gpus = _gpus_of_table(text) if "|" in text else _gpus_of_csv(text)
    if not gpus:
        raise InvalidInput(f"No GPU found in the text. {_REMEDY}")
    busy = {number: gpu for number, gpu in gpus.items() if gpu.held_mib} or gpus
    if len(busy) > 1:
        raise InvalidInput(
            f"The text shows {len(busy)} GPUs. Print one, by `nvidia-smi -i NUMBER`."
        )
    (gpu,) = busy.values()
    if len(gpu.held_mib) > 1:
        raise InvalidInput(f"{len(gpu.held_mib)} jobs run on that GPU. {_REMEDY}")
    if gpu.in_instances:
        raise InvalidInput(f"The job runs on a MIG instance. {_REMEDY}")
    shown_mib = [each for each in gpu.held_mib if isfinite(each)] or gpu.used_mib
    return JobAlone(
        product=gpu.product,
        gpu=_key(gpu.product or ""),
        memory_mib=max(shown_mib, default=None),
        gpu_utilization=fmean(gpu.busy) / 100 if gpu.busy else None,
        memory_utilization=fmean(gpu.memory_busy) / 100 if gpu.memory_busy else None,
        power_w=fmean(gpu.power_w) if gpu.power_w else None,
    )


def _key(product: str) -> str | None:
    """The only GPU called so; ``...`` at the end stands for the rest of the name."""
    start = product.removesuffix("...")
    keys = [
        gpu.key
        for gpu in known_gpus().values()
        if product in gpu.products
        or (start != product and any(each.startswith(start) for each in gpu.products))
    ]
    return keys[0] if len(keys) == 1 else None


def _gpus_of_table(text: str) -> Mapping[str, _Gpu]:
    gpus: defaultdict[str, _Gpu] = defaultdict(_Gpu)
    last = ""
    for line in text.splitlines():
        if len(line) > _MOST_OF_LINE:
            continue
        if process := _PROCESS.search(line):
            number, instance, kind, program, held_mib = process.groups()
            if "C" in kind and program != _MPS_SERVER:
                gpus[number].held_mib.append(float(held_mib or "nan"))
                gpus[number].in_instances |= instance not in (None, "N/A")
        elif gpu := _GPU.search(line):
            last = gpu[1]
            gpus[last].product = gpu[2]
        elif last and (use := _USE.search(line)):
            gpus[last].used_mib.append(float(use[2]))
            gpus[last].power_w += [] if use[1] == "N/A" else [float(use[1])]
            gpus[last].busy += [] if use[3] is None else [float(use[3])]
    return gpus


def _gpus_of_csv(text: str) -> Mapping[str, _Gpu]:
    gpus: defaultdict[str, _Gpu] = defaultdict(_Gpu)
    rows = csv.reader(text.strip().splitlines(), skipinitialspace=True)
    try:
        names = [heading.partition(" [")[0].strip() for heading in next(rows, [])]
        for cells in rows:
            _add_row(gpus, dict(zip(names, cells, strict=False)))
    except csv.Error as error:
        raise InvalidInput(f"The text is not CSV: {error}. {_REMEDY}") from None
    return gpus


def _add_row(gpus: defaultdict[str, _Gpu], row: Mapping[str, str]) -> None:
    numbers = {name: float(n[1]) for name, cell in row.items() if (n := _NUMBER.fullmatch(cell))}
    if not numbers.keys() & {_USED, *_HELD, "utilization.gpu"}:
        return
    gpu = gpus[next((row[name] for name in _INDEX if name in row), "")]
    gpu.product = next((row[name] for name in _NAME if name in row), None)
    for name, figures in (
        (_USED, gpu.used_mib),
        ("utilization.gpu", gpu.busy),
        ("utilization.memory", gpu.memory_busy),
        ("power.draw", gpu.power_w),
        *((name, gpu.held_mib) for name in _HELD),
    ):
        if name in numbers:
            figures.append(numbers[name])
