"""The question on the page: the line of GPU, goal and conditions, and the table of jobs.

Streamlit keeps the fields in the page's address: their keys are the parameters of a link.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from string import punctuation
from typing import Any
from urllib.parse import quote, unquote, urlencode

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from advisor.api import Advisor
from advisor.errors import AdvisorError, InvalidInput
from advisor.hardware import DEFAULT_GPU
from advisor.hardware.gpus import known_gpus
from advisor.measure.device import first_gpu, present_machine
from advisor.plan import ObjectiveName
from advisor.plan.forecast import why_no_caps
from advisor.plan.objectives import OBJECTIVES
from advisor.plan.rules import UNCONDITIONAL, Conditions
from advisor.plan.values import Recommendation
from advisor.prediction.find_profile import names_of_jobs, profile_of_file
from advisor.prediction.prediction import Level
from advisor.report.lists import gpu_choices
from advisor.workload.job import Job, checked_copies, handed_jobs, job_set, name_at_batch
from advisor.workload.profile import Profile
from advisor.workload.store import profiled_gpus

_LITERAL = str.maketrans({mark: f"\\{mark}" for mark in punctuation})
# The page makes links of URLs, "www." and addresses, unless an invisible word joiner is in them.
_STARTS_OF_LINKS = {
    ":\\/": ":\u2060\\/",
    "w\\.": "w\u2060\\.",
    "W\\.": "W\u2060\\.",
    "\\@": "\u2060\\@",
}


def plain(text: str) -> str:
    """Return `text` so that Markdown shows it as it is: names come from files and links."""
    literal = text.translate(_LITERAL)
    for start, broken in _STARTS_OF_LINKS.items():
        literal = literal.replace(start, broken)
    return literal


@dataclass(frozen=True, slots=True)
class Question:
    """The question on the page.

    Attributes:
        jobs: The jobs of the table; some may take several GPUs, of which an answer for one GPU
            takes one.
    """

    gpu: str
    objective: ObjectiveName
    jobs: tuple[Job, ...]
    cap_w: float | None = None
    conditions: Conditions = UNCONDITIONAL
    level: Level = "p50"

    @property
    def advisor(self) -> Advisor:
        return advisor_of(self.gpu, self.cap_w)

    def answer(self, *, rough: bool = False) -> Recommendation:
        """Rank the plans for one GPU; the advisor remembers its last answers."""
        jobs = [replace(job, gpus=1) for job in self.jobs]
        rank = self.advisor.recommend_roughly if rough else self.advisor.recommend
        return rank(jobs, self.objective, conditions=self.conditions, level=self.level)


@st.cache_resource(ttl=300, max_entries=8, show_spinner=False)
def advisor_of(gpu: str, cap_w: float | None) -> Advisor:
    """Return the advisor of a GPU; those under all caps share remembered predictions."""
    if cap_w is not None:
        return advisor_of(gpu, None).under(cap_w)
    return Advisor(gpu, present=present_machine(gpu))


def read_question(top: DeltaGenerator, left: DeltaGenerator) -> Question | None:
    """Show the fields in `top` and the jobs on the `left`; None if one is wrong or missing.

    A sentence at the field says what is wrong with it.
    """
    if not set(known_gpus()) & set(profiled_gpus()):
        top.info("There is no profile yet. On a machine with a GPU, run advisor profile WORKLOAD.")
        return None
    fields = top.container(horizontal=True, vertical_alignment="bottom")
    wrong = top.container(horizontal=True)
    with fields:
        gpu, objective = _gpu(wrong), _objective(wrong)
        terms = None if gpu is None else _conditions(gpu, objective or "makespan", wrong)
        link = st.popover("Copy link", icon=":material/link:")
    jobs = None
    with left:
        try:
            jobs = _jobs(gpu or DEFAULT_GPU, objective)
        except AdvisorError as error:
            st.error(plain(str(error)))
    with link:
        st.code(_address(), language=None, wrap_lines=True)
    if gpu is None or objective is None or terms is None or not jobs:
        return None
    return Question(gpu, objective, jobs, *terms)


def _address() -> str:
    """The address that opens this question again."""
    fields = [(key, value) for key in st.query_params for value in st.query_params.get_all(key)]
    return f"{st.context.url or ''}{'?' if fields else ''}{urlencode(fields)}"


def _misread(key: str, choices: Iterable[str]) -> str | None:
    """The value of the link's parameter `key` that is not a choice, until a user chooses one."""
    value = st.query_params.get(key)
    if f"{key} read" not in st.session_state:  # streamlit drops it from the address then
        st.session_state[f"{key} read"] = value if value not in (None, *choices) else None
    wrong: str | None = st.session_state[f"{key} read"]
    return wrong


