"""Reads, makes and removes the MIG instances of a GPU through NVML.

`reach` compares what is there with what is wanted and does the difference, so that it can be
repeated, whatever interrupted it. Nothing is kept between calls: the handles of NVML die with what
they stand for. What is asked for, and whether it may be, is decided in `advisor.apply`.

Not yet run on MIG hardware: written from NVIDIA's NVML reference and MIG User Guide, tested against
a stand-in of them. To read instances takes the rights to make them.
"""

from collections.abc import Callable, Iterator, Sequence
from ctypes import byref, c_uint
from dataclasses import dataclass
from time import sleep
from typing import Any, TypeVar

from advisor.errors import GpuUnavailable, NothingFits
from advisor.hardware.gpu_instances import ComputeInstance, GpuInstance
from advisor.hardware.nvml_driver import driver, handle_of

# An instance that has just been used cannot be removed for a moment, nor its slices be had: MISO
# and FAR, which ran on MIG, repeat until it works.
_TRIES, _PAUSE_S = 50, 0.2
_PASSING = ("IN_USE", "INSUFFICIENT_RESOURCES", "UNKNOWN", "TIMEOUT")

_MEANINGS = {
    "IN_USE": "an instance that is to go is in use still. End what runs on it, see `nvidia-smi`",
    "INSUFFICIENT_RESOURCES": "a place that was free is taken. Somebody else makes instances too",
    "NO_PERMISSION": "this user may not change MIG instances. Run it as root, or ask for the "
    "right to read /proc/driver/nvidia/capabilities/mig/config",
    "FUNCTION_NOT_FOUND": "the driver is too old to place MIG instances. R525 or later does",
    "NOT_SUPPORTED": "the driver makes no MIG instances on this GPU. See `nvidia-smi mig -lgip`",
}
_NOT_OFFERED = ("INVALID_ARGUMENT", "NOT_SUPPORTED")


_Found = TypeVar("_Found")


@dataclass(frozen=True, slots=True)
class MigDevice:
    """What a process names to run on a compute instance.

    Attributes:
        instance: The GPU instance that it is in.
        compute: The compute instance itself.
        uuid: ``"MIG-..."``, for CUDA_VISIBLE_DEVICES.
    """

    instance: GpuInstance
    compute: ComputeInstance
    uuid: str


@dataclass(frozen=True, slots=True)
class _Held:
    """An instance with NVML's handles of it, and of its compute instances, in their order."""

    value: GpuInstance
    handle: Any
    compute: tuple[Any, ...]


def mig_instances(device: int | str) -> tuple[GpuInstance, ...]:
    """The MIG instances that are there now, by start.

    Raises:
        GpuUnavailable: Rights lack, or the driver is too old.
    """
    return _repeated(device, lambda nvml, gpu: tuple(each.value for each in _held(nvml, gpu)))


def mig_devices(device: int | str) -> tuple[MigDevice, ...]:
    """The compute instances that are there now, with their UUIDs."""
    return _repeated(device, _devices)


def reach(device: int | str, wanted: Sequence[GpuInstance], known: Sequence[GpuInstance]) -> None:
    """Remove and make instances until those of `wanted` are there, and none else of `known`.

    What is there already is left alone, and so is what others make meanwhile. What fails in
    passing is tried again for some seconds.

    Args:
        device: A GPU in MIG mode.
        wanted: Each at its place, with its compute instances.
        known: Those that may be removed, by their places.

    Raises:
        GpuUnavailable: One is in use, a place is taken, rights lack, or the driver is too old.
        NothingFits: The driver offers no compute instance of that size there.
    """
    places = {each.place for each in known}

    def differ(nvml: Any, gpu: Any) -> None:
        _remove(nvml, [each for each in _held(nvml, gpu) if each.value.place in places], wanted)
        _make(nvml, gpu, wanted)

    _repeated(device, differ)


def _repeated(device: int | str, act: Callable[[Any, Any], _Found]) -> _Found:
    tries = 1
    with driver() as nvml:
        while True:
            try:
                return act(nvml, handle_of(nvml, device))
            except nvml.NVMLError as error:
                name = _name(nvml, error)
                if name not in _PASSING or tries == _TRIES:
                    if name not in _MEANINGS:
                        raise
                    raise GpuUnavailable(f"{device}: {_MEANINGS[name]}.") from None
            tries += 1
            sleep(_PAUSE_S)


def _name(nvml: Any, error: Any) -> str | None:
    """NVML's name of `error`, if anything here depends on it."""
    names = (*_PASSING, *_MEANINGS)
    return next(
        (each for each in names if error.value == getattr(nvml, f"NVML_ERROR_{each}")), None
    )


