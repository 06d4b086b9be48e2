"""Profiles and job files that a visitor of the page hands in, and the rows of their jobs."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from itertools import groupby

from advisor.errors import AdvisorError, InvalidInput
from advisor.hardware.gpus import Gpu
from advisor.prediction.find_profile import profile_of_file
from advisor.workload.job import Job, handed_jobs
from advisor.workload.job_rows import JobRow, row_of
from advisor.workload.profile import FindsProfiles, Profile

_APART = "-yours"  # behind the name of a profile that has the name of another


@dataclass(frozen=True)
class HandedIn:
    """The jobs of some files.

    Attributes:
        jobs: Each job by the name of its row.
        rows: A row for each job, with its copies.
        notes: Sentences about what was renamed or left out.
        errors: A sentence for each file that is wrong.
    """

    jobs: dict[str, Job]
    rows: tuple[JobRow, ...]
    notes: tuple[str, ...]
    errors: tuple[str, ...]


def read_handed_in(
    files: Iterable[tuple[str, bytes]], gpu: Gpu, find: FindsProfiles, taken: Collection[str]
) -> HandedIn:
    """Read `files`, names and contents: profiles (.json), then the job files (.toml).

    Args:
        files: The files; profiles of other GPUs are estimated for `gpu`.
        gpu: The GPU of the question.
        find: Function from a name to a profile that was not handed in.
        taken: The names of those. A profile of the same name gets another name; job files mean it
            by its own.
    """
    own: dict[str, Profile] = {}
    jobs: dict[str, Job] = {}
    rows: list[JobRow] = []
    notes: list[str] = []
    errors: list[str] = []

    def find_here(name: str) -> Profile:
        return own[name] if name in own else find(name)

    for file, content in sorted(dict.fromkeys(files), key=lambda each: each[0].endswith(".toml")):
        try:
            if file.endswith(".toml"):
                handed, left_out = handed_jobs(content, file, find_here)
                notes += (f"{each}." for each in left_out)
                for number, (_, run) in enumerate(groupby(handed, key=id), start=1):
                    job, *copies = run
                    rows.append(row_of(job, f"{job.name} ({file} {number})", 1 + len(copies)))
                    jobs[rows[-1].job] = job
                continue
            profile = profile_of_file(content, file, gpu)
            name = profile.name
            if name in taken:
                workload = replace(profile.workload, name=name + _APART)
                profile = replace(profile, workload=workload)
                notes.append(f"There is a profile {name} already. Yours is {profile.name}.")
            if profile.name in jobs:
                raise InvalidInput(f"{file}: another file has the profile {name}. Rename one.")
            own[name], jobs[profile.name] = profile, Job(profile)
            rows.append(row_of(jobs[profile.name]))
        except AdvisorError as error:
            errors.append(str(error))
    return HandedIn(jobs, tuple(rows), tuple(notes), tuple(errors))