def _forget(key: str) -> None:
    st.session_state[f"{key} read"] = None


def _choice(
    label: str, key: str, choices: Sequence[str], first: str, wrong: DeltaGenerator,
    shown: Callable[[str], str] = str,
) -> str | None:  # fmt: skip
    """The choice of a list; None if that of a link is not in it, which a sentence says."""
    misread = _misread(key, map(shown, choices))
    index = None if misread is not None else choices.index(first)
    chosen = st.selectbox(
        label, choices, index, key=key, format_func=shown, bind="query-params", width=220,
        on_change=_forget, args=(key,), placeholder="Choose one",
    )  # fmt: skip
    if chosen is None:
        wrong.error(f"{key}: {plain(repr(misread))} is not in the list. Choose one.", width=456)
    return chosen


def _gpu(wrong: DeltaGenerator) -> str | None:
    here = first_gpu()
    keys = list(gpu_choices(here))
    first = next(each for each in (here, DEFAULT_GPU, *keys) if each in keys)
    return _choice("GPU", "gpu", keys, first, wrong)


def _objective(wrong: DeltaGenerator) -> ObjectiveName | None:
    names = {objective.choice: name for name, objective in OBJECTIVES.items()}
    chosen = _choice("Goal", "goal", list(names), next(iter(names)), wrong)
    return None if chosen is None else names[chosen]


def _conditions(
    gpu: str, objective: ObjectiveName, wrong: DeltaGenerator
) -> tuple[float | None, Conditions, Level] | None:
    """Power cap, conditions and level of the ranking; None if one of them is impossible."""
    card = known_gpus()[gpu]
    with st.popover("Conditions"):
        root = st.checkbox(
            "MIG and power caps may be set, as root", True, key="root", bind="query-params"
        )
        free = st.number_input(
            "Memory to keep free, %", 0.0, 99.0, 0.0, key="free", format="%g", bind="query-params"
        )
        cap_w = st.number_input(
            "Power cap, W", 1.0, None, None, 10.0, key="cap", format="%g", bind="query-params",
            placeholder="the GPU's own limit",
        )  # fmt: skip
        useless = why_no_caps(card, objective, Conditions(root=root))
        caps = st.checkbox(
            "A plan may choose a power cap", key="caps", bind="query-params", help=useless,
            disabled=useless is not None or cap_w is not None,
        )  # fmt: skip
        upper = st.checkbox(
            "Rank by the upper ends of the intervals", key="upper", bind="query-params"
        )
    try:
        if cap_w is not None:
            _ = advisor_of(gpu, cap_w).predictor
    except AdvisorError as error:
        wrong.error(f"cap: {plain(str(error))}")
        return None
    choose = caps and useless is None and cap_w is None
    conditions = Conditions(root=root, memory_margin=free / 100, power_caps=choose)
    return cap_w, conditions, "p95" if upper else "p50"


_KINDS = {
    "job": "string", "copies": "Float64", "epochs": "Float64", "batch": "Float64",
    "due": "Float64", "user": "string", "alone": "boolean",
}  # fmt: skip
_FEW = ("job", "copies", "epochs")
_NO_JOB = ","  # in a link; without the parameter, the examples are the jobs
Row = dict[str, Any]
"""A row of the table of jobs, by the columns' names; None and missing cells are empty."""


