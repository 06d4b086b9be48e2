"""A machine whose GPU is in MIG mode, for tests: NVML's functions on instances, state behind them.

It obeys the rules of the MIG User Guide as `tests.hardware.mig_twin` has them: places of profiles,
most of each, no slice twice, compute instances inside their GPU instance. A GPU instance with
compute instances, or with a job on it, is not destroyed. A handle of what is gone is an error of
the caller, which `misused` lists. `fault` says what each call returns instead of working.
"""

import json
import os
from collections.abc import Callable
from ctypes import POINTER, c_void_p, cast
from pathlib import Path
from typing import Any

import pynvml

from advisor.hardware.catalogue import gpu as known
from advisor.hardware.gpu_instances import ComputeInstance, GpuInstance
from tests.hardware.mig_twin import is_valid, rows_of
from tests.hardware.nvml import FUNCTIONS, FakeGpu, FakeLibrary, fill, point, pointed, text

# Compute slices of a GPU instance -> of a part -> where it may start: NVIDIA's mock for the 7g.
COMPUTE = {
    1: {1: (0,)},
    2: {1: (0, 1), 2: (0,)},
    3: {1: (0, 1, 2), 2: (0,), 3: (0,)},
    4: {1: (0, 1, 2, 3), 2: (0, 2), 4: (0,)},
    7: {1: tuple(range(7)), 2: (0, 2, 4), 3: (0, 4), 4: (0,), 7: (0,)},
}  # fmt: skip
ENUMERATORS = {1: 0, 2: 1, 3: 2, 4: 3, 7: 4}  # slices -> NVML's number, also the id on an A100

Fault = Callable[[int, str], int | None]


class MigMachine(FakeLibrary):
    """One GPU in MIG mode; `held` is id -> (profile id, start, {part id -> (size, start)})."""

    def __init__(
        self, key: str = "a100-40gb", state: Path | None = None, gpu: str = "GPU-0"
    ) -> None:
        card = known(key)
        self.card, self.rows, self.state = card, rows_of(card), state
        offers = {
            number: {
                "id": row.profile_id, "sliceCount": row.compute_slices, "isP2pSupported": 1,
                "instanceCount": row.max_instances, "multiprocessorCount": row.sms,
                "memorySizeMB": row.memory_mib, "name": f"MIG {row.name}".encode(),
                "places": [(start, row.memory_slices) for start in row.starts],
            }
            for number, row in enumerate(card.mig)
        }  # fmt: skip
        super().__init__(
            FakeGpu(
                card.products[0], gpu, mig=(1, 1), profiles=offers, capability=(8, 0), gpm=False
            )
        )
        self.held: dict[int, tuple[int, int, dict[int, tuple[int, int]]]] = {}
        self.made = 0
        self.calls: list[str] = []
        self.fault: Fault = lambda _number, _name: None
        self.misused: list[str] = []
        self.busy: set[int] = set()  # ids of GPU instances with a job on them
        if state and state.exists():
            self.made, held = json.loads(state.read_text())
            self.held = {
                int(n): (p, s, {int(c): tuple(v) for c, v in parts.items()})
                for n, (p, s, parts) in held.items()
            }

    def __getattr__(self, name: str) -> Callable[..., int]:
        if name not in FUNCTIONS and name not in MIG:
            raise AttributeError(name)

        def call(*arguments: Any) -> int:
            self.calls.append(name)
            if (code := self.fault(len(self.calls) - 1, name)) is not None:
                return code
            if name in MIG:
                return MIG[name](self, *arguments)
            if name == "nvmlDeviceGetUUID" and pointed(arguments[0]) >= _PART:
                return text(arguments[1], self.uuid(pointed(arguments[0]) - _PART))
            return FakeLibrary.__getattr__(self, name)(*arguments)

        return call

    def uuid(self, part: int) -> str:
        return f"MIG-{part:08d}-0000-0000-0000-000000000000"

    def put(self, *instances: GpuInstance) -> None:
        """Have `instances` there, as somebody made them before."""
        for each in instances:
            number = self.add(each.profile_id, each.start)
            for part in each.compute:
                self.made += 1
                self.held[number][2][self.made] = (part.size, part.start)

    def add(self, profile: int, start: int) -> int:
        self.made += 1
        self.held[self.made] = (profile, start, {})
        return self.made

    def layout(self) -> tuple[GpuInstance, ...]:
        """What is there, as the code under test would say it."""
        sizes = {row.profile_id: row.memory_slices for row in self.card.mig}
        return tuple(
            sorted(
                GpuInstance(
                    start, sizes[profile], profile,
                    tuple(sorted(
                        ComputeInstance(at, size, ENUMERATORS[size]) for size, at in parts.values()
                    )),
                )
                for profile, start, parts in self.held.values()
            )
        )  # fmt: skip

    def row(self, profile: int) -> int:
        return [row.profile_id for row in self.card.mig].index(profile)

    def slices(self, number: int) -> int:
        return self.card.mig[self.row(self.held[number][0])].compute_slices

    def saved(self) -> int:
        """After what changed something: as the driver's own state, it outlives its caller."""
        if self.state:
            draft = self.state.with_suffix(".new")
            draft.write_text(json.dumps([self.made, self.held]))
            os.replace(draft, self.state)  # noqa: PTH105
        return pynvml.NVML_SUCCESS


