"""The question on the page: the line of GPU, goal and conditions, and the table of jobs.

The page's address always holds GPU, goal and jobs; streamlit adds other fields that differ from
their defaults. Their keys are the parameters of a link.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from advisor.api import Advisor
from advisor.errors import AdvisorError, InvalidInput
from advisor.files.units import MOST_W
from advisor.hardware import DEFAULT_GPU
from advisor.hardware.gpus import known_gpus
from advisor.hardware.live_gpu import first_gpu
from advisor.page.own_jobs import show_form, typed_files
from advisor.plan import ObjectiveName
from advisor.plan.objectives import OBJECTIVES
from advisor.plan.rules import UNCONDITIONAL, Conditions
from advisor.plan.schedule import why_no_caps
from advisor.plan.values import Recommendation
from advisor.prediction.find_profile import names_of_jobs
from advisor.prediction.handed_in import HandedIn, read_handed_in
from advisor.prediction.prediction import Level
from advisor.report import charts, page_words
from advisor.report.link import MOST_FREE, misread
from advisor.run.here import advisor_here
from advisor.workload import job_rows
from advisor.workload.job import Job
from advisor.workload.job_rows import JobRow
from advisor.workload.store import profiled_gpus

plain = page_words.plain
QUESTIONS = ("Trials of a search", "Add a job", "Several GPUs", "Largest batch", "This machine")
"""The questions of the second page, which a link names."""

# The address, with fields that it loses between pages. Other machines' pages may write to the
# clipboard under https only.
_COPY = """<script>
const link = new URL(location.href)
for (const [key, text] of Object.entries(%s)) link.searchParams.set(key, text);
(navigator.clipboard?.writeText(link.href) ?? Promise.reject())
  .catch(() => prompt("Copy this link:", link.href))
