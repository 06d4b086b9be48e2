"""The machine that advice is for: calibrated or not, and what of the profiles holds there."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from advisor.plan.recommendation import Calibrated, Predicts, Standing
from advisor.prediction.calibrated import on_machine, slowdown_of
from advisor.prediction.predictor import Predictor
from advisor.workload.calibration import Calibration
from advisor.workload.job import Job
from advisor.workload.staleness import Present, present_of, stale_profiles
from advisor.workload.store import load_calibration

_NONE = Path("none")


@dataclass(frozen=True, slots=True)
class Machine:
    """Where the jobs are to run.

    Attributes:
        file: Of `calibration`; None where there is none.
        calibration: None: predictions are for a host as fast as those of the profiles.
        present: What it has now; None where nobody knows.
    """

    file: Path | None
    calibration: Calibration | None
    present: Present | None

    def predictor(self, plain: Predictor) -> Predicts:
        """`plain`, for this machine."""
        return plain if self.calibration is None else on_machine(plain, self.calibration)

    def standing(self, jobs: Sequence[Job]) -> Standing:
        """What advice for `jobs` stands on here."""
        profiles = [job.profile for job in jobs]
        calibrated = None
        if self.calibration is not None:
            known = [slowdown_of(each, self.calibration, len(jobs)) for each in profiles]
            slowdowns = [each for each in known if each is not None]
            calibrated = Calibrated(str(self.file), median(slowdowns) if slowdowns else None)
        if self.present is None:
            return Standing(calibrated)
        stale = stale_profiles(profiles, self.present, host_known=self._host_known)
        return Standing(calibrated, stale)

    @property
    def _host_known(self) -> bool:
        """Whether the calibration is of a host like the present one: homes are often shared."""
        if self.calibration is None or self.present is None:
            return False
        return self.calibration.provenance.host_cpu == self.present.host_cpu


def machine(gpu: str, calibration: Path | None, present: Present | None) -> Machine:
    """The machine for which advice on `gpu` is.

    Args:
        gpu: Catalogue key.
        calibration: File of one; ``Path("none")``: none; None: the user's own, if there is one.
        present: What the machine at hand has; None: what the calibrated one had.

    Raises:
        InvalidInput: The calibration is malformed or of another GPU.
    """
    found = None if calibration == _NONE else load_calibration(gpu, calibration)
    if found is None:
        return Machine(None, None, present)
    return Machine(*found, present or present_of(found[1].provenance))
