"""The jobs in files that a user uploads: profiles, and files of jobs that use them."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from advisor.errors import AdvisorError
from advisor.hardware.gpus import Gpu
from advisor.prediction.find_profile import profile_of_file
from advisor.workload.job import Job, handed_jobs
from advisor.workload.job_rows import Row, row_of
from advisor.workload.profile import FindsProfiles, Profile


@dataclass(frozen=True, slots=True)
class Uploaded:
    """The jobs in uploaded files.

    Attributes:
        jobs: Jobs by the names of their rows.
        rows: A row for each job.
        notes: What is left out of files of jobs.
        errors: Why files could not be read.
    """

    jobs: dict[str, Job]
    rows: tuple[Row, ...]
    notes: tuple[str, ...]
    errors: tuple[str, ...]


def read_uploaded(files: Sequence[tuple[str, bytes]], gpu: Gpu, find: FindsProfiles) -> Uploaded:
    """Read `files`, names and contents, for `gpu`; `find` finds all other profiles."""
    jobs: dict[str, Job] = {}
    rows: list[Row] = []
    notes: list[str] = []
    errors: list[str] = []

    def find_here(name: str) -> Profile:
        return jobs[name].profile if name in jobs else find(name)

    # Profiles before the jobs that use them.
    for file, content in sorted(files, key=lambda each: each[0].endswith(".toml")):
        try:
            if not file.endswith(".toml"):
                profile = profile_of_file(content, file, gpu)
                jobs[profile.name] = Job(profile)
                rows.append(row_of(jobs[profile.name], profile.name))
                continue
            handed, left_out = handed_jobs(content, file, find_here)
            notes += left_out
            for number, (_, run) in enumerate(groupby(handed, key=id), start=1):
                job, *copies = run
                name = f"{job.name} ({file} {number})"
                jobs[name] = job
                rows.append(row_of(job, name, 1 + len(copies)))
        except AdvisorError as error:
            errors.append(str(error))
    return Uploaded(jobs, tuple(rows), tuple(notes), tuple(errors))
