"""The workloads of a campaign, listed in its plan or in a file that several plans include."""

from pathlib import Path
from typing import Any

from advisor.errors import InvalidInput
from advisor.measure.campaign.toml_table import Table
from advisor.measure.shared.run_list_file import workload_of
from advisor.workload.files import read_toml
from advisor.workload.spec import Workload


def listed_workloads(top: Table, folder: Path) -> tuple[tuple[Workload, ...], tuple[Workload, ...]]:
    """The workloads in the arrays `small` and `large`, or in the file that `include` names.

    Args:
        top: The plan.
        folder: Where it lies.

    Raises:
        InvalidInput: One is no workload, or is listed twice.
    """
    if not top.has("include"):
        return _both_sizes(top)
    if top.has("small") or top.has("large"):
        raise InvalidInput("workloads are either included or listed, not both")
    path = folder / top.text("include")
    listed = Table("", read_toml(path))
    try:
        found = _both_sizes(listed)
        listed.close()
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from None
    return found


def _both_sizes(table: Table) -> tuple[tuple[Workload, ...], tuple[Workload, ...]]:
    small, large = (
        tuple(_workload(each, f"{size}[{number}]") for number, each in enumerate(table.array(size)))
        for size in ("small", "large")
    )
    names = [each.name for each in small + large]
    if twins := sorted({name for name in names if names.count(name) > 1}):
        raise InvalidInput(f"workload {twins[0]!r} is listed twice")
    return small, large


def _workload(entry: Any, where: str) -> Workload:
    try:
        return workload_of(entry)
    except InvalidInput as error:
        raise InvalidInput(f"{where}: {error}") from None