def _jobs(gpu: str, objective: ObjectiveName | None) -> tuple[Job, ...]:
    """The jobs of the table, which shows and changes those of the link.

    Raises:
        AdvisorError: A cell is impossible.
    """
    st.header("Jobs")
    at, notes = st.container(), st.container()
    below = st.container(horizontal=True, vertical_alignment="center")
    deadlines = objective is not None and OBJECTIVES[objective].uses_deadlines
    linked = ";" in st.query_params.get("jobs", "")
    shown = _KINDS if below.toggle("More columns", deadlines or linked) else _FEW
    files = st.file_uploader(
        "Add your profiles (.json) or job files (.toml)", ["json", "toml"], key="files",
        accept_multiple_files=True,
    )  # fmt: skip
    own, handed = _uploaded(gpu, [(file.name, file.getvalue()) for file in files], notes)
    offered = tuple(dict.fromkeys([*own, *names_of_jobs(known_gpus()[gpu])]))
    find = advisor_of(gpu, None).find_profile
    examples = _examples(gpu, offered)
    with at:
        rows = _table(offered, handed, examples, tuple(shown))
    with below, st.popover("Jobs as text"):
        st.text_input(
            "NAME:COPIES@EPOCHS, ...", key="jobs", bind="query-params", placeholder=examples
        )
    if not rows:
        notes.info("Choose at least one job.")
        return ()
    jobs = _jobs_of(rows, lambda name: own.get(name) or Job(find(name)))
    if wide := ", ".join(dict.fromkeys(job.name for job in jobs if job.gpus > 1)):
        notes.info(f"{plain(wide)}: here on one GPU each. “More questions” plans several GPUs.")
    if deadlines and not any(job.deadline_s for job in jobs):
        notes.info("No job has a deadline. Type one, in minutes, into “due, min”.")
    return jobs


def _table(
    offered: tuple[str, ...], handed: Sequence[Row], examples: str, shown: Sequence[str]
) -> list[Row]:
    """The rows as typed. The link's jobs and the offered ones make a new table; files add rows."""
    state = st.session_state
    before = _rows(st.query_params.get("jobs") or examples)
    names = {row["job"] for row in before}
    rows = before + [row for row in handed if row["job"] not in names]
    if state.get("table for") != (rows, offered):
        state["table number"] = state.get("table number", 0) + 1
        state["table rows"] = [row for row in rows if row["job"] in offered]
    strange = [row for row in rows if row["job"] not in offered]
    if strange:
        listed = ", ".join(str(row["job"]) for row in strange)
        st.warning(f"jobs: {plain(listed)} has no profile here. Links hold no files: add it below.")
    edited = st.data_editor(
        pd.DataFrame(state["table rows"], columns=list(_KINDS)).astype(_KINDS),
        key=f"table {state['table number']}", num_rows="dynamic", hide_index=True,
        column_config=_columns(offered), column_order=shown, placeholder="",
    )  # fmt: skip
    records = edited.astype(object).where(edited.notna(), None).to_dict("records")
    typed = [{str(name): cell for name, cell in row.items()} for row in records if row["job"]]
    words = [_words(row) for row in typed + strange]
    if words != [_words(row) for row in before]:
        text = ",".join(words) or _NO_JOB
        state["jobs"] = "" if text == examples else text
    state["table for"] = _rows(",".join(words)), offered
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


def _words(row: Row) -> str:
    """A row as in a link: ``NAME:COPIES@EPOCHS``, then ``;batch=64;due=30;user=ann;alone=1``."""
    copies, epochs = row.get("copies"), row.get("epochs")
    words = quote(str(row["job"]), safe=" ()")
    words += "" if copies in (None, 1) else f":{copies:.12g}"
    words += "" if epochs in (None, 1) else f"@{epochs:.12g}"
    others = ((name, row.get(name)) for name in _KINDS if name not in _FEW)
    cells = ((name, f"{value:.12g}" if isinstance(value, float) else str(value))
             for name, value in others if value not in (None, False))  # fmt: skip
    return "".join([words, *(f";{name}={quote(value, safe=' ')}" for name, value in cells)])


def _rows(text: str) -> list[Row]:
    """The rows that a link, or the text of jobs, contains.

    Raises:
        InvalidInput: A word is not a job.
    """
    rows = []
    for word in filter(None, map(str.strip, text.split(","))):
        first, *others = word.split(";")
        job, _, epochs = first.partition("@")
        name, _, copies = job.partition(":")
        cells = dict(each.partition("=")[::2] for each in others)
        row: Row = {"job": unquote(name), "copies": copies or 1, "epochs": epochs or 1, **cells}
        try:
            for column in [each for each in row if _KINDS[each] == "Float64"]:
                row[column] = float(row[column])
        except (KeyError, ValueError):
            raise InvalidInput(f"jobs: {word!r} is not a job. Write NAME:COPIES@EPOCHS.") from None
        user = unquote(row["user"]) if "user" in row else None
        rows.append(dict.fromkeys(_KINDS) | row | {"user": user, "alone": "alone" in row})
    return rows


