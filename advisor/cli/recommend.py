"""Checks of the options of ``advisor recommend`` against each other."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from advisor.cli.options import (
    AUTO,
    AsJson,
    By,
    CapOrAuto,
    Device,
    Files,
    Given,
    GpuKey,
    Mlflow,
    Named,
    PowerCap,
    Top,
    apart,
    cap_w,
    given_in,
    grouped,
    mlflow_log,
    needs,
)
from advisor.cli.output import leave_out, show, show_found, show_json, show_text, warn
from advisor.errors import InvalidInput
from advisor.hardware import DEFAULT_GPU
from advisor.plan import MOST_GPUS, START_S

if TYPE_CHECKING:
    from rich.console import RenderableType

    from advisor.api import Advisor
    from advisor.plan.admission import Running
    from advisor.plan.rules import Conditions
    from advisor.plan.values import Standing
    from advisor.prediction.prediction import Level
    from advisor.workload.job import Job

    pass


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


@grouped
def recommend(
    context: typer.Context,
    named: Named,
    ranking: Ranking,
    shown: Shown,
    several: Gpus,
    joining: Joining,
    files: Files,
    as_json: AsJson = False,
    mlflow: Mlflow = None,
) -> None:
    """Rank the ways to share GPUs among the JOBs.

    Among the bundled ones where none is named. More than 8 jobs, or several GPUs: the best plan
    found in time. JOB:auto: how many copies of it fit, and how many pay. --running or --now: what
    may be added to what runs.
    """
    from advisor.workload.job import secrets_held

    log = mlflow_log(mlflow)
    advisor = files.advisor(ranking.gpu, cap_w(ranking.power_cap))
    answer = _answer(
        RecommendOptions(advisor, named, ranking, shown, several, joining, given_in(context))
    )
    warn(answer.standing.doubts)
    leave_out(*answer.refused)
    if as_json or shown.commands is not None:  # commands leave variables to whoever runs them
        warn(secrets_held(answer.jobs, variables=shown.commands is None))
    if shown.commands is not None:
        show_text(answer.commands(shown.commands))
    elif as_json:
        show_json(answer.document())
    else:
        show(answer.report())
    if log is not None:
        log.plans(answer.document())


def _no_commands(_rank: int) -> str:
    raise AssertionError("--commands is refused where no plan has any")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """An answer in each form in which it can be shown; `jobs` are those that its plans start."""

    standing: "Standing"
    report: "Callable[[], RenderableType]"
    document: Callable[[], dict[str, Any]]
    commands: Callable[[int], str] = _no_commands
    refused: tuple[str, ...] = ()
    jobs: "Sequence[Job]" = ()


def _answer(asked: RecommendOptions) -> _Answer:
    """The answer to one of four questions, depending on the options."""
    from advisor.plan.rules import EXACT_JOBS

    asked.check()
    if asked.copied is not None:
        asked.check_copies()
        return _of_copies(asked, asked.copied)
    jobs = asked.protecting(asked.named.chosen(asked.advisor, asked.several.gpus))
    if asked.joining and (running := asked.joining.found(asked.advisor)):
        asked.check_additions()
        return _of_additions(asked, running, jobs)
    if asked.several.gpus == 1 and len(jobs) <= EXACT_JOBS:
        asked.check_searched_whole(EXACT_JOBS)
        return _of_one_gpu(asked, jobs)
    return _of_fleet(asked, jobs)


def _of_one_gpu(asked: RecommendOptions, jobs: "Sequence[Job]") -> _Answer:
    from advisor.launch.commands import with_commands
    from advisor.report.recommendation import plan_commands, plans_report

    def document() -> dict[str, Any]:
        from advisor.report.documents import recommendation_document

        return recommendation_document(found, asked.shown.top)

    found = asked.advisor.recommend(
        jobs,
        asked.ranking.objective,
        conditions=asked.ranking.conditions,
        level=asked.ranking.level,
    )
    if asked.device is not None:
        found = with_commands(found, asked.device)
    return _Answer(
        standing=found.standing,
        report=lambda: plans_report(
            found, asked.shown.top if "top" in asked.given else None, details=asked.shown.details
        ),
        document=document,
        commands=lambda rank: plan_commands(found, rank),
        refused=found.refused_variants,
        jobs=jobs,
    )


def _of_copies(asked: RecommendOptions, name: str) -> _Answer:
    from advisor.report.copies import copies_document, copies_report

    job = asked.advisor.chosen_jobs([name])[0]
    found = asked.advisor.recommend_copies(job, asked.ranking.conditions, asked.ranking.level)
    return _Answer(
        standing=found.standing,
        report=lambda: copies_report(found, details=asked.shown.details),
        document=lambda: copies_document(found),
    )


def _of_fleet(asked: RecommendOptions, jobs: "Sequence[Job]") -> _Answer:
    from advisor.plan.objectives import FleetTerms
    from advisor.report.fleet import fleet_commands, fleet_document, fleet_report

    by = asked.ranking
    terms = FleetTerms(
        objective=by.objective, gpus=asked.several.gpus, limit_s=asked.several.time_limit,
        conditions=by.conditions, level=by.level,
    )  # fmt: skip
    found = asked.advisor.recommend_fleet(jobs, terms)
    return _Answer(
        standing=found.standing,
        report=lambda: fleet_report(found, details=asked.shown.details),
        document=lambda: fleet_document(found, asked.device),
        commands=lambda rank: fleet_commands(found, rank, asked.device),
        jobs=jobs,
    )


def _of_additions(asked: RecommendOptions, running: "Running", jobs: "Sequence[Job]") -> _Answer:
    from advisor.plan.admission import AdmissionLimits
    from advisor.report.copies import additions_document, additions_report

    hurt = {} if asked.joining.hurt is None else {"most_hurt": asked.joining.hurt}
    limits = AdmissionLimits(**hurt, conditions=asked.ranking.conditions)
    found = asked.advisor.admit(running, jobs, limits)
    return _Answer(
        standing=found.standing,
        report=lambda: additions_report(found, asked.shown.top),
        document=lambda: additions_document(found, asked.shown.top),
    )


_Names = Annotated[
    list[str],
    typer.Argument(
        metavar="JOB...",
        help="A job's name, with or without its batch size; or its profiles' names or files, "
        "one for each batch size.",
    ),
]
_Slices = Annotated[
    str | None,
    typer.Option(metavar="SLICES", help="MIG profiles, or whole; default: all there are."),
]


@grouped
def batch(
    *,
    names: _Names,
    on: _Slices = None,
    gpu: GpuKey = DEFAULT_GPU,
    power_cap: PowerCap = None,
    files: Files,
    as_json: AsJson = False,
) -> None:
    """The largest batch that each slice of a GPU holds.

    Measure the job at two batch sizes or more to learn the largest.
    """
    from advisor.report.copies import slice_batches_document, slice_batches_report

    found = files.advisor(gpu, power_cap).batches(names, on=on.split(",") if on else [])
    warn(found.standing.doubts)
    show_found(found, as_json, slice_batches_report, slice_batches_document)


_Job = Annotated[
    str,
    typer.Argument(help="What a trial trains: NAME, a profile's path, or a measured train.py."),
]
_Epochs = Annotated[float, typer.Option(metavar="N", help="Passes over the data of a trial.")]
_Steps = Annotated[
    float | None, typer.Option(metavar="N", help="Training steps of a trial instead.")
]
_Count = Annotated[
    int | None,
    typer.Option(metavar="N", help="Trials of the whole search; default: it goes on."),
]
_StartUp = Annotated[
    float,
    typer.Option(
        "--start-up", metavar="S",
        help="Seconds that the process of a trial takes to start; 0: it goes on with the next.",
    ),
]  # fmt: skip


@grouped
def trials(
    context: typer.Context,
    *,
    job: _Job,
    epochs: _Epochs = 1,
    steps: _Steps = None,
    count: _Count = None,
    start_up: _StartUp = START_S,
    memory_margin: MemoryMargin = 0.0,
    pessimistic: Pessimistic = False,
    gpu: GpuKey = DEFAULT_GPU,
    power_cap: PowerCap = None,
    details: Annotated[
        bool, typer.Option("--details", help="Every number of trials at once that was looked at.")
    ] = False,
    files: Files,
    as_json: AsJson = False,
) -> None:
    """How many trials of a search fit on a GPU, and pay.

    And how they share it. Each trial is a process of its own.
    """
    from advisor.plan.rules import Conditions
    from advisor.report.copies import trials_document, trials_report
    from advisor.workload.job import Job

    apart(given_in(context), "steps", ("epochs",), "both say how long a trial is.")
    _check_one_trial(job)
    advisor = files.advisor(gpu, power_cap)
    found = advisor.trials(
        Job(advisor.find_profile(job), epochs=epochs), steps=steps, count=count, start_s=start_up,
        conditions=Conditions(memory_margin=memory_margin),
        level="p95" if pessimistic else "p50",
    )  # fmt: skip
    warn(found.standing.doubts)
    show_found(found, as_json, lambda each: trials_report(each, details=details), trials_document)


def _check_one_trial(job: str) -> None:
    """Refuse copies and epochs behind a job's name, which a file's path may hold."""
    name = re.split("[:@]", job)[0]
    if name != job and not job.endswith((".json", ".py")):
        raise InvalidInput(
            f"{job}: JOB is one trial, and how many pay is the answer. Write {name}; --epochs N "
            f"says how long it trains, --count N how many trials the whole search has."
        )
