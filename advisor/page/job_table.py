"""The table of jobs on the page, in which everything that is asked of a job can be typed."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import pandas as pd
import streamlit as st

from advisor.report.page_jobs import WantedJob, wanted_job

_KINDS = {
    "name": "string", "copies": "Float64", "epochs": "Float64", "batch": "Float64",
    "user": "string", "deadline_min": "Float64", "isolated": "boolean",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Table:
    """What is offered in the table, what stood there at first, and what stands there now.

    Attributes:
        number: Of the tables before: what is typed belongs to one of them.
        offered: Names that jobs may have.
        handed: Rows that are from files.
    """

    number: int
    offered: tuple[str, ...]
    handed: tuple[WantedJob, ...]
    first: tuple[dict[str, Any], ...]
    now: tuple[dict[str, Any], ...]


def job_table(
    offered: tuple[str, ...],
    handed: tuple[WantedJob, ...],
    linked: tuple[WantedJob, ...],
    usual: Callable[[], Sequence[WantedJob]],
) -> tuple[WantedJob, ...]:
    """The jobs as typed; what was typed stays where other jobs are offered, unless files say more.

    Args:
        offered: Names that jobs may have.
        handed: Rows that are from files.
        linked: Rows that a link asks for; of jobs that are handed in later, once they are.
        usual: Tells what stands there where nothing was typed.

    Raises:
        InvalidInput: A number that counts something is not whole.
    """
    table = st.session_state.get("job table")
    if table is None or (table.offered, table.handed) != (offered, handed):
        table = _next_table(table, offered, handed, linked, usual)
    st.caption("Jobs: every cell can be typed into, and the empty row adds one.")
    edited = st.data_editor(
        pd.DataFrame(list(table.first), columns=list(_KINDS)).astype(_KINDS),
        key=f"jobs {table.number}", num_rows="dynamic", hide_index=True, width="stretch",
        column_config=_columns(offered), placeholder="",
    )  # fmt: skip
    with st.container(key="narrow-jobs"):
        st.caption("Further right: batch size, user, deadline, and whether it is alone.")
    rows = edited.astype(object).where(edited.notna(), None).to_dict("records")
    rows = tuple(row for row in rows if row["name"] is not None)
    st.session_state["job table"] = replace(table, now=rows)
    strangers = [row.name for row in linked if row.name not in offered]
    if strangers and rows == table.first:
        unknown = ", ".join(f"`{name}`" for name in dict.fromkeys(strangers))
        st.info(f"The link also asks about {unknown}, of which there is no profile here.")
    return tuple(map(wanted_job, rows))


def _next_table(
    last: _Table | None,
    offered: tuple[str, ...],
    handed: tuple[WantedJob, ...],
    linked: tuple[WantedJob, ...],
    usual: Callable[[], Sequence[WantedJob]],
) -> _Table:
    rows: tuple[dict[str, Any], ...] = ()
    before = () if last is None else last.offered
    untouched = last is None or last.now == last.first
    if untouched and any(row.name in offered and row.name not in before for row in linked):
        rows = tuple(asdict(row) for row in linked if row.name in offered)
    elif handed and (last is None or handed != last.handed):
        rows = tuple(map(asdict, handed))
    elif last is not None:
        rows = tuple(row for row in last.now if row["name"] in offered)
    rows = rows or tuple(map(asdict, usual()))
    return _Table(0 if last is None else last.number + 1, offered, handed, rows, rows)


def _columns(offered: Sequence[str]) -> dict[str, Any]:
    usual = WantedJob("")
    number, text = st.column_config.NumberColumn, st.column_config.TextColumn
    return {
        "name": st.column_config.SelectboxColumn("job", options=offered, required=True),
        "copies": number(step=1, default=usual.copies),
        "epochs": number(default=usual.epochs),
        "batch": number(step=1, help="Examples a step; empty: as the job's name says."),
        "user": text(help="Its owner: MPS serves one user at a time."),
        "deadline_min": number("due, min", help="Minutes until it should be done."),
        "isolated": st.column_config.CheckboxColumn(
            "alone", default=False, help="No other job may share its memory."
        ),
    }
