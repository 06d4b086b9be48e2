"""Groups of options of ``advisor recommend`` alone."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from advisor.cli.options import AUTO, By, CapOrAuto, Device, GpuKey, Top
from advisor.cli.output import leave_out, warn
from advisor.hardware import DEFAULT_GPU
from advisor.plan import MOST_GPUS

if TYPE_CHECKING:
    from advisor.api import Advisor
    from advisor.plan.rules import Conditions
    from advisor.plan.running_jobs import Running
    from advisor.prediction.interval import Level


Pessimistic = Annotated[
    bool, typer.Option("--pessimistic", help="Rank by the upper ends of the ranges.")
]
MemoryMargin = Annotated[
    float, typer.Option(metavar="SHARE", help="Share of memory to leave free, e.g. 0.1.")
]


@dataclass(frozen=True, slots=True)
class Ranking:
    """Options of the objective, and of what machine and user allow."""

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
        typer.Option(metavar="NAME", help="A job that sharing must not slow by more than --hurt."),
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
    """Options of which plans are shown; `commands` is the rank of a plan."""

    top: Top = 5
    details: Annotated[
        bool, typer.Option("--details", help="All that was found, in full, and how.")
    ] = False
    commands: Annotated[
        int | None,
        typer.Option(metavar="RANK", min=1, help="Print only the shell commands of this plan."),
    ] = None


@dataclass(frozen=True, slots=True)
class Gpus:
    """Options of plans for several GPUs."""

    gpus: Annotated[
        int, typer.Option(min=1, max=MOST_GPUS, help="How many equal GPUs there are.")
    ] = 1
    time_limit: Annotated[
        float,
        typer.Option(metavar="S", help="Seconds that a search for many jobs or GPUs may take."),
    ] = 8.0


@dataclass(frozen=True, slots=True)
class Joining:
    """Options of jobs that join running ones."""

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
            help="How much longer steps of running or protected jobs may take, as a share: 0.1 "
            "is 10 %; default: 0.05.",
        ),
    ] = None

    def __bool__(self) -> bool:
        return self.running is not None or self.now

    def found(self, advisor: "Advisor") -> "Running | None":
        """The running jobs; None where nothing runs.

        Raises:
            InvalidInput: The options contradict each other or the driver.
            GpuUnavailable: ``--now`` is given and the GPU does not answer.
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
