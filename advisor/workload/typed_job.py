"""A job that a person types into a form: its numbers in the units in which people read them."""

from collections.abc import Mapping
from dataclasses import dataclass

from advisor.errors import InvalidInput
from advisor.workload.minimal_profile import MinimalProfile
from advisor.workload.nvidia_smi import JobAlone

_GIB, _MS, _PERCENT, _MINUTE = 1024.0, 1e-3, 0.01, 60.0
_OF_HALF = "step_s_under_50"
_STEPS = "steps_per_epoch"


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number of the form.

    Attributes:
        name: The field of `MinimalProfile` that it sets, in `unit`s of that field.
        label: Its name and unit for people.
        most: The largest that is possible; None: any.
    """

    name: str
    label: str
    unit: float = 1.0
    most: float | None = None


def _share(name: str, label: str) -> Quantity:
    return Quantity(name, f"{label}, %", _PERCENT, 100.0)


QUANTITIES = (
    Quantity("step_s", "Step, ms", _MS, 60_000.0),
    Quantity("memory_mib", "Memory, GiB", _GIB),
    _share("gpu_utilization", "GPU utilization"),
    Quantity("batch_size", "Batch, examples"),
    Quantity(_STEPS, "Steps an epoch"),
)
"""The quantities that the form asks for first."""

MORE_QUANTITIES = (
    Quantity("duration_s", "Whole job, min", _MINUTE),
    Quantity("power_w", "Power, W"),
    _share("memory_utilization", "Memory utilization"),
    _share("sm_active", "SMs with a warp"),
    _share("sm_occupancy", "Warp slots in use"),
    _share("tensor_active", "Tensor cores active"),
    _share("dram_active", "Memory bandwidth in use"),
    Quantity(_OF_HALF, "Step at half the SMs, ms", _MS, 600_000.0),
)
"""The quantities that improve predictions if they are known."""


def typed_job(name: str, gpu: str, numbers: Mapping[str, float | None]) -> MinimalProfile:
    """Return the profile of the job `name` on `gpu`, a key of the catalogue.

    Args:
        name: The job's name.
        gpu: The GPU on which it was watched.
        numbers: The numbers of the form by the names of `QUANTITIES`; None: unknown.

    Raises:
        InvalidInput: A number is missing or impossible.
    """
    given = {
        each.name: round(number * each.unit, 12)
        for each in (*QUANTITIES, *MORE_QUANTITIES)
        if (number := numbers.get(each.name)) is not None
    }
    if "memory_mib" not in given:
        raise InvalidInput("Memory is missing. Type what `nvidia-smi` lists for the process.")
    if "step_s" not in given and "duration_s" not in given:
        raise InvalidInput("The length is missing. Type that of a step, or of the whole job.")
    if "step_s" in given and "batch_size" not in given:
        raise InvalidInput("The batch is missing. Type the examples of a step.")
    batch, steps = round(given.pop("batch_size", 1.0)), given.pop(_STEPS, None)
    half_s = given.pop(_OF_HALF, None)
    return MinimalProfile(
        schema=1,
        workload=name,
        gpu=gpu,
        batch_size=batch,
        examples_per_epoch=None if steps is None else round(steps) * batch,
        step_s_under_limit={} if half_s is None else {"50": half_s},
        memory_mib=given.pop("memory_mib"),
        **dict.fromkeys(("step_s", "power_w", "gpu_utilization", "memory_utilization")) | given,
    )


def numbers_of(seen: JobAlone) -> dict[str, float]:
    """Return what `nvidia-smi` showed of a job as numbers of the form."""
    return {
        each.name: round(value / each.unit, 2)
        for each in (*QUANTITIES, *MORE_QUANTITIES)
        if (value := getattr(seen, each.name, None)) is not None
    }
