"""Simulates jobs that arrive over time at GPUs that are all shared in the same way."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from advisor.errors import InvalidInput
from advisor.hardware.gpus import gpu_meant
from advisor.plan.rules import MAX_OOM_PROBABILITY
from advisor.plan.values import Standing
from advisor.prediction.surrogate_predictor import Predicts
from advisor.sharing import Sharing
from advisor.sharing.groups import together
from advisor.simulation.queues import Paces
from advisor.simulation.simulate import Fleet, Simulation, check_sharing, simulated
from advisor.workload.job import Arrival


@dataclass(frozen=True, slots=True)
class OverTime:
    """A simulation, and what it is based on besides profiles and model."""

    simulation: Simulation
    standing: Standing = field(default_factory=Standing)


def over_time(
    arrivals: Sequence[Arrival],
    sharing: Sharing,
    predictor: Predicts,
    fleet: Fleet,
    at_once: int | None,
) -> OverTime:
    """Simulate `arrivals`; arguments and errors as of `advisor.api.Advisor.simulate`."""
    if not all(isinstance(each, Arrival) for each in arrivals):
        raise InvalidInput("arrivals are a list of Arrival(Job(...), arrival_s)")
    if not arrivals:
        raise InvalidInput("no job arrives: simulate at least one")
    gpu = gpu_meant(fleet.gpu)
    if at_once is not None and at_once < 1:
        raise InvalidInput(f"a GPU runs at least 1 job at once, got {at_once}")
    check_sharing(sharing, gpu, arrivals, fleet)
    most = min(at_once or len(arrivals), len(arrivals))
    shared = together(sharing)
    if shared is not None and shared.under_mps:
        most = min(most, gpu.max_mps_clients)
    profiles = [each.job.profile for each in arrivals]
    paces = Paces(predictor.predict, profiles, sharing, most, MAX_OOM_PROBABILITY)
    return OverTime(simulated(arrivals, paces, fleet))
