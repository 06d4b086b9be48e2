"""The question on the page: GPU, objective, jobs and conditions."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, get_args

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from advisor.api import Advisor
from advisor.errors import AdvisorError
from advisor.hardware import DEFAULT_GPU
from advisor.hardware.gpus import Gpu, known_gpus
from advisor.measure.device import first_gpu
from advisor.page.answer import PageQuestion, advisor_of
from advisor.page.link import (
    LinkedQuestion,
    WantedJob,
    jobs_of_rows,
    linked,
    on_the_page,
    parameters,
    uploaded_rows,
    wanted_job,
)
from advisor.plan import ObjectiveName
from advisor.plan.forecast import why_no_caps
from advisor.plan.objectives import OBJECTIVES
from advisor.plan.rules import MOST_SLOWING, Conditions
from advisor.plan.values import Plan, Recommendation
from advisor.prediction.find_profile import names_of_jobs, profile_of_file
from advisor.prediction.power import CAP_NOTE
from advisor.prediction.prediction import Level
from advisor.report.forecast import plan_name
from advisor.report.lists import gpu_choices
from advisor.simulation import Policy
from advisor.workload.job import Job, handed_jobs
from advisor.workload.profile import Profile
from advisor.workload.store import profiled_gpus


def keep_address(
    question: PageQuestion, advised: Recommendation, plan: Plan, further: str | None
) -> None:
    """Write `question`, the `plan` in view and the `further` question to the page's address."""
    shown = st.session_state.get
    policy, hurt, other = shown("policy"), shown("hurt"), shown("second plan")
    now = LinkedQuestion(
        gpu=question.gpu, objective=question.objective, jobs=question.jobs, cap_w=question.cap_w,
        conditions=question.conditions, level=question.level,
        plan=None if plan is advised.best else plan_name(advised, plan),
        trials=shown("trials"), files=tuple(name for name, _ in question.files),
        question=further, gpus=shown("gpus"),
        policy=policy if policy in get_args(Policy) else None,
        view=shown("view"), beside=other and other.partition("  ")[2], form=shown("format"),
        running=shown("running jobs", ()), running_sharing=shown("running sharing"),
        hurt=None if hurt in (None, 100 * MOST_SLOWING) else hurt / 100, added=shown("added"),
        sharing=shown("fleet sharing"), at_once=shown("at once"), price=shown("price"),
    )  # fmt: skip
    st.query_params.from_dict(parameters(now))


STYLE = """<style>
.stMainBlockContainer {padding-top: 3.5rem; padding-bottom: 3rem}
@media (min-width: 640px) {.stMainBlockContainer {padding: 2.5rem 1.5rem 3rem}}
.stMainBlockContainer h2 {font-size: 1.5rem; padding: 0 0 0.5rem}
.stMainBlockContainer h3 {font-size: 1.25rem; padding: 0.75rem 0 0.5rem}
.stMainBlockContainer .stAlert h3 {font-size: 1.35rem; padding: 0 0 0.5rem}
.stMetric {padding: 0; margin-bottom: -0.5rem}
.stMetric > div {padding: 0.3rem 0.8rem}
.stMetric [data-testid="stMetricValue"] {font-size: 1.5rem}
.stMetric [data-testid="stMetricDelta"] * {white-space: normal; overflow: visible}
.stTable td p {white-space: pre-line}
[class*="st-key-outdated"] {opacity: 0.5; filter: grayscale(1)}
[class*="st-key-narrow"] {display: none}
@media (max-width: 640px) {
.stElementContainer:has(> .stMetric) {flex: 1 1 40%; min-width: 40%}
.st-key-wide {display: none}
[class*="st-key-narrow"] {display: flex}
.st-key-narrow td:nth-child(2) p {overflow-wrap: anywhere; overflow: hidden}
.st-key-narrow td:nth-child(2) p {display: -webkit-box; -webkit-box-orient: vertical}
.st-key-narrow td:nth-child(2) p {-webkit-line-clamp: 3}
[class*="st-key-rows-"] :is(table, tbody, tr) {display: block}
[class*="st-key-rows-"] thead {display: none}
[class*="st-key-rows-"] tr + tr {border-top: 1px solid #80808080}
[class*="st-key-rows-"] td {display: flex; justify-content: space-between; gap: 1rem; border: 0}
[class*="st-key-rows-"] td:first-child {font-weight: 600}
[class*="st-key-rows-"] td::before {opacity: 0.7}
}
</style>"""


