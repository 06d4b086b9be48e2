"""A plan for several GPUs as what starts when and where on each."""

from advisor.launch.commands import side_by_side
from advisor.launch.launch_plan import LaunchPlan, launch_plan
from advisor.plan.fleet_plan import FleetPlan


def fleet_launch_plans(found: FleetPlan) -> tuple[LaunchPlan, ...]:
    """What each GPU runs, in the order of `FleetPlan.on`, its jobs numbered among all."""
    plans = {
        each.number: launch_plan(
            each.candidate.chosen(found.jobs), found.gpu, each.forecast.prediction
        )
        for each in found.on
    }
    return side_by_side(plans, {each.number: each.candidate.jobs for each in found.on})
