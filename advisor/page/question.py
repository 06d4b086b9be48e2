"""The question on the page: GPU, objective, jobs and conditions."""

from collections.abc import Callable, Collection, Mapping, Sequence
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
    asked_jobs,
    handed_rows,
    linked_question,
    on_the_page,
    parameters,
    wanted_job,
)
from advisor.plan import ObjectiveName
from advisor.plan.candidates import why_no_caps
from advisor.plan.objectives import OBJECTIVES
from advisor.plan.rules import MOST_HURT, Conditions
from advisor.plan.values import Plan, Recommendation
from advisor.prediction.find_profile import handed_in, names_of_jobs
from advisor.prediction.power import CAP_NOTE
from advisor.prediction.prediction import Level
from advisor.report.forecast import plan_name
from advisor.report.lists import gpu_choices
from advisor.simulation import Policy
from advisor.workload.job import HandedJobs, Job, handed_jobs
from advisor.workload.profile import Profile
from advisor.workload.store import profiled_gpus


def linked() -> LinkedQuestion:
    """What the link asked with which the page was opened."""
    if "linked" not in st.session_state:
        given = {name: st.query_params.get_all(name) for name in st.query_params}
        st.session_state["linked"] = linked_question(given)
    found: LinkedQuestion = st.session_state["linked"]
    return found


def named(choice: str | None) -> str | None:
    """The name of a plan that is chosen from a list where its rank is before it."""
    return None if choice is None else choice.partition("  ")[2]


def at_first(choices: Sequence[str], asked: str | None) -> int:
    """The place of what the link `asked` for among `choices`; of the first where it is none."""
    return choices.index(asked) if asked in choices else 0


