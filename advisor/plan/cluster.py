"""The GPUs that a question is about: equal ones on equal hosts, with the jobs as they run there."""

from dataclasses import dataclass
from functools import cached_property

from advisor.hardware.gpus import Gpu, GpuCount
from advisor.prediction.mix_steps import Predicts
from advisor.prediction.power import idle_power_w
from advisor.workload.job import Job


@dataclass(frozen=True, kw_only=True)
class GpuPool:
    """Equal GPUs on equal hosts.

    Attributes:
        host_gpus: GPUs of each host.
        jobs: All jobs of the question, with their profiles on this model of GPU.
        predictor: Predicts while each GPU has an equal part of its host's cores.
        host_memory_mib: Memory of each host, of which each GPU's jobs have an equal part; None: as
            much as they need.
    """

    gpu: Gpu
    hosts: int
    host_gpus: int
    jobs: tuple[Job, ...]
    predictor: Predicts
    host_memory_mib: float | None = None

    @property
    def gpus(self) -> int:
        return self.hosts * self.host_gpus

    @cached_property
    def idle_power_w(self) -> float | None:
        return idle_power_w([job.profile for job in self.jobs])

    @property
    def count(self) -> GpuCount:
        """Its GPUs by host."""
        return GpuCount(self.gpu.key, self.hosts, self.host_gpus)