_WHOLE, _PART = 1000, 1_000_000  # handles: of GPU instances, and of compute instances and devices


def _instances(machine, _gpu, profile, array, count):
    found = [number for number, (kind, *_) in machine.held.items() if kind == profile]
    return _listed(found, _WHOLE, array, count)


def _listed(numbers, offset, array, count):
    slots = cast(array, POINTER(c_void_p))
    for at, number in enumerate(numbers):
        slots[at] = offset + number
    count._obj.value = len(numbers)
    return pynvml.NVML_SUCCESS


def _create(machine, _gpu, profile, place, reference):
    start = place._obj.start
    row = machine.row(profile)
    there = [(machine.row(kind), at) for kind, at, _ in machine.held.values()]
    if machine.card.mig[row].memory_slices != place._obj.size:
        return pynvml.NVML_ERROR_INVALID_ARGUMENT
    if not is_valid([*there, (row, start)], machine.rows):
        return pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES
    point(reference, _WHOLE + machine.add(profile, start))
    return machine.saved()


def of_instance(function):
    """A function of a GPU instance, by its number; a dead handle is written down."""

    def call(machine, handle, *arguments):
        number = pointed(handle) - _WHOLE
        if number not in machine.held:
            machine.misused.append(function.__name__)
            return pynvml.NVML_ERROR_INVALID_ARGUMENT
        return function(machine, number, *arguments)

    return call


def of_part(function):
    """A function of a compute instance, by the numbers of its GPU instance and its own."""

    def call(machine, handle, *arguments):
        part = pointed(handle) - _PART
        for number, (*_, parts) in machine.held.items():
            if part in parts:
                return function(machine, number, part, *arguments)
        machine.misused.append(function.__name__)
        return pynvml.NVML_ERROR_INVALID_ARGUMENT

    return call


@of_instance
def _info(machine, number, reference):
    profile, start, _ = machine.held[number]
    size = machine.card.mig[machine.row(profile)].memory_slices
    place = pynvml.c_nvmlGpuInstancePlacement_t(start, size)
    return fill(reference, id=number, profileId=profile, placement=place)


@of_instance
def _destroy(machine, number):
    if machine.held[number][2] or number in machine.busy:
        return pynvml.NVML_ERROR_IN_USE
    del machine.held[number]
    return machine.saved()


@of_instance
def _part_profile(machine, number, enumerator, _engine, reference):
    offers = {ENUMERATORS[size]: size for size in COMPUTE[machine.slices(number)]}
    if enumerator not in offers:
        return pynvml.NVML_ERROR_NOT_SUPPORTED
    size = offers[enumerator]
    most = len(COMPUTE[machine.slices(number)][size])
    return fill(reference, id=enumerator, sliceCount=size, instanceCount=most)


@of_instance
def _parts(machine, number, profile, array, count):
    found = [
        part for part, (size, _) in machine.held[number][2].items() if ENUMERATORS[size] == profile
    ]
    return _listed(found, _PART, array, count)


@of_instance
def _create_part(machine, number, profile, place, reference):
    size, start, parts = place._obj.size, place._obj.start, machine.held[number][2]
    taken = {at + n for length, at in parts.values() for n in range(length)}
    if ENUMERATORS.get(size) != profile or start not in COMPUTE[machine.slices(number)][size]:
        return pynvml.NVML_ERROR_INVALID_ARGUMENT
    if taken & set(range(start, start + size)):
        return pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES
    machine.made += 1
    parts[machine.made] = (size, start)
    point(reference, _PART + machine.made)
    return machine.saved()


@of_part
def _part_info(machine, number, part, reference):
    size, start = machine.held[number][2][part]
    place = pynvml.c_nvmlComputeInstancePlacement_t(start, size)
    point_to = cast(c_void_p(_PART + part), type(reference._obj.device))
    return fill(reference, device=point_to, id=part, profileId=ENUMERATORS[size], placement=place)


@of_part
def _destroy_part(machine, number, part):
    if number in machine.busy:
        return pynvml.NVML_ERROR_IN_USE
    del machine.held[number][2][part]
    return machine.saved()


MIG = {
    "nvmlDeviceGetGpuInstances": _instances,
    "nvmlDeviceCreateGpuInstanceWithPlacement": _create,
    "nvmlGpuInstanceGetInfo": _info,
    "nvmlGpuInstanceDestroy": _destroy,
    "nvmlGpuInstanceGetComputeInstanceProfileInfoV": _part_profile,
    "nvmlGpuInstanceGetComputeInstances": _parts,
    "nvmlGpuInstanceCreateComputeInstanceWithPlacement": _create_part,
    "nvmlComputeInstanceGetInfo_v2": _part_info,
    "nvmlComputeInstanceDestroy": _destroy_part,
}

CHANGES = {name for name in MIG if "Create" in name or "Destroy" in name}
"""The functions that change something."""
