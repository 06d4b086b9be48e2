"""Plans for another GPU of the host than its first."""

from dataclasses import replace

from advisor.planning.commands import commands_on
from advisor.planning.handover import hand_over
from advisor.planning.plan import Plan, Recommendation
from advisor.planning.solver.judging import chosen_for


def on_device(advised: Recommendation, device: str) -> Recommendation:
    """`advised`, with the commands of each plan for the GPU `device`.

    Args:
        advised: For any GPU of its model.
        device: Index as ``nvidia-smi`` counts, or UUID.

    Raises:
        InvalidInput: It is neither.
    """
    plans = tuple(_moved(advised, plan, device) for plan in advised.plans)
    return replace(advised, plans=plans, serial=plans[advised.serial.rank - 1])


def _moved(advised: Recommendation, plan: Plan, device: str) -> Plan:
    chosen = chosen_for(advised.jobs, plan)
    lines = commands_on(hand_over(chosen, advised.gpu, plan.prediction), device)
    return replace(plan, commands=lines)