def _jobs_of(rows: Iterable[Row], find: Callable[[str], Job]) -> tuple[Job, ...]:
    """The jobs of the table's `rows`, copies next to each other."""
    jobs: list[Job] = []
    for row in rows:
        cells = {name: value for name, value in row.items() if value is not None}
        for column in cells.keys() & {"copies", "batch"}:
            if cells[column] != int(cells[column]):
                raise InvalidInput(f"{cells['job']}: {column} is a whole number, got "
                                   f"{cells[column]:g}. Correct the cell.")  # fmt: skip
        job, due_min = find(cells["job"]), cells.get("due")
        batch = int(cells.get("batch", job.batch))
        if batch != job.batch:
            job = replace(job, profile=find(name_at_batch(job.name, job.profile, batch)).profile)
        job = replace(
            job, epochs=cells.get("epochs", 1.0), user=cells.get("user"),
            isolated=bool(cells.get("alone")), deadline_s=due_min and 60 * due_min,
        )  # fmt: skip
        jobs += [job] * checked_copies(int(cells.get("copies", 1)), job.name, 1)
    return job_set(jobs, max(job.gpus for job in jobs))


def _examples(gpu: str, offered: Sequence[str]) -> str:
    """The bundled jobs, else the first of those `offered`, as text."""
    try:
        jobs = advisor_of(gpu, None).chosen_jobs()
        return ",".join(_words({"job": job.name, "epochs": job.epochs}) for job in jobs)
    except AdvisorError:
        return offered[0] if offered else ""


_Files = Sequence[tuple[str, bytes]]


def _uploaded(gpu: str, files: _Files, at: DeltaGenerator) -> tuple[dict[str, Job], list[Row]]:
    """The jobs of files by the names of their rows, and a row for each job of new files."""
    own: dict[str, Job] = {}
    rows: list[Row] = []
    before: set[str] = st.session_state.get("rows of files", set())
    for name, content in sorted(files, key=lambda file: file[0].endswith(".toml")):
        try:
            if not name.endswith(".toml"):
                profile = _profile(gpu, name, content)
                own[profile.name] = Job(profile)
                rows += _rows(quote(profile.name))
                continue
            mine = {key: job.profile for key, job in own.items()}
            for number, (job, copies) in enumerate(_handed(gpu, name, content, mine, at), start=1):
                row = f"{job.name} ({name} {number})"
                own[row] = job
                due_min = None if job.deadline_s is None else job.deadline_s / 60
                rows.append({
                    "job": row, "copies": copies, "epochs": job.epochs, "due": due_min,
                    "user": job.user, "alone": job.isolated,
                })  # fmt: skip
        except AdvisorError as error:
            at.error(plain(str(error)))
    st.session_state["rows of files"] = {row["job"] for row in rows}
    return own, [row for row in rows if row["job"] not in before]


@st.cache_resource(max_entries=50, show_spinner=False)
def _profile(gpu: str, file: str, content: bytes) -> Profile:
    """The same object for the same content, so that predictions of its mixes stay remembered."""
    return profile_of_file(content, file, known_gpus()[gpu])


def _handed(
    gpu: str, file: str, content: bytes, own: Mapping[str, Profile], at: DeltaGenerator
) -> list[tuple[Job, int]]:
    """Each job of a job file with its copies; notes `at` a place say what the page leaves out."""
    find = advisor_of(gpu, None).find_profile
    jobs, left_out = handed_jobs(content, file, lambda name: own.get(name) or find(name))
    at.caption(plain(" ".join([_NOT_RUN, *(f"{each}." for each in left_out)])))
    return [(same[0], len(same)) for same in (list(run) for _, run in groupby(jobs, key=id))]


_NOT_RUN = "This page runs nothing of a job file: “Get the commands” shows its commands."