def refuse(error: AdvisorError, at: DeltaGenerator | None = None) -> None:
    """Show `error` at the end of the page, or `at` another place.

    Its words may come from a file or a link: Markdown's pictures and links are escaped, because a
    browser would fetch them from any host.
    """
    (at or st).error(on_the_page(str(error)).replace("![", "!\\[").replace("](", "]\\("))


def _conditions(
    gpu: Gpu, objective: ObjectiveName
) -> tuple[float | None, Conditions, Level] | None:
    """Power cap, conditions and level of intervals; None if one of them is impossible."""
    link = linked().conditions
    with st.expander("Conditions"):
        rootless = not gpu.mig and not OBJECTIVES[objective].saves_energy
        root = _tick(
            "MIG may be switched on, which requires root", "root", link.root,
            f"{gpu.key} has no MIG" if rootless else None,
        )  # fmt: skip
        cap_w, possible, caps = _power_caps(gpu, objective, Conditions(root=root))
        free = st.number_input(
            "Memory to keep free, %", value=100 * link.memory_margin, format="%g", key="memory"
        )
        by_memory = st.container()
        upper = _tick(
            "Rank by the upper ends of the intervals", "pessimistic", linked().level == "p95"
        )
    try:
        conditions = Conditions(root=root, memory_margin=free / 100, power_caps=caps)
    except AdvisorError as error:
        refuse(error, by_memory)
        return None
    return (cap_w, conditions, "p95" if upper else "p50") if possible else None


def _power_caps(
    gpu: Gpu, objective: ObjectiveName, under: Conditions
) -> tuple[float | None, bool, bool]:
    """The cap, whether `gpu` supports it, and whether plans choose one."""
    link, useless = linked(), why_no_caps(gpu, objective, under)
    typed = st.session_state.get("power cap", link.cap_w)
    chosen = useless is None and st.session_state.get("power caps", link.conditions.power_caps)
    cap_w = st.number_input(
        "Power cap, W", value=link.cap_w, step=10.0, format="%g", key="power cap",
        disabled=chosen and typed is None,
        placeholder="the plans choose" if chosen else "the GPU's own limit",
        help=f"The most that the GPU may draw. The effect of a cap was {CAP_NOTE}.",
    )  # fmt: skip
    possible = True
    try:
        if cap_w is not None:
            _ = advisor_of(gpu.key, cap_w).predictor
    except AdvisorError as error:
        refuse(error)
        possible = False
    excluded = useless if cap_w is None else "all plans run under the cap above"
    caps = _tick(
        "A plan may choose a power cap", "power caps", link.conditions.power_caps, excluded
    )
    return cap_w, possible, caps and excluded is None


def _tick(label: str, key: str, value: bool, excluded: str | None = None) -> bool:
    """A box to tick, disabled if a reason, shown below it, excludes it."""
    ticked = st.checkbox(label, value=value, key=key, disabled=excluded is not None)
    if excluded is not None:
        st.caption(f"Not available: {on_the_page(excluded)}.")
    return ticked


_NOT_RUN = "This page runs and reads nothing of a job file: “Apply it” shows its commands."
_Files = tuple[tuple[str, bytes], ...]


