"""What tenants of a calibration answer; one that ends spoils it."""

from collections.abc import Mapping, Sequence
from typing import Any

from advisor.errors import AdvisorError
from advisor.measure.process.tenants import Answer, Ended, TenantProcess, ask_all


def all_told(
    tenants: Sequence[TenantProcess], verb: str, arguments: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Tell all `tenants` the same at once; their answers, in their order.

    Raises:
        AdvisorError: One ran out of memory or died.
    """
    answers = ask_all(tenants, verb, [arguments] * len(tenants))
    return [lively(each) for each in answers]


def lively(answer: Answer) -> dict[str, Any]:
    """`answer` of a tenant that lives.

    Raises:
        AdvisorError: It ran out of memory or died.
    """
    if isinstance(answer, Ended):
        raise AdvisorError(f"{answer.outcome}: {answer.detail}. Calibrate again.")
    return answer
