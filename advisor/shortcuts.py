"""Questions that are asked once: an `Advisor` that is kept answers further ones sooner."""

from typing import TYPE_CHECKING, Any

from advisor.api import Advisor
from advisor.arguments import JobsLike
from advisor.hardware import DEFAULT_GPU
from advisor.plan import ObjectiveName
from advisor.plan.rules import UNCONDITIONAL, Conditions
from advisor.plan.values import Forecast, Recommendation
from advisor.sharing import Sharing

if TYPE_CHECKING:
    from advisor.prediction.prediction import Level


def recommend(
    jobs: JobsLike,
    gpu: str = DEFAULT_GPU,
    objective: ObjectiveName = "makespan",
    *,
    conditions: Conditions = UNCONDITIONAL,
    level: "Level" = "p50",
    **sources: Any,
) -> Recommendation:
    """As ``Advisor(gpu, **sources).recommend(jobs, objective, ...)``."""
    return Advisor(gpu, **sources).recommend(jobs, objective, conditions=conditions, level=level)


def predict(
    jobs: JobsLike, sharing: str | Sharing, gpu: str = DEFAULT_GPU, **sources: Any
) -> Forecast:
    """As ``Advisor(gpu, **sources).predict(jobs, sharing)``."""
    return Advisor(gpu, **sources).predict(jobs, sharing)
