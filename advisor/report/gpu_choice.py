"""The GPU models that can be asked about, and what answers about each are based on."""

from dataclasses import dataclass

from advisor.hardware.catalogue import known_gpus
from advisor.prediction.estimated_profile import most_alike
from advisor.workload.store import profile_paths


@dataclass(frozen=True, slots=True)
class GpuChoice:
    """A GPU model that can be asked about.

    Attributes:
        at_hand: Whether it is in this machine.
        measured: Number of jobs with profiles of this GPU.
        nearest: GPUs from which other jobs are estimated, nearest first.
    """

    key: str
    at_hand: bool
    measured: int
    nearest: tuple[str, ...]

    @property
    def label(self) -> str:
        """A word or two, for a narrow list to choose from."""
        stands = "measured" if self.measured else "estimated"
        return f"{self.key}: {'in this machine' if self.at_hand else stands}"

    @property
    def standing(self) -> str:
        """What answers about it are based on, in a sentence or two."""
        here = "This GPU is in this machine. " if self.at_hand else ""
        if not self.measured:
            return f"{here}Nothing was measured on it: all answers are {self._estimated}."
        others = f"; other jobs are {self._estimated}" if self.nearest else ""
        return f"{here}Jobs measured on it alone: {self.measured}{others}."

    @property
    def _estimated(self) -> str:
        return f"estimated from {', '.join(self.nearest)}"


def gpu_choices(at_hand: str | None) -> dict[str, GpuChoice]:
    """All GPU models known by key: the one `at_hand` first, then those with profiles of them."""
    known = known_gpus()
    measured = {key: len(profile_paths(key)) for key in known}
    sources = {key for key in known if measured[key]}
    keys = sorted(known, key=lambda key: (key != at_hand, key not in sources))
    return {
        key: GpuChoice(key, key == at_hand, measured[key], most_alike(sources - {key}, known[key]))
        for key in keys
    }
