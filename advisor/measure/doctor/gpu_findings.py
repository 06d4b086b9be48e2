"""What on a GPU disturbs measuring or sharing, and what to do, by what was read of it before.

Branches of drivers as NVIDIA's MIG User Guide lists them (Supported GPUs; Placement, of 4g beside
3g; MIG device names); MPS as its documentation says (Architecture: Volta and later).
"""

import re
from collections.abc import Callable, Iterator

from advisor.hardware.catalogue import known_gpus
from advisor.hardware.gpu_health import GpuHealth
from advisor.hardware.gpu_state import BrokenGpu, LiveGpu
from advisor.measure.doctor.findings import Finding, Said

# By what the product's name holds, the first branch that cuts it into MIG instances.
_FIRST_FOR_MIG = {
    "A100": 450, "A30": 460, "H100": 525, "GH200": 525, "H20": 535, "H200": 550, "B200": 570,
    "GB200": 570, "B300": 580, "GB300": 580, "RTX PRO": 575,
}  # fmt: skip
# Since this branch, 4g and 3g instances fit beside each other.
_FIRST_FOR_4G_3G = 510
_VOLTA = (7, 0)


def gpu_findings(
    gpu: LiveGpu | BrokenGpu, health: GpuHealth | None, owner: Callable[[int], str]
) -> Iterator[Finding]:
    """What on a GPU spoils.

    Args:
        gpu: As it is now.
        health: Its settings; None where it does not answer.
        owner: Says whose a process is, by its pid.
    """
    about = f"GPU {gpu.index}"
    if isinstance(gpu, BrokenGpu) or health is None:
        problem = gpu.problem.rstrip(".") if isinstance(gpu, BrokenGpu) else "it does not answer"
        yield Finding("blocks", about, problem, "nothing runs on it", "see dmesg, or reboot")
        return
    for part in (
        _use(gpu, owner),
        _modes(gpu, health),
        _pace(health),
        _memory(health),
        _counters(gpu),
        _age(gpu, health),
    ):
        for severity, what, why, remedy in part:
            yield Finding(severity, about, what, why, remedy.format(index=gpu.index))


def _use(gpu: LiveGpu, owner: Callable[[int], str]) -> Iterator[Said]:
    if gpu.processes:
        named = ", ".join(f"{each.pid} of {owner(each.pid)}" for each in gpu.processes)
        yield (
            "blocks", f"process {named} uses it", "measurements beside it would be wrong",
            "wait for it, or use another GPU; what may join it: advisor recommend --now",
        )  # fmt: skip
    if gpu.mig_enabled:
        yield (
            "blocks", "it is in MIG mode", "jobs share an instance there, and not the whole GPU",
            "sudo nvidia-smi -i {index} -mig 0, or run on its instances",
        )  # fmt: skip
    if gpu.mig_pending is not None and gpu.mig_pending != gpu.mig_enabled:
        yield (
            "blocks", f"MIG mode will be {'on' if gpu.mig_pending else 'off'} after the next reset",
            "until then neither the old mode nor the new one can be relied on",
            "end all processes on it, then: sudo nvidia-smi -i {index} --gpu-reset",
        )  # fmt: skip


def _modes(gpu: LiveGpu, health: GpuHealth) -> Iterator[Said]:
    set_default = "sudo nvidia-smi -i {index} -c DEFAULT"
    match gpu.compute_mode:
        case "prohibited":
            yield "blocks", "its compute mode is prohibited", "no process may use it", set_default
        case "exclusive-process" | "exclusive-thread":
            yield (
                "blocks", f"its compute mode is {gpu.compute_mode}",
                "one process has it for itself: naive sharing fails, and MPS works", set_default,
            )  # fmt: skip
    if health.persistence is False:
        yield (
            "spoils", "persistence mode is off",
            "the driver unloads between runs: each start takes seconds, and settings are lost",
            "sudo nvidia-smi -i {index} -pm 1",
        )  # fmt: skip
    if health.time_slice not in (None, "default"):
        yield (
            "spoils", f"time slices are set to {health.time_slice}",
            "naive sharing was learnt with the default",
            "sudo nvidia-smi compute-policy -i {index} --set-timeslice 0, or measure it: "
            "advisor calibrate --gpu-side",
        )  # fmt: skip


