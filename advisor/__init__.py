"""Predict how training jobs will share a GPU.

Names exported here are imported when they are first used, so that measuring, which imports this
package too, needs none of the modules of advice.
"""

import sys
from importlib import import_module

__version__ = "0.1.0"

# `typing` has the same, but takes longer to import than all this: until `advisor.__main__` runs,
# an interrupt ends in a traceback.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from advisor.api import Advisor, predict, recommend
    from advisor.errors import AdvisorError
    from advisor.plan.rules import Conditions
    from advisor.plan.trials import TrialTerms
    from advisor.plan.values import Forecast, Plan, Recommendation
    from advisor.prediction.prediction import Interval, JobPrediction, MixPrediction
    from advisor.simulation.simulate import Fleet
    from advisor.workload.job import Arrival, Job, read_jobs
    from advisor.workload.minimal_profile import MinimalProfile
    from advisor.workload.profile import Profile
    from advisor.workload.store import NO_CALIBRATION, load_profile

__all__ = [
    "NO_CALIBRATION",
    "Advisor",
    "AdvisorError",
    "Arrival",
    "Conditions",
    "Fleet",
    "Forecast",
    "Interval",
    "Job",
    "JobPrediction",
    "MinimalProfile",
    "MixPrediction",
    "Plan",
    "Profile",
    "Recommendation",
    "TrialTerms",
    "load_profile",
    "predict",
    "read_jobs",
    "recommend",
    "step",
]

_HOMES = {
    "advisor.api": ("Advisor", "predict", "recommend"),
    "advisor.errors": ("AdvisorError",),
    "advisor.plan.rules": ("Conditions",),
    "advisor.plan.trials": ("TrialTerms",),
    "advisor.plan.values": ("Forecast", "Plan", "Recommendation"),
    "advisor.prediction.prediction": ("Interval", "JobPrediction", "MixPrediction"),
    "advisor.simulation.simulate": ("Fleet",),
    "advisor.workload.job": ("Arrival", "Job", "read_jobs"),
    "advisor.workload.minimal_profile": ("MinimalProfile",),
    "advisor.workload.profile": ("Profile",),
    "advisor.workload.store": ("NO_CALIBRATION", "load_profile"),
}


def step() -> None:
    """Count a training step that ended without a torch optimizer; outside `advisor` do nothing."""
    hook = sys.modules.get("advisor_inside.hook")
    if hook is not None:
        hook.step_ended()


def __getattr__(name: str) -> object:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
