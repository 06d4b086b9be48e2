from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from advisor.workload.stored_runs import read_runs
from tests.measure.campaign.plans import written
from tests.measure.shared.real_command import Started


class Campaign(Started):
    """``python -m advisor.campaign`` with two runners that share the CPU.

    Args:
        folder: As `Started` has it.
        plan: The text of the plan.
    """

    def __init__(self, folder, plan):
        self.out, self.profiles = Path(folder) / "out", Path(folder) / "profiles"
        files = ("--out", self.out, "--profiles", self.profiles)
        path = written(Path(folder), plan)
        super().__init__(folder, "-m", "advisor.campaign", path, *files, "--devices", "cpu,cpu")

    def runs(self):
        """All runs in the folder."""
        return [run for path in sorted(self.out.glob("*.jsonl")) for run in read_runs(path)]


@pytest.fixture
def campaign():
    """Makes the command; whatever a failed test leaves is ended."""
    made = []
    with TemporaryDirectory(dir="/tmp") as folder:

        def make(plan):
            made.append(Campaign(folder, plan))
            return made[-1]

        yield make
        for each in made:
            each.clear()