</script>"""


@dataclass(frozen=True, slots=True)
class Question:
    """The question on the page; a job that takes several GPUs has one in an answer for one GPU."""

    gpu: str
    objective: ObjectiveName
    jobs: tuple[Job, ...]
    cap_w: float | None = None
    conditions: Conditions = UNCONDITIONAL
    level: Level = "p50"

    @property
    def advisor(self) -> Advisor:
        return advisor_of(self.gpu, self.cap_w)

    @property
    def names(self) -> list[str]:
        """The names of the jobs, in the order that fixes their colours."""
        return [job.name for job in self.jobs]

    def answer(self, gpus: int = 1) -> Recommendation:
        """Rank the plans for so many GPUs; the advisor remembers its last answers."""
        jobs = [replace(job, gpus=min(job.gpus, gpus)) for job in self.jobs]
        return self.advisor.recommend(
            jobs, self.objective, gpus=gpus, conditions=self.conditions, level=self.level
        )


@st.cache_resource(ttl=300, max_entries=8, show_spinner=False)
def advisor_of(gpu: str, cap_w: float | None) -> Advisor:
    """Return the advisor of a GPU; those under all caps share remembered predictions."""
    return advisor_here(gpu) if cap_w is None else advisor_of(gpu, None).under(cap_w)


def read_question(top: DeltaGenerator, left: DeltaGenerator) -> Question | None:
    """Show the fields in `top` and the jobs on the `left`; None if one is wrong or missing.

    A sentence says what is wrong in the link or in a field.
    """
    measured = known_gpus().keys() & profiled_gpus()
    if not measured:
        top.info("There is no profile yet. On a machine with a GPU, run advisor profile WORKLOAD.")
        return None
    state = st.session_state
    fields_at = top.container(horizontal=True, vertical_alignment="bottom")
    wrong = top.container()
    first = first_gpu() or DEFAULT_GPU
    goals = {each.choice: each.name for each in OBJECTIVES.values()}
    gpus = sorted(known_gpus(), key=lambda key: (key != first, key not in measured))
    jobs_before = state.get("jobs before") or _examples(first)
    link = _begin({"gpu": gpus[0], "goal": next(iter(goals)), "jobs": jobs_before})
    with fields_at:
        gpu, goal = _choice("GPU", "gpu", gpus), _choice("Goal", "goal", [*goals])
        objective = None if goal is None else goals[goal]
        terms = None if gpu is None else _conditions(gpu, objective or "makespan")
    jobs: tuple[Job, ...] = ()
    with left:
        try:
            jobs = _jobs(gpu or DEFAULT_GPU, objective)
        except AdvisorError as error:
            st.error(plain(str(error)))
    with fields_at:
        if st.button("Copy link", icon=":material/link:"):
            own = {key: state[key] for key in ("gpu", "goal", "jobs") if state[key]}
            script = _COPY % json.dumps(own).replace("<", r"\u003c")  # ends no script
            st.html(script, unsafe_allow_javascript=True)
            st.toast("Copied, without your files" if state.get("handed in") else "Copied")
    lists = {"gpu": gpus, "goal": goals, "ask": QUESTIONS, "running": charts.row_names(jobs)}
    sentences = misread(link, lists | {"job": [job.name for job in jobs]})
    for key in link.keys() - sentences.keys():
        del link[key]
    for sentence in sentences.values():
        wrong.error(plain(sentence))
    if gpu is None or objective is None or terms is None or not jobs:
        return None
    return Question(gpu, objective, jobs, *terms)


def _begin(defaults: Mapping[str, str]) -> dict[str, list[str]]:
    """Fill fields that are empty, so that the address has them; what is new in it, unchecked."""
    # Streamlit takes out of it what does not fit, and defaults of fields: these have none.
    state, begins = st.session_state, "link" not in st.session_state
    link: dict[str, list[str]] = state.setdefault("link", {})
    met: set[str] = state.setdefault("met in links", set())
    new = {key for key, value in st.query_params.items() if value or key not in defaults}
    link |= {key: st.query_params.get_all(key) for key in new - met}
    met |= link.keys()
    empty = {
        key: default
        for key, default in defaults.items()
        if key not in link and not st.query_params.get(key) and not state.get(key)
    }
    state.update(empty)
    if begins and empty:
        st.query_params.update(empty)
    # Buttons change the text, and the browser's back the address, which loses it between pages.
    linked = st.query_params.get("jobs") or state.get("jobs") or defaults["jobs"]
    text = state.pop("new jobs", None) or linked
    if text != state.get("jobs"):
        state["jobs"] = text
    state["jobs before"] = text
    return link


def bound(key: str) -> dict[str, Any]:
    """Return the arguments of a field that is the parameter `key` of a link."""
    forget = st.session_state["link"].pop
    return {"key": key, "bind": "query-params", "on_change": forget, "args": (key, None)}


def _choice(label: str, key: str, choices: Sequence[str]) -> str | None:
    """The choice of a list; None if that of the link is not in it."""
    chosen = st.selectbox(
        label, choices, None, required=True, width=_WIDTH, placeholder="Choose one", **bound(key)
    )
    if chosen is None and key not in st.session_state["link"]:
        st.rerun()  # the browser went back to an address without it
    return chosen


def _conditions(gpu: str, objective: ObjectiveName) -> tuple[float | None, Conditions, Level]:
    """Power cap, conditions and level of the ranking."""
    with st.popover("Conditions"):
        root = st.checkbox("MIG and power caps may be set, as root", True, **bound("root"))
        shared = st.checkbox("Jobs may share a MIG instance", **bound("shared"))
        free = st.number_input(
            "Memory to keep free, %", 0.0, MOST_FREE, 0.0, format="%g", **bound("free")
        )
        usual = "the GPU's own limit"
        cap_w = st.number_input(
            "Power cap, W", 1.0, MOST_W, None, 10.0, "%g", placeholder=usual, **bound("cap")
        )
        useless = why_no_caps(known_gpus()[gpu], objective, Conditions(root=root))
        caps = st.checkbox(
            "A plan may choose a power cap",
            help=useless,
            **bound("caps"),
            disabled=useless is not None or cap_w is not None,
        )
        upper = st.checkbox("Rank by the upper ends of the intervals", **bound("upper"))
    choose = caps and useless is None and cap_w is None
    conditions = Conditions(
        root=root, memory_margin=free / 100, power_caps=choose, mig="any" if shared else "plain"
    )
    return cap_w, conditions, "p95" if upper else "p50"


@st.cache_resource(max_entries=20, show_spinner=False)
def _read(gpu: str, files: tuple[tuple[str, bytes], ...]) -> HandedIn:
    """Read the files; the same files give the same jobs, whose predictions stay remembered."""
    card = known_gpus()[gpu]
    return read_handed_in(files, card, advisor_of(gpu, None).find_profile, names_of_jobs(card))


def _examples(gpu: str) -> str:
    """The bundled jobs as text; without them, the first job that has a profile."""
    with suppress(AdvisorError):
        return job_rows.rows_text(map(job_rows.row_of, advisor_of(gpu, None).chosen_jobs()))
    return job_rows.rows_text(map(JobRow, names_of_jobs(known_gpus()[gpu])[:1]))


COLUMNS = tuple(each.name for each in fields(JobRow))
_KINDS = dict.fromkeys(COLUMNS, "Float64") | {"job": "string", "user": "string", "alone": "boolean"}
_FEW = COLUMNS[:3]
_NOT_RUN = "This page runs nothing of a job file: “Get the commands” shows its commands."
_NO_JOB = ","  # in a link; without the parameter, the examples are the jobs
_WIDTH = 176  # pixels: GPU and goal stand side by side on a telephone


def _jobs(gpu: str, objective: ObjectiveName | None) -> tuple[Job, ...]:
    """The jobs of the table, which shows and changes those of the link."""
    st.markdown("**Jobs**")
    state, at, notes = st.session_state, st.container(), st.container()
    below = st.container(horizontal=True, vertical_alignment="center")
    deadlines = objective is not None and OBJECTIVES[objective].uses_deadlines
    more = below.toggle("More columns", deadlines or ";" in state["jobs"])
    with below:
        show_form(gpu)
    files = st.file_uploader(
        "Add your profiles (.json) or job files (.toml)",
        ["json", "toml"],
        key="files",
        accept_multiple_files=True,
    )
    handed = _read(gpu, (*((file.name, file.getvalue()) for file in files), *typed_files()))
    for error in handed.errors:
        notes.error(plain(error))
    for note in handed.notes:
        notes.info(plain(note))
    if any(file.name.endswith(".toml") for file in files):
        notes.caption(_NOT_RUN)
    new = [row for row in handed.rows if row.job not in state.get("handed in", ())]
    state["handed in"] = tuple(handed.jobs)
    find, offered = advisor_of(gpu, None).find_profile, names_of_jobs(known_gpus()[gpu])
    with at:
        rows = _table((*handed.jobs, *offered), new, COLUMNS if more else _FEW)
    examples = job_rows.parse_rows(_examples(gpu))
    own = [row for row in rows if row not in examples]
    with below:
        if handed.jobs and 0 < len(own) < len(rows):
            only = {"new jobs": job_rows.rows_text(own)}
            st.button("Replace the examples", on_click=state.update, args=(only,))
        with st.popover("Jobs as text"):
            if not st.text_input("NAME:COPIES@EPOCHS, ...", **bound("jobs")):
                st.rerun()  # the browser went back to an address without it
    if not rows:
        notes.info("Choose at least one job.")
        return ()
    jobs = job_rows.jobs_of_rows(rows, lambda name: handed.jobs.get(name) or Job(find(name)))
    if wide := ", ".join(dict.fromkeys(job.name for job in jobs if job.gpus > 1)):
        notes.info(f"{plain(wide)}: here on one GPU each. “More questions” plans several GPUs.")
    if deadlines and not any(job.deadline_s for job in jobs):
        notes.info("No job has a deadline. Type one, in minutes, into “due, min”.")
    return jobs


def _table(offered: Sequence[str], handed: Sequence[JobRow], shown: Sequence[str]) -> list[JobRow]:
    """The rows as typed. New jobs in the text and new offered names make a new table."""
    state = st.session_state
    try:
        before = job_rows.parse_rows(state["jobs"])
    except InvalidInput as error:
        st.error(f"jobs: {plain(str(error))}")
        before = ()
    names = {row.job for row in before}
    rows = (*before, *(row for row in handed if row.job not in names))
    if state.get("table for") != (rows, offered):
        state["table number"] = state.get("table number", 0) + 1
        state["table rows"] = [asdict(row) for row in rows if row.job in offered]
    strange = [row for row in rows if row.job not in offered]
    if strange:
        listed = plain(", ".join(row.job for row in strange))
        st.warning(f"jobs: {listed} has no profile here. Links hold no files: add it below.")
    edited = st.data_editor(
        pd.DataFrame(state["table rows"], columns=COLUMNS).astype(_KINDS),
        key=f"table {state['table number']}",
        num_rows="dynamic",
        hide_index=True,
        column_config=_columns(offered),
        column_order=shown,
        placeholder="",
    )
    cells = edited.astype(object).where(edited.notna(), None).to_dict("records")
    typed = [job_rows.row_of_cells(row) for row in cells if row["job"]]
    now = (*typed, *strange)
    if now != before:
        state["jobs"] = job_rows.rows_text(now) or _NO_JOB
    state["table for"] = now, offered
    return typed


def _columns(offered: Sequence[str]) -> dict[str, Any]:
    number, text = st.column_config.NumberColumn, st.column_config.TextColumn
    return {
        "job": st.column_config.SelectboxColumn("job", options=offered, required=True),
        "copies": number(step=1, default=1, width=75),
        "epochs": number(default=1, width=80),
        "batch": number(step=1, help="Examples a step; empty: the batch size of the profile."),
        "due": number("due, min", help="Minutes until it should be done."),
        "user": text(help="Its owner: MPS serves one user at a time."),
        "alone": st.column_config.CheckboxColumn(help="No other job may share its memory."),
    }
