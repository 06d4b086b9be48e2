"""The data that advice is based on: profiles, the fitted model, and the machine it is for."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Self

from advisor.arguments import (
    JobLike,
    JobsLike,
    jobs_meant,
    listed,
    number_meant,
    of_kind,
    path_meant,
)
from advisor.errors import InvalidInput, with_article
from advisor.hardware import DEFAULT_GPU
from advisor.hardware.gpus import Gpu, gpu_meant
from advisor.prediction.mix_steps import Predicts
from advisor.workload.calibration import Present
from advisor.workload.job import Job
from advisor.workload.profile import FindsProfiles, Profile
from advisor.workload.store import model_path

if TYPE_CHECKING:
    from advisor.hardware.gpu_state import LiveGpu
    from advisor.plan.admission import Running
    from advisor.plan.forecast import HostCheckNow, Machine
    from advisor.plan.values import Standing
    from advisor.prediction.model import Model, OwnPace
    from advisor.prediction.predictor import Predictor

    pass


@dataclass(frozen=True)
class Sources:
    """The data behind answers about one model of GPU.

    The model and the calibration are read when first needed, and then kept.

    Attributes:
        gpu: Name of a GPU model, as `gpu_meant` takes it.
        profiles: Folder of profiles; None: the shipped ones and the user's own.
        models: Folder of models; None: the user's refit, else the shipped one.
        calibration: File of a calibration; `NO_CALIBRATION`: none; None: the user's own of that
            GPU, if there is one.
        power_cap_w: Power cap of the GPU in watts; None: the GPU's own limit.
        host_cores: Number of host cores for all jobs together; None: that of the machine at hand,
            if advice is for it, else as many as the jobs need.
        present: The machine at hand, to find stale profiles; None: the machine that was calibrated.
        check_host: Measures the speed of the host at hand if it was not calibrated; None: advice is
            not for it, and profiles stay as on the hosts on which they were measured.

    Raises:
        InvalidInput: There is no such GPU, the name may mean several, or a number or path is none.
    """

    gpu: str = DEFAULT_GPU
    _: KW_ONLY
    profiles: Path | None = None
    models: Path | None = None
    calibration: Path | None = None
    power_cap_w: float | None = None
    host_cores: int | None = None
    present: Present | None = None
    check_host: "HostCheckNow | None" = None

    def __post_init__(self) -> None:
        of_kind("a GPU", self.gpu, str, "its name, e.g. 'a100-40gb'")
        gpu_meant(self.gpu)
        number_meant("power_cap_w", self.power_cap_w)
        number_meant("host_cores", self.host_cores, counts=True)
        for name in ("profiles", "models", "calibration"):
            object.__setattr__(self, name, path_meant(name, getattr(self, name)))

    @property
    def card(self) -> Gpu:
        return gpu_meant(self.gpu)

    @cached_property
    def model(self) -> "Model":
        """The model fitted to runs on this GPU and on others.

        Raises:
            InvalidInput: The file is malformed, or the folder given has none.
        """
        from advisor.prediction.model import load_model

        return load_model(model_path(self.models))

    @cached_property
    def machine(self) -> "Machine":
        """The machine that advice is for.

        Raises:
            InvalidInput: The calibration is malformed or of another GPU.
        """
        from advisor.plan.forecast import machine

        return machine(self.card.key, self.calibration, self.present, self.check_host)

    @cached_property
    def find_profile(self) -> FindsProfiles:
        """Finds profiles by name; those not measured on this GPU are estimated from other GPUs.

        Raises:
            InvalidInput: When called: there is none of that name, or its file is malformed.
        """
        from advisor.prediction.find_profile import profile_finder

        found = profile_finder(self.card, self.profiles, self.calibration)

        def find(name: str) -> Profile:
            of_kind("a profile", name, str, "its name")
            return found(name)

        return find

    @cached_property
    def uncalibrated(self) -> "Predictor":
        """Predictor for hosts as fast as those of the profiles, without a power cap."""
        from advisor.prediction.cache import once_a_mix
        from advisor.prediction.predictor import Predictor
        from advisor.prediction.replay import replay_mix

        return Predictor(self.card, self.model, play=once_a_mix(replay_mix))

    @cached_property
    def predictor(self) -> Predicts:
        """Predictor for this machine under the power cap; each mix is predicted once.

        So questions that differ little share most of their work.

        Raises:
            InvalidInput: The model is malformed, or the GPU cannot be set to that cap.
        """
        return self.predictor_under(self.power_cap_w)

    def predictor_under(self, cap_w: float | None) -> Predicts:
        """As `predictor`, under another power cap; None: the GPU's own limit."""
        from advisor.plan.candidates import CappedPredictor
        from advisor.plan.forecast import MixCache

        if cap_w is None:
            return self._uncapped
        return MixCache(CappedPredictor(self._uncapped, self.card, cap_w))

    @cached_property
    def _uncapped(self) -> Predicts:
        """As `predictor`, under the GPU's own limit; predictions under caps are derived from it."""
        from advisor.learn.own_runs import PacedPredictor
        from advisor.plan.forecast import MixCache
        from advisor.prediction.predictor import SharedCores

        here = self.machine.predictor(self.uncalibrated)
        at_hand = None if self.present is None else self.present.host_cores
        cores = self.host_cores or at_hand
        shared = here if cores is None else SharedCores(here, cores)
        return MixCache(PacedPredictor(shared, self.own_paces) if self.own_paces else shared)

    @property
    def own_paces(self) -> "Mapping[str, OwnPace]":
        """What the user's own runs on this GPU say of the pace of jobs, by name."""
        return self.model.own_paces.get(self.card.key, {})

    def standing(self, jobs: Sequence[Job]) -> "Standing":
        """What advice for `jobs` is based on."""
        from advisor.prediction.model import pace_of

        profiles = {job.name: job.profile for job in jobs}
        known = [(name, pace_of(each, self.own_paces)) for name, each in profiles.items()]
        paced = tuple((name, found) for name, found in known if found is not None)
        return replace(self.machine.standing(jobs), own_paces=paced, power_cap_w=self.power_cap_w)

    def under(self, cap_w: float) -> Self:
        """The same sources under another power cap; both share what was read and predicted.

        Raises:
            InvalidInput: A file is malformed.
        """
        found = replace(self, power_cap_w=cap_w)
        shared = ("model", "machine", "find_profile", "_uncapped")
        vars(found).update({name: getattr(self, name) for name in shared})
        return found

    def chosen_jobs(
        self, names: Sequence[str] | None = None, file: Path | None = None, gpus: int = 1
    ) -> tuple[Job, ...]:
        """The jobs with these names, or in a file; without either, the bundled ones.

        Args:
            names: ``"NAME[:COPIES][@EPOCHS]"``; NAME may be a profile file's path.
            file: A TOML file of jobs.
            gpus: Number of equal GPUs.

        Raises:
            InvalidInput: Both are given, or a name, count or file is wrong.
        """
        if names and file:
            raise InvalidInput("jobs are named on the command line or in a file (--jobs), not both")
        if names:
            return self.jobs(names, gpus)
        from advisor.workload.job import read_jobs

        if file:
            return read_jobs(file, self.find_profile, gpus)
        with as_file(files("advisor.plan").joinpath("example.toml")) as path:
            return read_jobs(path, self.find_profile)

    def running(self, names: Sequence[str], sharing: str) -> "Running":
        """The running jobs called `names`, which share the GPU by `sharing`.

        Raises:
            InvalidInput: A name is wrong, none is given, or these jobs cannot share like this.
        """
        from advisor.plan.admission import Running
        from advisor.sharing import parse_sharing

        return Running(jobs=self._named(names), sharing=parse_sharing(sharing))

    def running_now(
        self, names: Sequence[str], live: "LiveGpu"
    ) -> "tuple[Running | None, tuple[str, ...]]":
        """The running jobs called `names`, which share a GPU as its driver says.

        Args:
            names: A job for each process that runs there.
            live: The GPU as it is now.

        Returns:
            None where nothing runs; and of each file that holds no profile the reason.

        Raises:
            InvalidInput: The GPU is of another model, or the names do not match what runs there.
        """
        from advisor.plan.admission import held_alone_mib, running_now
        from advisor.workload.store import sound_profiles

        key, named = self.card.key, self._named(names)
        if live.catalogue_key != key:
            raise InvalidInput(
                f"GPU {live.index} here is {with_article(live.product)}, and the profiles are of "
                f"{key}. Say --gpu {live.catalogue_key or 'KEY'}, or another --device."
            )
        known, refused = sound_profiles(key, self.profiles)
        return running_now(live, named, held_alone_mib(known.values())), refused

    def _named(self, names: Sequence[str]) -> tuple[Job, ...]:
        return self.jobs(names) if names else ()

    def at_measured_batches(self, asked: str | Sequence[str]) -> tuple[Profile, ...]:
        """Profiles of one job at each batch size measured; errors as of `find_profile`.

        Args:
            asked: The job's name, with or without a batch size; or names or files of its profiles.
        """
        from advisor.prediction.find_profile import names_of_batches

        names = [asked] if isinstance(asked, str) else listed("jobs", asked, "names")
        if not names:
            raise InvalidInput("no job is given. Name one, with or without a batch size")
        for each in names:
            of_kind("a job at its batch sizes", each, str, "its name")
        if len(names) == 1 and not names[0].endswith(".json"):
            names = list(names_of_batches(names[0], self.card, self.profiles)) or names
        return tuple(self.find_profile(each) for each in names)

    def jobs(self, asked: JobsLike, gpus: int = 1) -> tuple[Job, ...]:
        """The jobs that `asked` stands for, on so many GPUs; errors as of `jobs_meant`."""
        return jobs_meant(asked, self.find_profile, self.card.key, gpus)

    def one_job(self, asked: JobLike) -> Job:
        """The one job that `asked` stands for; errors as of `jobs_meant`, or it says how many."""
        found = self.jobs([asked])
        if len(found) > 1:
            raise InvalidInput(f"{asked}: one job is asked about. Write it without :COPIES")
        return found[0]