def keep_address(
    asked: PageQuestion, advised: Recommendation, plan: Plan, question: str | None
) -> None:
    """Make the address ask for `asked`, and for the `plan` and further `question` looked at."""
    shown = st.session_state.get
    policy, hurt = shown("policy"), shown("hurt")
    now = LinkedQuestion(
        gpu=asked.gpu, objective=asked.objective, jobs=asked.jobs, cap_w=asked.cap_w,
        conditions=asked.conditions, level=asked.level,
        plan=None if plan is advised.best else plan_name(advised, plan),
        trials=shown("trials"), files=tuple(name for name, _ in asked.files),
        question=question, gpus=shown("gpus"),
        policy=policy if policy in get_args(Policy) else None,
        view=shown("view"), beside=named(shown("second plan")), form=shown("format"),
        running=shown("running jobs", ()), running_sharing=shown("running sharing"),
        hurt=None if hurt in (None, 100 * MOST_HURT) else hurt / 100, added=shown("added"),
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
    """Say `error` where the page is being written, or `at` another place.

    Its words may be those of a file or of a link. What Markdown takes for a picture in them would
    be fetched from whatever host they name.
    """
    said = on_the_page(str(error)).replace("![", "!\\[").replace("](", "]\\(")
    (at or st).error(said)


def conditions_asked(
    gpu: Gpu, objective: ObjectiveName
) -> tuple[float | None, Conditions, Level] | None:
    """Power cap, conditions and what counts of a range; None where one of them is impossible."""
    asked = linked().conditions
    with st.expander("Conditions"):
        rootless = not gpu.mig and not OBJECTIVES[objective].saves_energy
        root = _tick(
            "MIG may be switched on, which takes root", "root", asked.root,
            f"{gpu.key} has no MIG" if rootless else None,
        )  # fmt: skip
        cap_w, possible, caps = _power_caps(gpu, objective, Conditions(root=root))
        free = st.number_input(
            "Memory to keep free, %", value=100 * asked.memory_margin, format="%g", key="memory"
        )
        by_memory = st.container()
        upper = _tick(
            "Rank by the upper ends of the ranges", "pessimistic", linked().level == "p95"
        )
    try:
        found = Conditions(root=root, memory_margin=free / 100, power_caps=caps)
    except AdvisorError as error:
        refuse(error, by_memory)
        return None
    return (cap_w, found, "p95" if upper else "p50") if possible else None


def _power_caps(
    gpu: Gpu, objective: ObjectiveName, under: Conditions
) -> tuple[float | None, bool, bool]:
    """The cap, whether `gpu` can be set to it, and whether plans choose one; either or neither."""
    known, useless = linked(), why_no_caps(gpu, objective, under)
    given = st.session_state.get("power cap", known.cap_w)
    chosen = useless is None and st.session_state.get("power caps", known.conditions.power_caps)
    cap_w = st.number_input(
        "Power cap, W", value=known.cap_w, step=10.0, format="%g", key="power cap",
        disabled=chosen and given is None,
        placeholder="the plans choose" if chosen else "the GPU's own limit",
        help=f"What the GPU may draw at most. What a cap does was {CAP_NOTE}.",
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
        "A plan may choose a power cap", "power caps", known.conditions.power_caps, excluded
    )
    return cap_w, possible, caps and excluded is None


def _tick(label: str, key: str, value: bool, excluded: str | None = None) -> bool:
    """A box to tick, unless something that is said under it leaves nothing to choose."""
    ticked = st.checkbox(label, value=value, key=key, disabled=excluded is not None)
    if excluded is not None:
        st.caption(f"Nothing to choose: {on_the_page(excluded)}.")
    return ticked


_NOT_RUN = (
    "Nothing that a job file says is run or read here: its commands stand in what “Apply it” gives."
)
_Files = tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class HandedIn:
    """What the files hold.

    Attributes:
        files: Names and contents.
        rows: What the job files ask for.
        jobs: By the names by which the table offers them.
    """

    files: _Files
    rows: tuple[WantedJob, ...]
    jobs: Mapping[str, Job]


def files_handed_in(gpu: str) -> HandedIn:
    """What the files hold that are handed in; of those that cannot be used it says why not."""
    used: _Files = ()
    rows: tuple[tuple[WantedJob, Job], ...] = ()
    jobs: dict[str, Job] = {}
    for file in _uploaded():
        try:
            if _is_jobs(file):
                handed = _jobs(gpu, *file, used)
                rows += handed_rows(handed.jobs, file[0])
                st.caption(" ".join([_NOT_RUN, *(f"{each}." for each in handed.left_out)]))
            else:
                profile = _profile(gpu, *file)
                jobs[profile.name] = Job(profile)
            used += (file,)
        except AdvisorError as error:
            refuse(error)
    return HandedIn(
        used,
        tuple(row for row, _ in rows),
        {row.name: job for row, job in rows} | jobs,
    )


def _uploaded() -> list[tuple[str, bytes]]:
    """Names and contents of the files in the page's field, profiles before jobs that use them."""
    given = st.file_uploader(
        "Your own profiles, and job files", ["json", "toml"], accept_multiple_files=True,
        key="uploads",
        help="What `advisor profile` or `advisor profile --from-numbers` wrote; jobs as "
        "`advisor init jobs` writes them.",
    )  # fmt: skip
    _ask_for_linked({each.name for each in given})
    return sorted(((each.name, each.getvalue()) for each in given), key=_is_jobs)


def _ask_for_linked(given: Collection[str]) -> None:
    """Say which files the link was made with that are not among those `given`."""
    if missing := [name for name in linked().files if name not in given]:
        named = ", ".join(f"`{name}`" for name in missing)
        st.info(f"A link holds no files. This one was made with {named}: hand in again.")


def _is_jobs(file: tuple[str, bytes]) -> bool:
    return file[0].endswith(".toml")


@st.cache_resource(max_entries=50, show_spinner=False)
def _profile(gpu: str, file: str, content: bytes) -> Profile:
    """One and the same for the same content, so that what is known of its mixes stays known."""
    return handed_in(content, file, known_gpus()[gpu])


@st.cache_resource(ttl=300, max_entries=50, show_spinner=False)
def _jobs(gpu: str, file: str, content: bytes, others: _Files) -> HandedJobs:
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


@dataclass(frozen=True, slots=True)
class Posed:
    """A question that can be answered.

    Attributes:
        asked: As typed.
        jobs: Those of `asked`.
        by_jobs: Where to say what is wrong with them together.
    """

    asked: PageQuestion
    jobs: tuple[Job, ...]
    by_jobs: DeltaGenerator


def posed(by_jobs: DeltaGenerator) -> Posed | None:
    """What is asked; None where something is impossible or missing, which stands at its field.

    Args:
        by_jobs: Where the table of jobs is.
    """
    known = known_gpus()
    if not any(key in known for key in profiled_gpus()):
        st.info("Nothing is measured yet. On a machine with a GPU: `advisor profile WORKLOAD`.")
        return None
    gpu, objective = _chosen_gpu(linked().gpu), _objective()
    by_objective = st.container()
    files = files_handed_in(gpu)
    offered = tuple(dict.fromkeys([*files.jobs, *names_of_jobs(known[gpu])]))
    with by_jobs:
        wanted, jobs = _asked_jobs(gpu, offered, files)
    if OBJECTIVES[objective].uses_deadlines and not any(each.deadline_min for each in wanted):
        by_objective.info("No job has a deadline: type one, in minutes, into “due, min”.")
    under = conditions_asked(known[gpu], objective)
    if jobs is None or under is None:
        return None
    if not (known[gpu].mig and under[1].root) and any(each.isolated for each in wanted):
        by_jobs.caption("Without MIG a job that is to be alone runs while no other does.")
    return Posed(PageQuestion(gpu, wanted, objective, *under, files.files), jobs, by_jobs)


def _asked_jobs(
    gpu: str, offered: tuple[str, ...], files: HandedIn
) -> tuple[tuple[WantedJob, ...], tuple[Job, ...] | None]:
    """The jobs as typed, and as they are; None where these are impossible or missing."""
    wanted: tuple[WantedJob, ...] = ()
    try:
        wanted = job_table(offered, files.rows, linked().jobs, lambda: _usual_jobs(gpu, offered))
        if wanted:
            return wanted, asked_jobs(wanted, files.jobs, advisor_of(gpu, None).find_profile)
        st.info("Choose at least one job.")
    except AdvisorError as error:
        refuse(error)
    return wanted, None


def _chosen_gpu(linked: str | None) -> str:
    """The key of one; at first the `linked` one, else that of this machine, else the usual one."""
    at_hand = first_gpu()
    choices = gpu_choices(at_hand)
    keys = list(choices)
    likely = next(each for each in (linked, at_hand, DEFAULT_GPU, *keys) if each in choices)
    key = st.selectbox(
        "GPU", keys, index=keys.index(likely), key="gpu",
        format_func=lambda key: choices[key].label,
    )  # fmt: skip
    st.caption(choices[key].standing)
    return key


def _objective() -> ObjectiveName:
    names, asked = list(OBJECTIVES), linked().objective
    return st.selectbox(
        "Best means", names, index=names.index(asked) if asked in OBJECTIVES else 0,
        format_func=lambda name: OBJECTIVES[name].choice, key="objective",
    )  # fmt: skip


def _usual_jobs(gpu: str, offered: Sequence[str]) -> Sequence[WantedJob]:
    """The bundled ones, else the first of those `offered`."""
    try:
        return [WantedJob(job.name, epochs=job.epochs) for job in Advisor(gpu).chosen_jobs()]
    except AdvisorError:
        return [WantedJob(name) for name in offered[:1]]
