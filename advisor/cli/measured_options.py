"""The options that say whose measurements a model is fitted to, or scored on."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from advisor.cli.options import GpuKey, Profiles
from advisor.cli.output import leave_out
from advisor.hardware import DEFAULT_GPU

if TYPE_CHECKING:
    from advisor.prediction.fit.observation import MeasuredGpu
    from advisor.workload.profile import Profile
    from advisor.workload.run import Run


@dataclass(frozen=True, slots=True)
class MeasuredOptions:
    """A GPU, and the folder of what was measured on it and on others."""

    gpu: GpuKey = DEFAULT_GPU
    profiles: Profiles = None

    def read(self) -> "tuple[dict[str, Profile], tuple[Run, ...], tuple[Run, ...]]":
        """Profiles by name, the shipped runs, and the user's own; runs need their profiles.

        Other files that hold no profile are left out with a warning.
        """
        return _measured(self.gpu, self.profiles)

    def others(self) -> "tuple[MeasuredGpu, ...]":
        """What was measured on every other GPU with runs that is known; a CPU is none."""
        from advisor.hardware.catalogue import known_gpus
        from advisor.prediction.fit.observation import MeasuredGpu
        from advisor.workload.store import profiled_gpus

        found, known = [], known_gpus()
        for key in sorted((known.keys() & profiled_gpus(self.profiles)) - {self.gpu}):
            profiles, shipped, own = _measured(key, self.profiles)
            if shipped + own:
                found.append(MeasuredGpu(known[key], profiles, shipped + own))
        return tuple(found)


def _measured(
    gpu: str, folder: Path | None
) -> "tuple[dict[str, Profile], tuple[Run, ...], tuple[Run, ...]]":
    from advisor.workload.estimates import measured_profiles
    from advisor.workload.store import runs_by_owner, tenants_of

    shipped, own = runs_by_owner(gpu, folder)
    found, refused = measured_profiles(gpu, folder, tenants_of(shipped + own))
    leave_out(*refused)
    return found, shipped, own
