"""What comes of named jobs over time: finds profiles and models, then simulates."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

from advisor.api.advice import predictor_of
from advisor.errors import InvalidInput
from advisor.hardware.catalogue import Gpu
from advisor.hardware.catalogue import gpu as known_gpu
from advisor.plan.limits import MAX_OOM_PROBABILITY
from advisor.plan.machine import machine
from advisor.plan.recommendation import Standing
from advisor.prediction.mig_instances import placed
from advisor.prediction.model_file import load_model
from advisor.prediction.replayed_kernels import Ran, recorded
from advisor.sharing import Hybrid, Mig, Mps, Phases, Sharing, parse_sharing
from advisor.sharing.parts import at_once as jobs_at_once
from advisor.sharing.parts import check_count, only
from advisor.timeline.outcome import Simulation
from advisor.timeline.paces import Paces
from advisor.timeline.simulate import Fleet, simulated
from advisor.workload.arrivals import Arrival
from advisor.workload.staleness import Present
from advisor.workload.store import model_path


@dataclass(frozen=True, slots=True)
class OverTime:
    """A simulation, and what it stands on beside profiles and model."""

    simulation: Simulation
    standing: Standing


def simulate(  # noqa: PLR0913 - each says one thing, all but three by its name
    arrivals: Sequence[Arrival],
    sharing: str | Sharing,
    fleet: Fleet,
    *,
    at_once: int | None = None,
    models: Path | None = None,
    power_cap_w: float | None = None,
    calibration: Path | None = None,
    present: Present | None = None,
) -> OverTime:
    """What comes of `arrivals` if each GPU of `fleet` is shared in this way.

    What `sharing` says of the first job holds for the first place of each GPU, and so on.

    Args:
        arrivals: Of jobs that were measured on these GPUs; at least one.
        sharing: Of each GPU; phases name jobs that are there from the start, for one GPU.
        fleet: What they run on.
        at_once: Jobs on a GPU at once at most, where `sharing` names no limits or instances;
            None: as many as memory holds.
        models: Folder of models; None: the user's refit, else the shipped one.
        power_cap_w: What each GPU may draw at most; None: its own limit.
        calibration: File of one; ``Path("none")``: none; None: the user's own of that GPU.
        present: The machine at hand, to tell which profiles are stale.

    Raises:
        InvalidInput: A number or the sharing is wrong, or the length of a job is not known.
        NothingFits: A job fits on no GPU, or the GPU does not offer these instances.
    """
    gpu = known_gpu(fleet.gpu)
    _check(fleet, at_once)
    asked = parse_sharing(sharing) if isinstance(sharing, str) else sharing
    _check_sharing(asked, gpu, arrivals, fleet)
    here = machine(gpu.key, calibration, present)
    predictor = predictor_of(gpu.key, models, power_cap_w, here)
    most = min(at_once or len(arrivals), len(arrivals))
    if isinstance(asked, Mps):
        most = min(most, gpu.max_mps_clients)
    profiles = [each.job.profile for each in arrivals]
    paces = Paces(predictor.predict, profiles, asked, most, MAX_OOM_PROBABILITY)
    distinct = list({id(each.job): each.job for each in arrivals}.values())
    return OverTime(simulated(arrivals, paces, fleet), here.standing(distinct))


def check_queue(sharing: Sharing, at_once: int | None, policy: str | None) -> None:
    """See that what is asked of a queue is not said otherwise by `sharing`.

    Args:
        sharing: Of each GPU.
        at_once: Jobs on a GPU at once at most; None: not asked for.
        policy: Who starts next; None: not asked for.

    Raises:
        InvalidInput: It has places of its own for more jobs, or says who starts next.
    """
    places = _most_at_once(sharing)
    if at_once is not None and places > at_once:
        raise InvalidInput(
            f"--sharing {sharing} and --at-once {at_once} do not go together: the first says that "
            f"{places} jobs run at once."
        )
    if policy is not None and isinstance(sharing, Phases):
        raise InvalidInput(
            f"--sharing {sharing} and --policy {policy} do not go together: the first says who "
            f"starts next."
        )


def _most_at_once(sharing: Sharing) -> int:
    """How many jobs run at once where `sharing` says so; else 1."""
    match sharing:
        case Mps(limits):
            return len(limits) or 1
        case Mig(instances):
            return len(instances)
        case Hybrid():
            return len(sharing.jobs)
        case Phases():
            return max(map(len, jobs_at_once(sharing, len(sharing.jobs))))
        case _:
            return 1


def first_kernels(found: Simulation, models: Path | None = None) -> tuple[Ran, ...]:
    """What the jobs that start first run, kernel by kernel, as replay has it.

    Raises:
        InvalidInput: They share neither by time slices nor by MPS, or a profile has no trace.
    """
    gpu, lived = known_gpu(found.gpu), [found.jobs[number] for number in found.first.jobs]
    in_phases = isinstance(found.sharing, Phases)
    named = found.first.jobs if in_phases else [each.place for each in lived]
    physics = load_model(model_path(gpu.key, models)).physics
    return recorded([each.job.profile for each in lived], only(found.sharing, named), gpu, physics)


def _check(fleet: Fleet, at_once: int | None) -> None:
    if fleet.gpus < 1:
        raise InvalidInput(f"jobs need at least 1 GPU, got {fleet.gpus}")
    if at_once is not None and at_once < 1:
        raise InvalidInput(f"a GPU runs at least 1 job at once, got {at_once}")
    price = fleet.price_eur_per_gpu_hour
    if price is not None and not (isfinite(price) and price >= 0):
        raise InvalidInput(f"a price is at least 0 EUR for a GPU's hour, got {price:g}")


def _check_sharing(sharing: Sharing, gpu: Gpu, arrivals: Sequence[Arrival], fleet: Fleet) -> None:
    """Refuse instances that the GPU does not offer, and phases of jobs that come later."""
    if not isinstance(sharing, Phases):
        placed(sharing, gpu)
        return
    check_count(sharing, len(arrivals))
    for group in sharing.groups:
        if isinstance(group, Hybrid):
            placed(group, gpu)
    if fleet.gpus > 1 or any(each.arrival_s for each in arrivals):
        raise InvalidInput(
            f"{sharing}: phases are for jobs that wait from the start, on one GPU. Leave out "
            f"--trace-in and --gpus, or name one sharing."
        )
