"""Made-up measurements for tests of logic; never shown to a user as measured."""

from dataclasses import replace

from advisor.hardware.machine import Counters, Provenance
from advisor.workload.catalogue import workload
from advisor.workload.minimal_profile import MinimalProfile
from advisor.workload.profile import KernelTrace, LimitedRun, Memory, MpsProbe, Profile, Window
from advisor.workload.run import Run, Tenant

PROVENANCE = Provenance(
    device="NVIDIA H200",
    driver="580.0",
    cuda="13.0",
    torch="2.11.0",
    timm="1.0.29",
    python="3.12.3",
    sm_clock_mhz=1980,
    memory_clock_mhz=3201,
    host_cpu="synthetic",
    host_cores=16,
    date="2026-11-21T00:00:00+00:00",
    command="synthetic",
)


def trace(kernels: int, gpu_s: float, host_s: float, blocks: int) -> KernelTrace:
    """`kernels` equal kernels that fill `gpu_s`, launched evenly over `host_s`."""
    return KernelTrace(
        classes=("gemm",),
        class_of=(0,) * kernels,
        launch_us=tuple(1e6 * host_s * index / kernels for index in range(kernels)),
        duration_us=(1e6 * gpu_s / kernels,) * kernels,
        blocks=(blocks,) * kernels,
        threads=(256,) * kernels,
        resident_blocks=(4,) * kernels,
    )


def profile(
    name: str = "resnet50-imagenet64-bs128",
    *,
    host_s: float = 0.01,
    gpu_s: float = 0.008,
    blocks: int = 1000,
    kernels: int = 100,
    memory_mib: float = 4000.0,
) -> Profile:
    """A profile whose step is ``max(host_s, gpu_s)``, with equal kernels of `blocks` blocks."""
    step_s = max(host_s, gpu_s)
    windows = (Window(100 * step_s, 100.0),) * 3
    memory = Memory(
        allocated_mib=memory_mib * 0.7, reserved_mib=memory_mib * 0.9, device_mib=memory_mib
    )
    limited = tuple(
        LimitedRun(
            limit, round(1.32 * limit), (Window(100 * max(host_s, gpu_s * 60 / limit), 100),)
        )
        for limit in (14.0, 28.0, 50.0)
    )
    return Profile(
        workload=workload(name),
        gpu="h200-141gb",
        windows=windows,
        host_s=host_s,
        gpu_s=gpu_s,
        host_cpu_share=1.0,
        memory=memory,
        counters=Counters(
            source="gpm",
            gract=gpu_s / step_s,
            sm_active=0.8 * gpu_s / step_s,
            sm_occupancy=0.4 * gpu_s / step_s,
            tensor_active=0.1,
            dram_active=0.3 * gpu_s / step_s,
        ),
        power_w=300.0,
        energy_j=300.0 * step_s,
        idle_power_w=75.0,
        cores=tuple(range(workload(name).cores)),
        mps=MpsProbe(LimitedRun(100.0, 132, windows), limited, memory),
        trace=trace(kernels, gpu_s, host_s, blocks),
        provenance=PROVENANCE,
        host_check_s=0.001,
    )


def run(
    profiles: list[Profile], sharing: str = "mps", slowdown: float = 1.5, run_id: str = "r1"
) -> Run:
    """A shared run in which every job is `slowdown` times slower than alone."""
    tenants = tuple(
        Tenant(
            workload=each.workload,
            outcome="ok",
            detail=None,
            windows=tuple(replace(w, seconds=w.seconds * slowdown) for w in each.windows),
            memory=each.memory,
            cores=(core,),
            sms=132,
            host_check_s=0.001,
        )
        for core, each in enumerate(profiles)
    )
    return Run(
        id=run_id,
        gpu="h200-141gb",
        sharing=sharing,
        purpose="drawn",
        repeats=None,
        tenants=tenants,
        mps_clients=len(tenants) if sharing.startswith("mps") else 0,
        power_w=400.0,
        counters=profiles[0].counters,
        provenance=PROVENANCE,
    )


def numbers(**changes) -> MinimalProfile:
    """Numbers of a job that was watched and not measured."""
    watched = {
        "schema": 1,
        "workload": "my-job",
        "gpu": "h200-141gb",
        "batch_size": 64,
        "step_s": 0.12,
        "memory_mib": 5300,
        "power_w": 290,
        "gpu_utilization": 0.83,
        "memory_utilization": 0.41,
    }
    return MinimalProfile(**watched | changes)
