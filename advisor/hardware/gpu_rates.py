"""Rates of a GPU: its peak as its maker states it, or as measured."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRates:
    """Rates of a whole GPU, of which ratios between two GPUs are taken.

    Attributes:
        fp32_tflops: FP32 arithmetic on vector units, 1e12 operations a second.
        tf32_tflops: TF32 products on tensor cores, without sparsity; None if it has none.
        fp16_tflops: FP16 products on tensor cores, accumulated in FP32, without sparsity; BF16 has
            the same rate where a GPU has it (compute capability 8.0 and later).
        bandwidth_gb_s: To its memory, 1e9 bytes a second.
        clock_mhz: Highest clock of its SMs.
        launch_us: From the start of a kernel that does nothing to the start of the next one; None
            if not measured.
    """

    fp32_tflops: float
    tf32_tflops: float | None
    fp16_tflops: float
    bandwidth_gb_s: float
    clock_mhz: float
    launch_us: float | None = None
