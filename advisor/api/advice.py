"""Advice from names: finds profiles and models, then predicts and ranks."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from importlib.resources import as_file, files
from pathlib import Path

from advisor.english import with_article
from advisor.errors import InvalidInput
from advisor.hardware.catalogue import Gpu, gpu_meant
from advisor.hardware.catalogue import gpu as known_gpu
from advisor.launch.devices import with_commands
from advisor.plan.admission import Additions, Limits, Running, additions
from advisor.plan.copies_search import Copies, copies_that_pay
from advisor.plan.forecast import forecast
from advisor.plan.machine import Machine, machine
from advisor.plan.many_jobs import Spread, spread
from advisor.plan.prediction_cache import Mixes
from advisor.plan.ranking import ranked
from advisor.plan.recommendation import Forecast, Objective, Predicts, Recommendation
from advisor.plan.rules import UNCONDITIONAL, Conditions
from advisor.plan.search_terms import Terms
from advisor.plan.shorter_host_path import variants_of
from advisor.prediction.mix_prediction import Level
from advisor.sharing import Sharing, parse_sharing
from advisor.workload.job import Job, job_set, parse_jobs
from advisor.workload.job_file import read_jobs
from advisor.workload.profile import Profile
from advisor.workload.staleness import Present
from advisor.workload.store import model_path

DEFAULT_GPU = "h200-141gb"


def recommend(  # noqa: PLR0913 - each says one thing, all but one by its name
    jobs: Iterable[str | Profile | Job],
    gpu: str = DEFAULT_GPU,
    objective: Objective = "makespan",
    *,
    profiles: Path | None = None,
    models: Path | None = None,
    power_cap_w: float | None = None,
    calibration: Path | None = None,
    present: Present | None = None,
    conditions: Conditions = UNCONDITIONAL,
    level: Level = "p50",
) -> Recommendation:
    """The ways in which `jobs` can share one `gpu`, best first.

    Args:
        jobs: ``"NAME"``, ``"NAME:COPIES"`` or a profile file's path; or what these stand for.
        gpu: A GPU that `advisor gpus` lists, as `gpu_meant` takes it.
        objective: What the best plan is best at.
        profiles: Folder of profiles; None: the shipped ones and the user's own.
        models: Folder of models; None: the user's refit, else the shipped one.
        power_cap_w: What the GPU may draw at most; None: its own limit.
        calibration: File of one; ``Path("none")``: none; None: the user's own of that GPU, if
            there is one.
        present: The machine at hand, to tell which profiles are stale; None: the one that was
            calibrated.
        conditions: What machine and user allow beside what the jobs say of themselves.
        level: What counts of a cost: its median, or ``"p95"``, the upper end of its interval.

    Raises:
        InvalidInput: A name, count or file is wrong, the GPU cannot be set to that cap, or a cap is
            given and left to the plans too.
        NothingFits: A job is too big for the GPU.
    """
    if power_cap_w is not None and conditions.power_caps:
        raise InvalidInput("a power cap is given, or plans choose one: leave one of these out")
    card = gpu_meant(gpu)
    here = machine(card.key, calibration, present)
    predictor = predictor_of(card.key, models, power_cap_w, here)
    found = _jobs(jobs, card.key, profiles)
    advised = with_commands(ranked(found, card, predictor, objective, conditions, level))
    variants, refused = variants_of(found, card.key, profiles)
    return replace(
        advised, standing=here.standing(found), variants=variants, refused_variants=refused
    )


def predict(  # noqa: PLR0913 - likewise
    jobs: Iterable[str | Profile | Job],
    sharing: str | Sharing,
    gpu: str = DEFAULT_GPU,
    *,
    profiles: Path | None = None,
    models: Path | None = None,
    power_cap_w: float | None = None,
    calibration: Path | None = None,
    present: Present | None = None,
) -> Forecast:
    """What happens to `jobs` under one `sharing`; arguments and errors as for `recommend`.

    A mix that does not fit is answered all the same: its `oom_probability` is near 1.
    """
    key = gpu_meant(gpu).key
    here = machine(key, calibration, present)
    predictor = predictor_of(key, models, power_cap_w, here)
    asked = parse_sharing(sharing) if isinstance(sharing, str) else sharing
    found = _jobs(jobs, key, profiles)
    return replace(forecast(Mixes(found, predictor), asked), standing=here.standing(found))


def example_jobs(gpu: str = DEFAULT_GPU, profiles: Path | None = None) -> tuple[Job, ...]:
    """The bundled jobs: what `advisor recommend` ranks when no job is named."""
    with as_file(files("advisor.plan").joinpath("example.toml")) as path:
        return read_jobs(path, gpu, profiles)


def predictor_of(
    gpu: str,
    models: Path | None = None,
    power_cap_w: float | None = None,
    here: Machine | None = None,
) -> Predicts:
    """What answers for mixes on `gpu`; on the machine `here`, where one is named.

    Raises:
        UnknownName: The catalogue has no such GPU.
        InvalidInput: No model was fitted for it, or it cannot be set to that cap.
    """
    from advisor.plan.under_cap import UnderCap
    from advisor.prediction.cache import once_a_mix
    from advisor.prediction.model_file import load_model
    from advisor.prediction.physics import rehearse
    from advisor.prediction.predictor import Predictor

    model = load_model(model_path(gpu, models))
    plain = Predictor(known_gpu(gpu), model, play=once_a_mix(rehearse))
    predictor = plain if here is None else here.predictor(plain)
    return predictor if power_cap_w is None else UnderCap(predictor, known_gpu(gpu), power_cap_w)


def _jobs(jobs: Iterable[str | Profile | Job], gpu: str, profiles: Path | None) -> tuple[Job, ...]:
    found: list[Job] = []
    for each in jobs:
        match each:
            case Job():
                found.append(each)
            case Profile():
                found.append(Job(each))
            case str():
                found += parse_jobs([each], gpu, profiles)
    if strangers := {job.profile.gpu for job in found} - {gpu}:
        raise InvalidInput(
            f"profiles of {', '.join(sorted(strangers))} say nothing of {gpu}. Measure those jobs "
            f"on {with_article(gpu)}, or ask about the other GPU."
        )
    return job_set(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """What advice on a GPU stands on; fields as the arguments of `recommend`."""

    gpu: str
    models: Path | None = None
    power_cap_w: float | None = None
    calibration: Path | None = None
    present: Present | None = None

    @property
    def card(self) -> Gpu:
        return known_gpu(self.gpu)

    @property
    def machine(self) -> Machine:
        return machine(self.card.key, self.calibration, self.present)

    def predictor(self, here: Machine) -> Predicts:
        """What answers for mixes.

        Raises:
            InvalidInput: No model was fitted for the GPU, or it cannot be set to that cap.
        """
        return predictor_of(self.gpu, self.models, self.power_cap_w, here)


def recommend_spread(jobs: Sequence[Job], sources: Sources, terms: Terms) -> Spread:
    """As `spread`, from a model on file."""
    here = sources.machine
    found = spread(jobs, sources.card, sources.predictor(here), terms)
    return replace(found, standing=here.standing(jobs))


def recommend_copies(
    job: Job, sources: Sources, conditions: Conditions = UNCONDITIONAL, level: Level = "p50"
) -> Copies:
    """As `copies_that_pay`, from a model on file."""
    here = sources.machine
    found = copies_that_pay(job, sources.card, sources.predictor(here), conditions, level)
    return replace(found, standing=here.standing([job]))


def recommend_additions(
    running: Running, offered: Sequence[Job], sources: Sources, limits: Limits
) -> Additions:
    """As `additions`, from a model on file."""
    here = sources.machine
    found = additions(running, offered, sources.card, sources.predictor(here), limits)
    return replace(found, standing=here.standing([*running.jobs, *offered]))