def _uploads(gpu: str) -> tuple[_Files, tuple[WantedJob, ...], dict[str, Job]]:
    """The usable uploaded files, the rows of job files, and jobs by their names in the table."""
    files = st.file_uploader(
        "Your own profiles, and job files", ["json", "toml"], accept_multiple_files=True,
        key="uploads",
        help="Files of `advisor profile`, `advisor profile --from-numbers` or `advisor init jobs`.",
    )  # fmt: skip
    names = {each.name for each in files}
    if missing := [name for name in linked().files if name not in names]:
        named = ", ".join(f"`{name}`" for name in missing)
        st.info(f"A link holds no files. This one was made with {named}: upload again.")
    used: _Files = ()
    handed: list[tuple[WantedJob, Job]] = []
    own: dict[str, Job] = {}
    # Profiles before the jobs that use them.
    for file in sorted(((each.name, each.getvalue()) for each in files), key=_is_jobs):
        try:
            if _is_jobs(file):
                uploaded, left_out = _jobs(gpu, *file, used)
                handed += uploaded_rows(uploaded, file[0])
                st.caption(" ".join([_NOT_RUN, *(f"{each}." for each in left_out)]))
            else:
                profile = _profile(gpu, *file)
                own[profile.name] = Job(profile)
            used += (file,)
        except AdvisorError as error:
            refuse(error)
    jobs = {row.name: job for row, job in handed} | own
    return used, tuple(row for row, _ in handed), jobs


def _is_jobs(file: tuple[str, bytes]) -> bool:
    return file[0].endswith(".toml")


@st.cache_resource(max_entries=50, show_spinner=False)
def _profile(gpu: str, file: str, content: bytes) -> Profile:
    """The same object for the same content, so that predictions of its mixes stay remembered."""
    return profile_of_file(content, file, known_gpus()[gpu])


@st.cache_resource(ttl=300, max_entries=50, show_spinner=False)
def _jobs(
    gpu: str, file: str, content: bytes, others: _Files
) -> tuple[tuple[Job, ...], tuple[str, ...]]:
    profiles = [_profile(gpu, *each) for each in others if not _is_jobs(each)]
    own = {each.name: each for each in profiles}
    find = advisor_of(gpu, None).find_profile
    return handed_jobs(content, file, lambda name: own.get(name) or find(name))


