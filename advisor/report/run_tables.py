"""A table of a run in progress."""

from typing import TYPE_CHECKING

from advisor.measure.execution.run_view import JobView, RunView, fate_word, left_word, progress_word

if TYPE_CHECKING:
    from rich.table import Table

_HEADINGS = ("", "job", "", "steps", "a step", "predicted, 90 %", "memory", "left")


def run_table(view: RunView) -> "Table":
    """Progress, measured and predicted pace, and time left of each job."""
    from rich.box import SIMPLE

    from advisor.terminal.terminal_tables import FittedTable

    power = "" if view.power_w is None else f", {view.power_w:,.0f} W"
    stage = "" if view.stages == 1 else f", stage {view.stage} of {view.stages}"
    table = FittedTable(
        box=SIMPLE, padding=(0, 1), pad_edge=False, show_edge=False,
        title=f"{view.id}: {view.sharing}{stage}, {view.seconds:,.0f} s{power}",
    )  # fmt: skip
    for heading in _HEADINGS:
        table.add_column(heading, justify="left" if heading in ("", "job") else "right")
    for job in view.jobs:
        table.add_row(*_cells(job))
    return table


def _cells(job: JobView) -> tuple[str, ...]:
    predicted = ""
    if job.predicted is not None:
        low, middle, high = (1e3 * each for each in
                             (job.predicted.p05, job.predicted.p50, job.predicted.p95))  # fmt: skip
        beyond = ", outside" if job.outside else ""
        predicted = f"{middle:,.1f} ms, {low:,.1f} to {high:,.1f}{beyond}"
    return (
        str(job.number),
        job.name,
        fate_word(job),
        progress_word(job),
        "" if job.step_s is None else f"{1e3 * job.step_s:,.1f} ms",
        predicted,
        "" if job.memory_mib is None else f"{job.memory_mib:,.0f} MiB",
        left_word(job),
    )
