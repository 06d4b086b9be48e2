"""Files that are handed in on the page: profiles, and jobs. They are read and kept nowhere."""

from collections.abc import Mapping
from dataclasses import dataclass

import streamlit as st

from advisor.errors import AdvisorError
from advisor.hardware.catalogue import known_gpus
from advisor.page.answers import advisor_of
from advisor.page.refusal import refuse
from advisor.prediction.estimated_profile import handed_in
from advisor.report.page_jobs import WantedJob, handed_rows
from advisor.workload.job import Job
from advisor.workload.job_file import handed_jobs
from advisor.workload.profile import Profile

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
    given = st.file_uploader(
        "Your own profiles, and job files", ["json", "toml"], accept_multiple_files=True,
        key="uploads",
        help="What `advisor profile` or `advisor profile --from-numbers` wrote; jobs as "
        "`advisor init jobs` writes them.",
    )  # fmt: skip
    files = sorted(((each.name, each.getvalue()) for each in given), key=_is_jobs)
    used: _Files = ()
    rows: tuple[tuple[WantedJob, Job], ...] = ()
    jobs: dict[str, Job] = {}
    for file in files:
        try:
            if _is_jobs(file):
                rows += handed_rows(_jobs(gpu, *file, used), file[0])
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


def _is_jobs(file: tuple[str, bytes]) -> bool:
    return file[0].endswith(".toml")


@st.cache_resource(max_entries=50, show_spinner=False)
def _profile(gpu: str, file: str, content: bytes) -> Profile:
    """One and the same for the same content, so that what is known of its mixes stays known."""
    return handed_in(content, file, known_gpus()[gpu])


@st.cache_resource(ttl=300, max_entries=50, show_spinner=False)
def _jobs(gpu: str, file: str, content: bytes, others: _Files) -> tuple[Job, ...]:
    profiles = [_profile(gpu, *each) for each in others if not _is_jobs(each)]
    own = {each.name: each for each in profiles}
    find = advisor_of(gpu, None).find_profile
    return handed_jobs(content, file, lambda name: own.get(name) or find(name))
