"""A profile of bare numbers: what a training log and ``nvidia-smi`` showed of a job alone."""

import json
import re
from dataclasses import asdict, dataclass, field

from advisor.errors import InvalidInput
from advisor.files.units import (
    LEAST_STEP_S,
    MOST_EPOCH_S,
    MOST_MIB,
    MOST_W,
    Schema,
    check,
    check_number,
)
from advisor.hardware.machine import Counters
from advisor.workload.profile import LimitedRun, Memory, MpsProbe, Profile, Window
from advisor.workload.spec import Workload, batch_name

# Of what a log calls a step. Milliseconds taken for seconds are mostly longer.
_MOST_STEP_S = 60.0

# Stands for a step whose length is unknown: near the mean over the runs to which the corrections
# of answers without a trace were fitted, so that they count the job as an average one. Slowdowns in
# drawn runs of an H200 and an H100 are 25.0 % off with it under MPS, 24.4 % with the lengths; 16.8
# and 16.5 % with SM limits, 4.0 and 3.9 % under time-slicing.
NOMINAL_STEP_S = 0.02

# The smallest CUDA context, without modules and libraries, on any GPU. With them it takes 300 and
# more; GiB taken for MiB are below this.
LEAST_MEMORY_MIB = 100.0

# What nvidia-smi prints as 0 %.
_LEAST_UTILIZATION = 0.005

_BY_DCGM = ("sm_active", "sm_occupancy", "tensor_active", "dram_active")

# A step varies by so much on a host; below, one of the two numbers is wrong.
_LEAST_UNDER_LIMIT = 0.8

# In a whole profile the workload is an object.
_NAMED_WORKLOAD = re.compile(rb'"workload"\s*:\s*"')


