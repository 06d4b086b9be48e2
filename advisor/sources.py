"""The data that advice is based on: profiles, the fitted model, and the machine it is for."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cache, cached_property
from importlib.resources import as_file, files
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from advisor.errors import InvalidInput, with_article
from advisor.hardware import DEFAULT_GPU
from advisor.hardware.gpus import Gpu, gpu_meant
from advisor.prediction.mix_steps import PacedPredictor, Predicts
from advisor.sharing import Sharing, parse_sharing
from advisor.workload.calibration import Present
from advisor.workload.job import Arrival, Job, job_set, parse_jobs
from advisor.workload.profile import FindsProfiles, Profile
from advisor.workload.store import model_path

if TYPE_CHECKING:
    from advisor.hardware.machine import LiveGpu
    from advisor.plan.admission import Running
    from advisor.plan.forecast import HostCheckNow, Machine
    from advisor.plan.values import Standing
    from advisor.prediction.model import Model, OwnPace
    from advisor.prediction.predictor import Predictor


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
        host_cores: Number of host cores for all jobs together; None: that of this machine, if
            advice is for it, else as many as the jobs need.
        present: This machine, to find stale profiles; None: the machine that was calibrated.
        check_host: Measures the speed of this host if it was not calibrated; None: advice is not
            for it, and profiles stay as on the hosts on which they were measured.

    Raises:
        InvalidInput: No or several GPUs have that name, or a number or path is wrong.
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
        check_number("power_cap_w", self.power_cap_w)
        check_number("host_cores", self.host_cores, counts=True)
        for name in ("profiles", "models", "calibration"):
            path = getattr(self, name)
            if isinstance(path, str):
                object.__setattr__(self, name, Path(path))
            elif path is not None and not isinstance(path, Path):
                raise InvalidInput(f"{name} is a path, e.g. 'mine'; got {shown(path)}")

    @property
    def card(self) -> Gpu:
        return gpu_meant(self.gpu)

    @cached_property
    def model(self) -> "Model":
        """The model fitted to runs on this GPU and on others."""
        from advisor.prediction.model import load_model

        return load_model(model_path(self.models))

    @cached_property
    def machine(self) -> "Machine":
        """The machine that advice is for."""
        from advisor.plan.forecast import machine

        return machine(self.card.key, self.calibration, self.present, self.check_host)

    @cached_property
    def find_profile(self) -> FindsProfiles:
        """Finds profiles by name; those not measured on this GPU are estimated from other GPUs."""
        from advisor.prediction.find_profile import profile_finder

        finder = profile_finder(self.card, self.profiles, self.calibration)

        def find(name: str) -> Profile:
            of_kind("a profile", name, str, "its name")
            return finder(name)

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
        """Predictor for this machine under the power cap, which predicts each mix once."""
        return self.predictor_under(self.power_cap_w)

    def predictor_under(self, cap_w: float | None) -> Predicts:
        """Return `predictor` under another power cap; None: the GPU's own limit."""
        from advisor.plan.candidates import CappedPredictor
        from advisor.plan.forecast import MixCache

        if cap_w is None:
            return self._uncapped
        return MixCache(CappedPredictor(self._uncapped, self.card, cap_w))

    @cached_property
    def _uncapped(self) -> Predicts:
        """`predictor` under the GPU's own limit; predictions under caps are derived from it."""
        from advisor.plan.forecast import MixCache
        from advisor.prediction.predictor import SharedCores

        predictor = self.machine.predictor(self.uncalibrated)
        present_cores = None if self.present is None else self.present.host_cores
        if (cores := self.host_cores or present_cores) is not None:
            predictor = SharedCores(predictor, cores)
        return MixCache(PacedPredictor(predictor, self.own_paces) if self.own_paces else predictor)

    @property
    def own_paces(self) -> "Mapping[str, OwnPace]":
        """Paces of jobs, by name, that the user's own runs on this GPU showed."""
        return self.model.own_paces.get(self.card.key, {})

    def standing(self, jobs: Sequence[Job]) -> "Standing":
        """Return the evidence that advice for `jobs` is based on."""
        from advisor.prediction.model import pace_of

        profiles = {job.name: job.profile for job in jobs}
        paces = [(name, pace_of(each, self.own_paces)) for name, each in profiles.items()]
        paced = tuple((name, pace) for name, pace in paces if pace is not None)
        return replace(self.machine.standing(jobs), own_paces=paced, power_cap_w=self.power_cap_w)

    def under(self, cap_w: float) -> Self:
        """Return the same under another power cap; both share what was read and predicted."""
        capped = replace(self, power_cap_w=cap_w)
        shared = ("model", "machine", "find_profile", "_uncapped")
        vars(capped).update({name: getattr(self, name) for name in shared})
        return capped

    def chosen_jobs(
        self, names: Sequence[str] | None = None, file: Path | None = None, gpus: int = 1
    ) -> tuple[Job, ...]:
        """Return the jobs with these names, or in a file; without either, the bundled ones.

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
        """Return the running jobs called `names`, which share the GPU by `sharing`.

        Raises:
            InvalidInput: A name is wrong, none is given, or these jobs cannot share like this.
        """
        from advisor.plan.admission import Running

        return Running(jobs=self.jobs(names) if names else (), sharing=parse_sharing(sharing))

    def running_now(
        self, names: Sequence[str], live: "LiveGpu"
    ) -> "tuple[Running | None, tuple[str, ...]]":
        """Return the running jobs called `names`, one for each process that runs on a GPU.

        They share it as its driver reports.

        Returns:
            None if nothing runs; and the reason for each file that holds no profile.

        Raises:
            InvalidInput: The GPU is of another model, or the names do not match what runs there.
        """
        from advisor.plan.admission import held_alone_mib, running_now
        from advisor.workload.store import sound_profiles

        key, jobs = self.card.key, self.jobs(names) if names else ()
        if live.catalogue_key != key:
            raise InvalidInput(
                f"GPU {live.index} here is {with_article(live.product)}, and the profiles are of "
                f"{key}. Say --gpu {live.catalogue_key or 'KEY'}, or another --device."
            )
        profiles, refused = sound_profiles(key, self.profiles)
        return running_now(live, jobs, held_alone_mib(profiles.values())), refused

    def at_measured_batches(self, names: str | Sequence[str]) -> tuple[Profile, ...]:
        """Return profiles of one job at each batch size measured; errors as of `find_profile`.

        Args:
            names: The job's name, with or without a batch size; or names or files of its profiles.
        """
        from advisor.prediction.find_profile import names_of_batches

        names = [names] if isinstance(names, str) else listed("jobs", names, "names")
        if not names:
            raise InvalidInput("no job is given. Name one, with or without a batch size")
        for name in names:
            of_kind("a job at its batch sizes", name, str, "its name")
        if len(names) == 1 and not names[0].endswith(".json"):
            names = list(names_of_batches(names[0], self.card, self.profiles)) or names
        return tuple(self.find_profile(name) for name in names)

    def jobs(self, jobs: "JobsLike", gpus: int = 1) -> tuple[Job, ...]:
        """Return the jobs that `jobs` stand for, on `gpus` equal GPUs; a profile is one epoch.

        Raises:
            InvalidInput: A job, name, count or file is wrong, or a profile is of another GPU.
        """
        load, key = cache(self.find_profile), self.card.key
        members: list[Job] = []
        for each in listed("jobs", jobs, "names"):
            match each:
                case Job():
                    members.append(each)
                case Profile():
                    members.append(Job(each))
                case str():
                    members += parse_jobs([each], load, gpus)
                case _:
                    raise InvalidInput(f"a job is a name, a Profile or a Job; got {shown(each)}")
        if strangers := {job.profile.gpu for job in members} - {key}:
            raise InvalidInput(
                f"profiles of {', '.join(sorted(strangers))} cannot be used on {key}. Name the "
                f"jobs, and they are estimated; measure them on {with_article(key)}; or ask about "
                f"the other GPU."
            )
        return job_set(members, gpus)

    def one_job(self, job: "JobLike") -> Job:
        """Return the one job that `job` stands for; errors as of `jobs`, or for several copies."""
        jobs = self.jobs([job])
        if len(jobs) > 1:
            raise InvalidInput(f"{job}: expected one job. Write it without :COPIES")
        return jobs[0]


JobLike = str | Profile | Job
"""A job: ``"NAME[:COPIES][@EPOCHS]"``, or a profile file's path; or what these stand for."""

