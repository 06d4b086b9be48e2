"""Reads the committed profiles and runs of one GPU."""

from pathlib import Path

from advisor.workload.files import profile_files
from advisor.workload.profile import Profile
from advisor.workload.run import Run
from advisor.workload.store import read_profile, read_runs


def measured(folder: Path) -> tuple[dict[str, Profile], list[Run]]:
    """The profiles in `folder` by name, and the runs below it in the order of files and lines."""
    profiles = {path.stem: read_profile(path) for path in profile_files(folder)}
    files = sorted((folder / "runs").glob("*.jsonl"))
    return profiles, [run for file in files for run in read_runs(file)]
