"""The basis of all answers: a GPU, profiles, the model, this machine, and their predictors."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from numbers import Real
from pathlib import Path
from typing import Any, Self

from advisor.errors import InvalidInput, UnknownName
from advisor.hardware import DEFAULT_GPU
from advisor.hardware.gpus import Gpu, MigProfile, gpu_meant
from advisor.hardware.machine import HostCheck
from advisor.plan.forecast import Machine, machine
from advisor.plan.values import Standing
from advisor.prediction.cache import cached_by_profiles
from advisor.prediction.caching_predictor import CachingPredictor, pace_of
from advisor.prediction.find_profile import profile_finder
from advisor.prediction.host import on_host
from advisor.prediction.model import Model, OwnPace, load_model
from advisor.prediction.other_gpu import on_gpu, on_host_of
from advisor.prediction.predictor import Predictor
from advisor.prediction.replay import replay_mix
from advisor.workload.job import Job
from advisor.workload.profile import FindsProfiles, Profile
from advisor.workload.profile_checks import Present
from advisor.workload.store import NO_CALIBRATION, model_path


@dataclass(frozen=True)
class Basis:
    """Profiles and predictors for one GPU model; `advisor.api.Advisor` describes the fields."""

    gpu: str = DEFAULT_GPU
    _: KW_ONLY
    profiles: Path | None = None
    models: Path | None = None
    calibration: Path | None = None
    power_cap_w: float | None = None
    host_cores: int | None = None
    present: Present | None = None
    host_check: HostCheck | None = None
    mig: tuple[MigProfile, ...] | None = None
    share_loader: bool = False

    def __post_init__(self) -> None:
        check_kind("a GPU", self.gpu, str, "its name, e.g. 'a100-40gb'")
        gpu_meant(self.gpu)
        check_kind("power_cap_w", self.power_cap_w, Real | None, "a number, or None")
        check_kind("host_cores", self.host_cores, int | None, "a whole number, or None")
        if self.host_cores is not None and self.host_cores < 1:
            raise InvalidInput(f"host_cores is at least 1, got {self.host_cores}")
        for name in ("profiles", "models", "calibration"):
            path = getattr(self, name)
            check_kind(name, path, str | Path | None, "a path, e.g. 'mine'")
            object.__setattr__(self, name, None if path is None else Path(path))

    @cached_property
    def card(self) -> Gpu:
        """The GPU model, with the MIG instances of the installed driver if they are known."""
        model = gpu_meant(self.gpu)
        return model if self.mig is None else replace(model, mig=self.mig)

    @cached_property
    def model(self) -> Model:
        """The model fitted to runs on this GPU and on others."""
        return load_model(model_path(self.models))

    @cached_property
    def machine(self) -> Machine:
        """The machine that advice is for."""
        return machine(self.card.key, self.calibration, self.present, self.host_check)

    @cached_property
    def find_profile(self) -> FindsProfiles:
        """Function from a name or file to the profile, estimated if measured on another GPU."""
        finder = profile_finder(self.card, self.profiles)

        def find(name: str) -> Profile:
            check_kind("a profile", name, str, "its name")
            return finder(name)

        return find

    @cached_property
    def uncalibrated(self) -> Predictor:
        """Predictor for hosts as fast as those of the profiles, without a power cap."""
        return Predictor(self.card, self.model, replay=cached_by_profiles(replay_mix))

    @property
    def predictor(self) -> CachingPredictor:
        """Predictor for this machine under the power cap, which predicts each mix once."""
        return self.predictor_under(self.power_cap_w)

    @cached_property
    def _predictor(self) -> CachingPredictor:
        """Predictor for this machine with all cores and without a power cap."""
        uncapped = self.machine.predictor(self.uncalibrated)
        return CachingPredictor(uncapped, self.card, self.own_paces)

    def predictor_under(self, cap_w: float | None, busy_gpus: int = 1) -> CachingPredictor:
        """Return `predictor` under another power cap; None: the GPU's own limit.

        While `busy_gpus` run jobs, each of them has an equal part of the host's cores.
        """
        cores = None if self.cores is None else self.cores / busy_gpus
        return self._predictor.under(cores=cores, cap_w=cap_w)

    @property
    def cores(self) -> int | None:
        """Cores of each host, for all jobs on all its GPUs; None: as many as the jobs need."""
        return self.host_cores or (None if self.present is None else self.present.host_cores)

    @property
    def own_paces(self) -> Mapping[str, OwnPace]:
        """Paces of jobs, by name, that the user's own runs on this GPU showed."""
        return self.model.own_paces.get(self.card.key, {})

    def standing(self, jobs: Sequence[Job]) -> Standing:
        """Return the evidence that advice for `jobs` is based on."""
        profiles = {job.name: job.profile for job in jobs}
        paced = {
            name: pace
            for name, profile in profiles.items()
            if (pace := pace_of(profile, self.own_paces)) is not None
        }
        return replace(self.machine.standing(jobs), own_paces=paced, power_cap_w=self.power_cap_w)

    def under(self, cap_w: float) -> Self:
        """Return the same under another power cap; both share what was read and predicted."""
        capped = replace(self, power_cap_w=cap_w)
        shared = ("model", "machine", "find_profile", "_predictor")
        vars(capped).update({name: getattr(self, name) for name in shared})
        return capped

    def on_other(self, gpu: str) -> Self:
        """Return the advice for another model of GPU, on a host like this one."""
        if self.power_cap_w is not None:
            raise InvalidInput("a power cap needs a single GPU model. Name one model, or no cap")
        calibration = self.calibration if self.calibration == NO_CALIBRATION else None
        return replace(
            self, gpu=gpu, calibration=calibration, host_cores=self.cores, present=None, mig=None
        )

    def profile_on(self, there: "Basis", own: Profile) -> Profile:
        """Return the profile `own` as it runs `there`, measured or estimated, on its host."""
        try:
            profile = on_host_of(there.find_profile(own.name), own)
        except UnknownName:
            profile = on_gpu(own, there.card)
        factor = self._host_factor(own) / there._host_factor(profile)
        moved = on_host(profile, factor)
        return replace(moved, host_check_s=profile.host_check_s, workload=own.workload)

    def _host_factor(self, profile: Profile) -> float:
        """Seconds of host work here, by own runs, else by the check, over those of `profile`."""
        pace, host = pace_of(profile, self.own_paces), self.machine.host
        if pace is not None and pace.runs:
            return pace.slowdown
        return 1.0 if host is None else host.factor(profile)


def as_list(what: str, values: Any, of: str) -> list[Any]:
    """Return `values` as a list; a word, which would be read letter by letter, is refused."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InvalidInput(f"{what} are a list of {of}, as [{values!r:.60}]")
    return list(values)


def check_kind(what: str, value: object, kind: Any, example: str) -> None:
    """Check that `value` is of that `kind`; messages call it `what`, and show the `example`."""
    if not isinstance(value, kind):
        raise InvalidInput(f"{what} is written as {example}; got {value!r:.60}")