_KINDS = {
    "name": "string", "copies": "Float64", "epochs": "Float64", "batch": "Float64",
    "user": "string", "deadline_min": "Float64", "isolated": "boolean",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Table:
    """The table of jobs: its names to choose from, rows from files, first rows and rows now.

    Attributes:
        number: Number of tables before this one; each keeps its own edits.
    """

    number: int
    offered: tuple[str, ...]
    uploaded: tuple[WantedJob, ...]
    first: tuple[dict[str, Any], ...]
    now: tuple[dict[str, Any], ...]


def _job_table(
    gpu: str, offered: tuple[str, ...], uploaded: tuple[WantedJob, ...]
) -> tuple[WantedJob, ...]:
    """The jobs as typed; edits stay if other jobs are `offered`, unless files add rows."""
    table = st.session_state.get("job table")
    if table is None or (table.offered, table.uploaded) != (offered, uploaded):
        rows = _first_rows(table, offered, uploaded)
        rows = rows or tuple(map(asdict, _usual_jobs(gpu, offered)))
        table = _Table(table.number + 1 if table else 0, offered, uploaded, rows, rows)
    st.caption("Jobs: type into any cell; the empty row adds a job.")
    edited = st.data_editor(
        pd.DataFrame(list(table.first), columns=list(_KINDS)).astype(_KINDS),
        key=f"jobs {table.number}", num_rows="dynamic", hide_index=True, width="stretch",
        column_config=_columns(offered), placeholder="",
    )  # fmt: skip
    with st.container(key="narrow-jobs"):
        st.caption("Further right: batch size, user, deadline, and alone.")
    records = edited.astype(object).where(edited.notna(), None).to_dict("records")
    rows = tuple(row for row in records if row["name"] is not None)
    st.session_state["job table"] = replace(table, now=rows)
    unknown = [row.name for row in linked().jobs if row.name not in offered]
    if unknown and rows == table.first:
        names = ", ".join(f"`{name}`" for name in dict.fromkeys(unknown))
        st.info(f"The link also contains {names}, without a profile here.")
    return tuple(map(wanted_job, rows))


def _first_rows(
    last: _Table | None, offered: tuple[str, ...], uploaded: tuple[WantedJob, ...]
) -> tuple[dict[str, Any], ...]:
    """The rows of a link, also if their jobs are uploaded later; else of files; else the `last`."""
    in_link = [row for row in linked().jobs if row.name in offered]
    before = last.offered if last else ()
    untouched = last is None or last.now == last.first
    if untouched and any(row.name not in before for row in in_link):
        return tuple(map(asdict, in_link))
    if uploaded and (last is None or uploaded != last.uploaded):
        return tuple(map(asdict, uploaded))
    return tuple(row for row in last.now if row["name"] in offered) if last else ()


def _columns(offered: Sequence[str]) -> dict[str, Any]:
    usual = WantedJob("")
    number, text = st.column_config.NumberColumn, st.column_config.TextColumn
    return {
        "name": st.column_config.SelectboxColumn("job", options=offered, required=True),
        "copies": number(step=1, default=usual.copies),
        "epochs": number(default=usual.epochs),
        "batch": number(step=1, help="Examples a step; empty: the batch size of the profile."),
        "user": text(help="Its owner: MPS serves one user at a time."),
        "deadline_min": number("due, min", help="Minutes until it should be done."),
        "isolated": st.column_config.CheckboxColumn(
            "alone", default=False, help="No other job may share its memory."
        ),
    }


def read_question(by_jobs: DeltaGenerator) -> tuple[PageQuestion, tuple[Job, ...]] | None:
    """Return the question and its jobs; None if a field, which shows why, is impossible or missing.

    Args:
        by_jobs: Place of the table of jobs.
    """
    models = known_gpus()
    if not any(key in models for key in profiled_gpus()):
        st.info("No profile yet. On a machine with a GPU: `advisor profile WORKLOAD`.")
        return None
    gpu, objective = _chosen_gpu(), _objective()
    by_objective = st.container()
    files, rows, own = _uploads(gpu)
    offered = tuple(dict.fromkeys([*own, *names_of_jobs(models[gpu])]))
    wanted: tuple[WantedJob, ...] = ()
    jobs: tuple[Job, ...] | None = None
    with by_jobs:
        try:
            wanted = _job_table(gpu, offered, rows)
            if wanted:
                jobs = jobs_of_rows(wanted, own, advisor_of(gpu, None).find_profile)
            else:
                st.info("Choose at least one job.")
        except AdvisorError as error:
            refuse(error)
    if OBJECTIVES[objective].uses_deadlines and not any(each.deadline_min for each in wanted):
        by_objective.info("No job has a deadline: type one, in minutes, into “due, min”.")
    under = _conditions(models[gpu], objective)
    if jobs is None or under is None:
        return None
    if not (models[gpu].mig and under[1].root) and any(each.isolated for each in wanted):
        by_jobs.caption("Without MIG, a job marked alone runs while no other job runs.")
    return PageQuestion(gpu, wanted, objective, *under, files), jobs


def _chosen_gpu() -> str:
    """Key of the chosen GPU: at first that of the link, else of this machine, else the default."""
    here = first_gpu()
    choices = gpu_choices(here)
    keys = list(choices)
    likely = next(each for each in (linked().gpu, here, DEFAULT_GPU, *keys) if each in choices)
    key = st.selectbox(
        "GPU", keys, index=keys.index(likely), key="gpu",
        format_func=lambda key: choices[key][0],
    )  # fmt: skip
    st.caption(choices[key][1])
    return key


def _objective() -> ObjectiveName:
    names, link = list(OBJECTIVES), linked().objective
    return st.selectbox(
        "Best means", names, index=names.index(link) if link in OBJECTIVES else 0,
        format_func=lambda name: OBJECTIVES[name].choice, key="objective",
    )  # fmt: skip


def _usual_jobs(gpu: str, offered: Sequence[str]) -> Sequence[WantedJob]:
    """The bundled jobs, else the first of those `offered`."""
    try:
        return [WantedJob(job.name, epochs=job.epochs) for job in Advisor(gpu).chosen_jobs()]
    except AdvisorError:
        return [WantedJob(name) for name in offered[:1]]
