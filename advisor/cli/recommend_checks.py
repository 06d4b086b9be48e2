"""Checks of the options of ``advisor recommend`` against each other."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from advisor.cli.options import AUTO, Given, Named, apart, needs
from advisor.cli.recommend_options import Gpus, Joining, Ranking, Shown
from advisor.errors import InvalidInput

if TYPE_CHECKING:
    from advisor.api import Advisor
    from advisor.workload.job import Job

_COPIES = ":auto"
_RUNS = {"running": "--running", "now": "--now"}
_NOT_OF_COPIES = (
    "job_file", "running", "now", "running_sharing", "hurt", "device", "gpus", "time_limit",
    "commands", "top", "protect",
)  # fmt: skip
# Which options need one of others, and which do not go together, and why.
_NEEDS = {
    "running_sharing": _RUNS,
    "hurt": {**_RUNS, "protect": "--protect"},
    "device": {"now": "--now", "commands": "--commands", "as_json": "--json"},
}
_APART = (
    ("commands", ("as_json",), "shell lines of one plan are printed alone."),
    ("auto", tuple(_RUNS), "what may join is asked of so many copies: JOB:4 instead of JOB:auto."),
    ("auto", _NOT_OF_COPIES, "how many copies pay is asked of one JOB on one GPU."),
    ("details", ("commands", *_RUNS), "--details is of jobs that start together."),
    ("now", ("running_sharing",), "--now reads from the driver how the GPU is shared."),
    *((runs, ("gpus", "time_limit"), "jobs join those that run on one GPU.") for runs in _RUNS),
    *((runs, ("protect",), "what runs is protected already, by --hurt.") for runs in _RUNS),
    ("protect", ("gpus",), "who shares with whom is not yet said there."),
    ("device", ("gpus",), "several GPUs are numbered from 0."),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class RecommendOptions:
    """All options of the command line; `given` holds those without defaults.

    Each check raises `InvalidInput` where an option would be ignored.
    """

    advisor: "Advisor"
    named: Named
    ranking: Ranking
    shown: Shown
    several: Gpus
    joining: Joining
    given: Given

    @property
    def device(self) -> str | None:
        """The GPU that commands are for; None: not given."""
        return self.joining.device if "device" in self.given else None

    @property
    def copied(self) -> str | None:
        """Name of the job in ``JOB:auto``; None: copies are not asked about."""
        names = self.named.jobs or ()
        return next((name.removesuffix(_COPIES) for name in names if name.endswith(_COPIES)), None)

    def check(self) -> None:
        """Check everything that needs no files; ``--gpus 1`` is as good as no ``--gpus``."""
        rank, top = self.shown.commands, self.shown.top
        if rank is not None and "top" in self.given and rank > top:
            raise InvalidInput(
                f"--commands {rank} and --top {top} do not go together: of so few plans none has "
                f"that rank."
            )
        given = {
            name: each for name, each in self.given.items()
            if name != "gpus" or self.several.gpus > 1
        }  # fmt: skip
        if self.copied is not None:
            given["auto"] = self.copied + _COPIES
        for one, others, why in _APART:
            apart(given, one, others, why)
        if "now" not in given:
            apart(given, "running", ("device",), "--device is for --now; --running says what runs.")
        for one, some in _NEEDS.items():
            needs(given, one, some)
        self._check_hurt()

    def _check_hurt(self) -> None:
        from advisor.workload.job import check_hurt

        if self.joining.hurt is not None:
            check_hurt("--hurt", self.joining.hurt)

    def protecting(self, jobs: "Sequence[Job]") -> "tuple[Job, ...]":
        """`jobs`, those that ``--protect`` names protected.

        Raises:
            InvalidInput: No job has such a name, or the share is wrong.
        """
        from advisor.plan.rules import MOST_HURT

        names = self.ranking.protect or []
        for name in names:
            if name not in {job.name for job in jobs}:
                raise InvalidInput(
                    f"--protect {name}: none of the JOBs has that name. Name one of them."
                )
        hurt = MOST_HURT if self.joining.hurt is None else self.joining.hurt
        return tuple(replace(job, protect=hurt) if job.name in names else job for job in jobs)

    def check_copies(self) -> None:
        """Check the options for a question about copies."""
        copied = f"{self.copied}{_COPIES}"
        if len(self.named.jobs or ()) > 1:
            raise InvalidInput(f"{copied}: how many copies pay is asked of one JOB, without others")
        self._check_work(copied)

    def check_additions(self) -> None:
        """Check the options for jobs that join running ones."""
        self._check_work("--now" if self.joining.now else "--running")
        for runs in _RUNS:
            why = "commands are of plans whose jobs start together."
            apart(self.given, runs, ("commands",), why)
            why = "what joins a GPU is judged by how much it slows what runs there."
            apart(self.given, runs, ("pessimistic",), f"{why} Allow less with --hurt.")

    def check_searched_whole(self, exact_jobs: int) -> None:
        """Check the options for jobs on one GPU, of which all plans are searched."""
        if "time_limit" in self.given:
            raise InvalidInput(
                f"--time-limit is for more than {exact_jobs} jobs, or several --gpus: fewer jobs "
                f"on one GPU are searched to the end. Leave it out."
            )

    def _check_work(self, what: str) -> None:
        """Check that `what` is asked for by throughput and under one power cap."""
        if self.ranking.power_cap == AUTO:
            raise InvalidInput(
                f"--power-cap {AUTO} and {what} do not go together: plans choose caps for jobs "
                f"that start together. Give watts."
            )
        if "objective" in self.given and self.ranking.objective != "throughput":
            raise InvalidInput(
                f"--objective {self.ranking.objective} and {what} do not go together: copies, and "
                f"jobs that join others, are chosen by the throughput. Leave --objective out."
            )
