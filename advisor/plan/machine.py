"""The machine that advice is for: its calibration, and which profiles hold there."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from advisor.errors import AdvisorError
from advisor.plan.recommendation import Calibrated, Standing
from advisor.prediction.calibrated_predictor import (
    calibrated_predictor,
    profiles_on_calibrated,
    slowdown_of,
)
from advisor.prediction.predictor import Predictor
from advisor.prediction.surrogate_answers import Predicts
from advisor.workload.estimates import estimated_profiles
from advisor.workload.job import Job
from advisor.workload.machine_calibration import Calibration
from advisor.workload.profile import Profile
from advisor.workload.staleness import (
    Present,
    present_of,
    stale_profiles,
    unsteady_profiles,
)
from advisor.workload.store import NO_CALIBRATION, load_calibration

HostCheckNow = Callable[[], Calibration]
"""Checks the host at hand; raises an `AdvisorError` or an `OSError` where it cannot."""


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine on which the jobs are to run.

    Attributes:
        file: File of `calibration`; None where there is no calibration, or the host was checked
            just now.
        calibration: Its calibration; None: the speed of its host is unknown, and intervals allow
            for that.
        present: Its hardware and software now; None: not known.
        unchecked: Why a check of the host just now failed; None: it succeeded, or none was tried.
    """

    file: Path | None
    calibration: Calibration | None
    present: Present | None
    unchecked: str | None = None

    def predictor(self, plain: Predictor) -> Predicts:
        """The predictor `plain`, corrected for this machine."""
        return plain if self.calibration is None else calibrated_predictor(plain, self.calibration)

    def standing(self, jobs: Sequence[Job]) -> Standing:
        """What a recommendation for `jobs` on this machine is based on."""
        profiles = [job.profile for job in jobs]
        calibrated = None
        if self.calibration is not None:
            known = [slowdown_of(each, self.calibration, len(jobs)) for each in profiles]
            slowdowns = [each for each in known if each is not None]
            file = None if self.file is None else str(self.file)
            calibrated = Calibrated(file, median(slowdowns) if slowdowns else None)
        unsteady, estimated = unsteady_profiles(profiles), estimated_profiles(profiles)
        if self.present is None:
            return Standing(calibrated, unsteady=unsteady, estimated=estimated)
        measured = [each for each in profiles if each.estimated_from is None]
        stale = stale_profiles(measured, self.present, host_known=self._host_known)
        return Standing(calibrated, stale, self.unchecked, unsteady, estimated)

    def profiles_here(self, profiles: Sequence[Profile], busy: int) -> tuple[Profile, ...]:
        """`profiles` at the speed of this machine's host with `busy` cores at work, if known."""
        if self.calibration is None:
            return tuple(profiles)
        return profiles_on_calibrated(profiles, self.calibration, busy)

    @property
    def _host_known(self) -> bool:
        """Whether the calibration may be of the present host: machines often share home folders."""
        if self.calibration is None or self.present is None:
            return False
        return self.calibration.provenance.host_cpu == self.present.host_cpu


def machine(
    gpu: str,
    calibration: Path | None,
    present: Present | None,
    check_host: HostCheckNow | None = None,
) -> Machine:
    """Find the calibration for advice on `gpu`.

    A calibration file that is named is used. Otherwise the user's own is, if it is of the host at
    hand. Where there is none, `check_host` measures how fast the host is now.

    Args:
        gpu: Catalogue key.
        calibration: File of a calibration; `NO_CALIBRATION`: use none; None: the user's own, if
            there is one.
        present: Hardware and software of the machine at hand; None: those of the calibrated
            machine.
        check_host: Checks the host at hand; None: advice is not for this machine.

    Raises:
        InvalidInput: The calibration is malformed or of another GPU.
    """
    if calibration == NO_CALIBRATION:
        return Machine(None, None, present)
    found, unchecked = load_calibration(gpu, calibration), None
    if check_host is not None and calibration is None and not _of_this_host(found, present):
        try:
            return Machine(None, check_host(), present)
        except (AdvisorError, OSError) as error:
            unchecked = str(error)
    if found is None:
        return Machine(None, None, present, unchecked)
    return Machine(*found, present or present_of(found[1].provenance), unchecked)


def _of_this_host(found: tuple[Path, Calibration] | None, present: Present | None) -> bool:
    """Whether the calibration `found` may be of the present host: homes are often shared."""
    if found is None:
        return False
    here = None if present is None else present.host_cpu
    return here in (None, found[1].provenance.host_cpu)
