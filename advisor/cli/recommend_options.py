"""The options of ``advisor recommend`` alone, in groups, and which of them go together."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import typer

from advisor.cli.options import (
    AUTO,
    By,
    CapOrAuto,
    Device,
    Given,
    GpuKey,
    Named,
    Top,
    apart,
    needs,
)
from advisor.cli.output import leave_out, warn
from advisor.errors import InvalidInput
from advisor.hardware import DEFAULT_GPU
from advisor.plan import MOST_GPUS

if TYPE_CHECKING:
    from advisor.api import Advisor
    from advisor.plan.machine import Running
    from advisor.plan.rules import Conditions
    from advisor.prediction.mix_prediction import Level
    from advisor.workload.job import Job


Pessimistic = Annotated[
    bool, typer.Option("--pessimistic", help="Rank by the upper ends of the ranges.")
]
MemoryMargin = Annotated[
    float, typer.Option(metavar="SHARE", help="Share of memory to leave free, e.g. 0.1.")
]


@dataclass(frozen=True, slots=True)
class Ranking:
    """The options that say what is best, and what machine and user allow."""

    gpu: GpuKey = DEFAULT_GPU
    objective: By = "makespan"
    pessimistic: Pessimistic = False
    power_cap: CapOrAuto = None
    root: Annotated[
        bool, typer.Option("--root/--no-root", help="Whether you may switch MIG on and cut it.")
    ] = True
    memory_margin: MemoryMargin = 0.0
    protect: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A job that sharing must not slow: see --hurt."),
    ] = None

    @property
    def level(self) -> "Level":
        return "p95" if self.pessimistic else "p50"

    @property
    def conditions(self) -> "Conditions":
        from advisor.plan.rules import Conditions

        caps = self.power_cap == AUTO
        return Conditions(root=self.root, memory_margin=self.memory_margin, power_caps=caps)


@dataclass(frozen=True, slots=True)
class Shown:
    """The options that say which plans are shown; `commands` is the rank of one."""

    top: Top = 5
    details: Annotated[
        bool, typer.Option("--details", help="Every plan in full, and how they were found.")
    ] = False
    commands: Annotated[
        int | None,
        typer.Option(metavar="RANK", min=1, help="Print only the shell commands of this plan."),
    ] = None


@dataclass(frozen=True, slots=True)
class Gpus:
    """The options of plans for several GPUs."""

    gpus: Annotated[
        int, typer.Option(min=1, max=MOST_GPUS, help="How many equal GPUs there are.")
    ] = 1
    time_limit: Annotated[
        float,
        typer.Option(metavar="S", help="Of a search for many jobs or several GPUs, seconds."),
    ] = 8.0


@dataclass(frozen=True, slots=True)
class Joining:
    """The options of jobs that join those that run."""

    running: Annotated[
        str | None,
        typer.Option(metavar="JOB[:COPIES],...", help="What runs on the GPU: add the JOBs to it."),
    ] = None
    running_sharing: Annotated[
        str | None,
        typer.Option(metavar="SHARING", help="How that shares the GPU; default: naive."),
    ] = None
    now: Annotated[
        bool, typer.Option("--now", help="Ask the driver how the GPU is shared at this moment.")
    ] = False
    device: Device = "0"
    hurt: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="By which what runs, or is protected, may slow, e.g. 0.1; default: 0.05.",
        ),
    ] = None

    def __bool__(self) -> bool:
        return self.running is not None or self.now

    def found(self, advisor: "Advisor") -> "Running | None":
        """What runs; None where nothing does.

        Raises:
            InvalidInput: What is said of it cannot be.
            GpuUnavailable: ``--now`` asks a GPU that does not answer.
        """
        names = [name for name in (self.running or "").split(",") if name]
        if not self.now:
            return advisor.running(names, self.running_sharing or "naive")
        from advisor.hardware.live_gpu import live_gpu

        live = live_gpu(self.device)
        found, refused = advisor.running_now(names, live)
        leave_out(*refused)
        if found is None:
            warn([f"nothing runs on GPU {live.index} now: all of it is free"])
        return found


_COPIES = ":auto"
_RUNS = {"running": "--running", "now": "--now"}
_NOT_OF_COPIES = (
    "job_file", "running", "now", "running_sharing", "hurt", "device", "gpus", "time_limit",
    "commands", "top", "details", "protect",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Asked:
    """All that the command line says; `given` is what it says itself, without defaults.

    Each check raises `InvalidInput` where an option would be ignored.
    """

    advisor: "Advisor"
    named: Named
    ranking: Ranking
    shown: Shown
    several: Gpus
    joining: Joining
    conditions: "Conditions"
    given: Given

    @property
    def device(self) -> str | None:
        """The GPU that commands are for; None: the command line does not say."""
        return self.joining.device if "device" in self.given else None

    @property
    def copied(self) -> str | None:
        """The job of which as many copies are asked for as pay; None: there is none."""
        names = self.named.jobs or ()
        return next((name.removesuffix(_COPIES) for name in names if name.endswith(_COPIES)), None)

    def check(self) -> None:
        """What can be answered at all; one GPU is as good as none said."""
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
        apart(given, "commands", ("as_json",), "shell lines of one plan are printed alone.")
        apart(given, "auto", _NOT_OF_COPIES, "how many copies pay is asked of one JOB on one GPU.")
        needs(given, "running_sharing", _RUNS)
        needs(given, "hurt", {**_RUNS, "protect": "--protect"})
        whole = "--details is of the ways to share one GPU from the start."
        apart(given, "details", ("commands", "gpus", *_RUNS), whole)
        why = "--now reads from the driver how the GPU is shared."
        apart(given, "now", ("running_sharing",), why)
        for runs in _RUNS:
            apart(given, runs, ("gpus", "time_limit"), "jobs join those that run on one GPU.")
            apart(given, runs, ("protect",), "what runs is protected already, by --hurt.")
        if "now" not in given:
            apart(given, "running", ("device",), "--device is for --now; --running says what runs.")
        apart(given, "protect", ("gpus",), "who shares with whom is not yet said there.")
        apart(given, "device", ("gpus",), "several GPUs are numbered from 0.")
        needs(given, "device", {"now": "--now", "commands": "--commands", "as_json": "--json"})

    def protecting(self, jobs: "Sequence[Job]") -> "tuple[Job, ...]":
        """`jobs`, of which those that are named are protected.

        Raises:
            InvalidInput: None of them has a name that is given, or the share is wrong.
        """
        from advisor.plan.rules import MOST_HURT

        names = self.ranking.protect or []
        for name in names:
            if name not in {job.name for job in jobs}:
                raise InvalidInput(f"--protect {name}: none of the JOBs is called so. Name one.")
        hurt = MOST_HURT if self.joining.hurt is None else self.joining.hurt
        return tuple(replace(job, protect=hurt) if job.name in names else job for job in jobs)

    def check_copies(self) -> None:
        """What can be answered of a number of copies."""
        copied = f"{self.copied}{_COPIES}"
        if len(self.named.jobs or ()) > 1:
            raise InvalidInput(f"{copied}: how many copies pay is asked of one JOB, without others")
        self._check_work(copied)

    def check_additions(self) -> None:
        """What can be answered of jobs that join others, which do run."""
        self._check_work("--now" if self.joining.now else "--running")
        for runs in _RUNS:
            why = "commands are of plans whose jobs start together."
            apart(self.given, runs, ("commands",), why)
            why = "what joins a GPU is judged by how much it slows what runs there."
            apart(self.given, runs, ("pessimistic",), f"{why} Allow less with --hurt.")

    def check_searched_whole(self, exact_jobs: int) -> None:
        """What can be answered of jobs whose plans are searched to the end."""
        if "time_limit" in self.given:
            raise InvalidInput(
                f"--time-limit is for more than {exact_jobs} jobs, or several --gpus: fewer jobs "
                f"on one GPU are searched to the end. Leave it out."
            )

    def _check_work(self, what: str) -> None:
        """See that `what` is asked for as it is chosen: by throughput, under one power cap."""
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
