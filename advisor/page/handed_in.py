"""Files that are handed in on the page: profiles, and jobs. They are read and kept nowhere."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import streamlit as st

from advisor.errors import AdvisorError
from advisor.hardware.catalogue import known_gpus
from advisor.page.address import linked
from advisor.page.answers import advisor_of
from advisor.page.refusal import refuse
from advisor.prediction.estimated_profile import handed_in
from advisor.report.page_jobs import WantedJob, handed_rows
from advisor.workload.job import Job
from advisor.workload.job_file import HandedJobs, handed_jobs
from advisor.workload.profile import Profile

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