JobsLike = Iterable[JobLike]


def read_sharing(value: str | Sharing) -> Sharing:
    """Return the sharing that `value` is, or is the notation of."""
    if isinstance(value, str):
        return parse_sharing(value)
    of_kind("a way to share", value, Sharing, "'mps=50,50'")
    return value


def listed(what: str, values: Any, of: str) -> list[Any]:
    """Return `values` as a list; messages call it `what`, and its members `of`.

    Raises:
        InvalidInput: It is not a list, or is a word, which would be read letter by letter.
    """
    if isinstance(values, str | Profile | Job | Arrival) or not isinstance(values, Iterable):
        raise InvalidInput(f"{what} are a list of {of}, as [{shown(values)}]")
    return list(values)


def of_kind(what: str, value: object, kind: Any, example: str) -> None:
    """Check that `value` is of that `kind`; messages call it `what`, and show the `example`."""
    if not isinstance(value, kind):
        raise InvalidInput(f"{what} is written as {example}; got {shown(value)}")


def check_number(what: str, value: object, *, counts: bool = False) -> None:
    """Check that `value` is a number or None; if it `counts`, a whole number of at least 1."""
    if value is None or (isinstance(value, int) and value >= 1):
        return
    if counts or not isinstance(value, Real):
        kind = "whole number of at least 1" if counts else "number"
        raise InvalidInput(f"{what} is a {kind}; got {shown(value)}")


def shown(value: object) -> str:
    """Return `value` for a message: a job by its name, and nothing at length."""
    if isinstance(value, Profile | Job):
        return value.name
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."