def _remove(nvml: Any, removable: Sequence[_Held], wanted: Sequence[GpuInstance]) -> None:
    targets = {each.place: each for each in wanted}
    for held in removable:
        target = targets.get(held.value.place)
        for value, handle in zip(held.value.compute, held.compute, strict=True):
            if target is None or not any(value.is_like(each) for each in target.compute):
                nvml.nvmlComputeInstanceDestroy(handle)
        if target is None:
            nvml.nvmlGpuInstanceDestroy(held.handle)


def _make(nvml: Any, gpu: Any, wanted: Sequence[GpuInstance]) -> None:
    there = {held.value.place: held for held in _held(nvml, gpu)}
    for target in wanted:
        if (held := there.get(target.place)) is None:
            place = nvml.c_nvmlGpuInstancePlacement_t(target.start, target.size)
            handle = nvml.nvmlDeviceCreateGpuInstanceWithPlacement(
                gpu, target.profile_id, byref(place)
            )
            held = _Held(target, handle, ())
            has: tuple[ComputeInstance, ...] = ()
        else:
            has = held.value.compute
        for each in target.compute:
            if not any(each.is_like(other) for other in has):
                _make_compute(nvml, held.handle, each)


def _make_compute(nvml: Any, instance: Any, wanted: ComputeInstance) -> None:
    ids = [
        info.id
        for info in _compute_offers(nvml, instance)
        if info.sliceCount == wanted.size and wanted.profile_id in (None, info.id)
    ]
    if not ids:
        raise NothingFits(
            f"the driver offers no compute instance of {wanted.size} slices there. See "
            f"`nvidia-smi mig -lcip`."
        )
    place = nvml.c_nvmlComputeInstancePlacement_t(wanted.start, wanted.size)
    nvml.nvmlGpuInstanceCreateComputeInstanceWithPlacement(instance, ids[0], byref(place))


def _held(nvml: Any, gpu: Any) -> list[_Held]:
    """All GPU instances that are there, by start."""
    found = []
    for number in range(nvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
        info = _offered(nvml, nvml.nvmlDeviceGetGpuInstanceProfileInfo, gpu, number)
        if info is None:
            continue
        handles = (nvml.c_nvmlGpuInstance_t * info.instanceCount)()
        count = c_uint(info.instanceCount)
        nvml.nvmlDeviceGetGpuInstances(gpu, info.id, handles, byref(count))
        found += [_held_instance(nvml, handle) for handle in handles[: count.value]]
    return sorted(found, key=lambda held: held.value)


def _held_instance(nvml: Any, handle: Any) -> _Held:
    said = nvml.nvmlGpuInstanceGetInfo(handle)
    parts = sorted(_held_compute(nvml, handle), key=lambda part: part[0])
    value = GpuInstance(
        said.placement.start, said.placement.size, said.profileId, tuple(v for v, _ in parts)
    )
    return _Held(value, handle, tuple(part for _, part in parts))


def _held_compute(nvml: Any, instance: Any) -> Iterator[tuple[ComputeInstance, Any]]:
    for info in _compute_offers(nvml, instance):
        handles = (nvml.c_nvmlComputeInstance_t * info.instanceCount)()
        count = c_uint(info.instanceCount)
        nvml.nvmlGpuInstanceGetComputeInstances(instance, info.id, handles, byref(count))
        for handle in handles[: count.value]:
            said = nvml.nvmlComputeInstanceGetInfo_v2(handle)
            yield ComputeInstance(said.placement.start, said.placement.size, said.profileId), handle


def _compute_offers(nvml: Any, instance: Any) -> list[Any]:
    """NVML's descriptions of the compute instances that a GPU instance can hold."""
    shared = nvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED
    asked = nvml.nvmlGpuInstanceGetComputeInstanceProfileInfo
    offers = (
        _offered(nvml, asked, instance, number, shared)
        for number in range(nvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT)
    )
    return [each for each in offers if each is not None]


def _devices(nvml: Any, gpu: Any) -> tuple[MigDevice, ...]:
    return tuple(
        MigDevice(
            held.value, value,
            # Not by a walk over all MIG devices, which can take ten seconds.
            str(nvml.nvmlDeviceGetUUID(nvml.nvmlComputeInstanceGetInfo_v2(handle).device)),
        )
        for held in _held(nvml, gpu)
        for value, handle in zip(held.value.compute, held.compute, strict=True)
    )  # fmt: skip


def _offered(nvml: Any, function: Any, *arguments: Any) -> Any:
    """What `function` returns; None where the GPU has no such profile. Lack of rights is raised."""
    try:
        return function(*arguments)
    except nvml.NVMLError as error:
        if error.value not in {getattr(nvml, f"NVML_ERROR_{name}") for name in _NOT_OFFERED}:
            raise
        return None