@dataclass(frozen=True, slots=True, kw_only=True)
class MinimalProfile:
    """Numbers of a job that was watched alone on a whole GPU, not measured.

    Attributes:
        workload: The job's name.
        gpu: Catalogue key of the GPU that it ran on.
        batch_size: Examples of a step.
        step_s: Seconds of a training step; None: unknown, and `duration_s` is.
        memory_mib: GPU memory of its process, as ``nvidia-smi`` lists it.
        power_w: Mean power of the whole GPU.
        gpu_utilization: Share of time in which any kernel ran, by ``nvidia-smi``, 0..1.
        memory_utilization: Share of time in which memory was read or written, by ``nvidia-smi``,
            0..1. It shows best how much slices of an A100 or A30 slow the job.
        examples_per_epoch: Examples of one pass over the data; None: unknown.
        duration_s: Seconds of the whole job alone, which then count as an epoch; None: unknown.
        sm_active: Mean share of SMs with a warp, by DCGM, 0..1; None: unknown.
        sm_occupancy: Share of warp slots in use, likewise.
        tensor_active: Share of cycles in which tensor cores worked, likewise.
        dram_active: Share of memory bandwidth in use, likewise.
        step_s_under_limit: Seconds of a step alone under an MPS limit, by its percentage as a
            text; two show how much of the GPU the job fills. It needs `step_s`.
    """

    schema: Schema
    workload: str
    gpu: str
    batch_size: int
    step_s: float | None
    memory_mib: float
    power_w: float | None
    gpu_utilization: float | None
    memory_utilization: float | None
    examples_per_epoch: int | None = None
    duration_s: float | None = None
    sm_active: float | None = None
    sm_occupancy: float | None = None
    tensor_active: float | None = None
    dram_active: float | None = None
    step_s_under_limit: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.step_s is None and self.duration_s is None:
            raise InvalidInput(
                "step_s may be null only if duration_s has the seconds of the whole job"
            )
        if self.duration_s is not None:
            check_number("duration_s", self.duration_s, MOST_EPOCH_S, self.step_s or NOMINAL_STEP_S)
            if self.examples_per_epoch is not None:
                raise InvalidInput(
                    "examples_per_epoch and duration_s both set the length of an epoch. Leave one "
                    "out"
                )
        if self.step_s is not None:
            check_number("step_s", self.step_s, float("inf"), LEAST_STEP_S)
            if self.step_s > _MOST_STEP_S:
                raise InvalidInput(
                    f"step_s is in seconds and at most {_MOST_STEP_S:g}, got {self.step_s:g}: "
                    f"{self.step_s:g} ms are {self.step_s / 1000:g} s. With accumulated "
                    "gradients, count every backward pass as a step"
                )
        self._check_limits()
        self._check_numbers()
        self.whole()  # which checks the rest

    def _check_limits(self) -> None:
        for percent, step_s in self.step_s_under_limit.items():
            if self.step_s is None:
                raise InvalidInput("step_s_under_limit needs step_s: the step without a limit")
            if not re.fullmatch(r"[0-9]{1,2}(\.[0-9]+)?", percent) or not float(percent):
                raise InvalidInput(
                    f"step_s_under_limit: expected a limit in per cent such as 50, got {percent!r}"
                )
            check_number("a step under a limit", step_s, float("inf"), LEAST_STEP_S)
            if step_s < _LEAST_UNDER_LIMIT * self.step_s:
                raise InvalidInput(
                    f"step_s_under_limit: {step_s:g} s under a limit of {percent} % is less than "
                    f"{self.step_s:g} s without a limit. Measure both again"
                )

    def _check_numbers(self) -> None:
        if self.memory_mib < LEAST_MEMORY_MIB:
            raise InvalidInput(
                f"memory_mib must be at least {LEAST_MEMORY_MIB:g}, got {self.memory_mib:g}: a "
                "CUDA context alone takes more. Pass the MiB that nvidia-smi lists for the "
                f"process while it trains; {self.memory_mib:g} GiB are {self.memory_mib * 1024:g}"
            )
        check(self, ("memory_mib",), MOST_MIB)
        check(self, ("power_w",), MOST_W)
        if self.gpu_utilization is not None and 0 <= self.gpu_utilization < _LEAST_UTILIZATION:
            raise InvalidInput(
                f"gpu_utilization: {idle(self.memory_mib)}. Read it while the job trains, or "
                "leave it out"
            )
        for name in ("gpu_utilization", "memory_utilization", *_BY_DCGM):
            if (share := getattr(self, name)) is None:
                continue
            if not 0 <= share <= 1:
                in_per_cent = f": {share:g} % is {share / 100:g}" if 1 < share <= 100 else ""
                raise InvalidInput(f"{name} is a share in 0..1, got {share:g}{in_per_cent}")
            if self.gpu_utilization is None:
                raise InvalidInput(f"{name} needs gpu_utilization. Pass both numbers of nvidia-smi")

    def whole(self) -> Profile:
        """Return it as a `Profile`, in which all other numbers are None.

        A step that is unknown counts `NOMINAL_STEP_S`, and the source is ``"duration"``.
        """
        share, parts = self.gpu_utilization, batch_name(self.workload)
        work = parts.work if parts else self.workload
        step_s, examples = self.step_s or NOMINAL_STEP_S, self.examples_per_epoch
        by_dcgm = {name: getattr(self, name) for name in _BY_DCGM}
        if self.duration_s is not None:
            examples = max(1, round(self.duration_s / step_s)) * self.batch_size
        memory = Memory(allocated_mib=None, reserved_mib=None, device_mib=self.memory_mib)
        windows = (Window(step_s, 1.0),)
        limited = tuple(
            LimitedRun(float(percent), None, (Window(under_limit_s, 1.0),))
            for percent, under_limit_s in self.step_s_under_limit.items()
        )
        return Profile(
            workload=Workload(
                name=self.workload,
                source="duration" if self.step_s is None else "numbers",
                model=work,
                family=work,
                batch=self.batch_size,
                examples_per_epoch=examples,
            ),
            gpu=self.gpu,
            windows=windows,
            host_s=None,
            gpu_s=None if share is None else share * step_s,
            host_cpu_share=None,
            memory=memory,
            counters=None
            if share is None
            else Counters(
                source="dcgm" if any(by_dcgm.values()) else "nvml",
                gract=share,
                memory_utilization=self.memory_utilization,
                **by_dcgm,
            ),
            power_w=self.power_w,
            energy_j=None,
            idle_power_w=None,
            cores=(),
            mps=MpsProbe(LimitedRun(100.0, None, windows), limited, memory) if limited else None,
            trace=None,
            provenance=None,
        )


def idle(memory_mib: float, power: str = "") -> str:
    """Return the doubt about a job that holds memory on a GPU whose utilisation is 0."""
    return (
        f"the GPU utilisation is 0 while the job holds {memory_mib:,.0f} MiB{power}: the job did "
        "not train, or the counter is stuck"
    )


def holds_minimal(text: bytes) -> bool:
    """Return whether the JSON `text` has the form of a minimal profile, valid or not."""
    return _NAMED_WORKLOAD.search(text) is not None


def minimal_text(minimal: MinimalProfile) -> str:
    """Return `minimal` as JSON in one line, without the last fields if they are unknown."""
    entries = asdict(minimal)
    for name in ("examples_per_epoch", "duration_s", *_BY_DCGM, "step_s_under_limit"):
        if entries[name] in (None, {}):
            del entries[name]
    return json.dumps(entries, allow_nan=False) + "\n"