def _pace(health: GpuHealth) -> Iterator[Said]:
    if health.slowed_by:
        yield (
            "spoils", f"its clocks are held down by {', '.join(health.slowed_by)}",
            "it is slower than the same GPU elsewhere",
            "nvidia-smi -q -i {index} -d CLOCK,PERFORMANCE,POWER,TEMPERATURE says more",
        )  # fmt: skip
    limit_w, default_w = health.power_limit_w, health.default_limit_w
    if limit_w is not None and default_w is not None and round(limit_w) != round(default_w):
        yield (
            "spoils", f"its power limit is {limit_w:g} W and not {default_w:g} W",
            "predictions are for the GPU's own limit",
            f"sudo nvidia-smi -i {{index}} --power-limit={default_w:g}, or say --power-cap "
            f"{limit_w:g}",
        )  # fmt: skip


def _memory(health: GpuHealth) -> Iterator[Said]:
    if health.uncorrected_errors:
        yield (
            "spoils", f"{health.uncorrected_errors} memory errors were not corrected",
            "a process that reads them ends, and under MPS its mates with it",
            "reset the GPU; where they come back, have it replaced",
        )  # fmt: skip
    if health.remap_pending:
        yield (
            "spoils", "bad memory waits to be replaced by spare rows",
            "until a reset it may be used", "sudo nvidia-smi -i {index} --gpu-reset",
        )  # fmt: skip
    if health.ecc is not None and health.ecc[0] != health.ecc[1]:
        yield (
            "note", f"ECC will be {'on' if health.ecc[1] else 'off'} after the next reset",
            "memory and its bandwidth change then", "reset now, and measure afterwards",
        )  # fmt: skip
    if health.ecc == (False, False):
        yield (
            "note", "ECC is off", "errors of memory go unseen, in results too",
            "sudo nvidia-smi -i {index} -e 1, then a reset",
        )  # fmt: skip


def _counters(gpu: LiveGpu) -> Iterator[Said]:
    if gpu.counters == "nvml":
        yield (
            "note", "nothing counts how active its SMs and its memory are",
            "it has no GPM, which came with Hopper, and DCGM does not answer: profiles tell less, "
            "and ranges are somewhat wider",
            "on a data-centre GPU: install datacenter-gpu-manager, then: sudo systemctl start "
            "nvidia-dcgm",
        )  # fmt: skip


def _age(gpu: LiveGpu, health: GpuHealth) -> Iterator[Said]:
    if health.compute_capability is not None and tuple(health.compute_capability) < _VOLTA:
        yield (
            "blocks", f"{gpu.product} is older than Volta",
            "its MPS has no limits and no memory of its own for each client",
            "use a newer GPU, or naive sharing",
        )  # fmt: skip
    if gpu.catalogue_key is None:
        yield (
            "blocks", f"{gpu.product} is not in the catalogue, and its driver does not describe it",
            "nothing can be answered for it", "update the driver",
        )  # fmt: skip
    elif known_gpus()[gpu.catalogue_key].mig and (branch := re.match(r"\d+", gpu.driver)):
        yield from _age_for_mig(gpu, int(branch[0]))


def _age_for_mig(gpu: LiveGpu, branch: int) -> Iterator[Said]:
    names = [name for name in _FIRST_FOR_MIG if re.search(rf"\b{name}\b", gpu.product)]
    first = max((_FIRST_FOR_MIG[name] for name in names), default=0)
    if branch < first:
        yield (
            "blocks", f"driver {gpu.driver} is older than branch {first}",
            f"MIG on {gpu.product} begins with that", "update the driver, or plan without MIG",
        )  # fmt: skip
    elif branch < _FIRST_FOR_4G_3G:
        yield (
            "note", f"driver {gpu.driver} is older than branch {_FIRST_FOR_4G_3G}",
            "a 4g and a 3g instance do not fit beside each other", "update the driver",
        )  # fmt: skip
