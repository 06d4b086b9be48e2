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
    bool, typer.Option("--pessimistic", help="Rank by the upper ends of the 90 % intervals.")
]
MemoryMargin = Annotated[
    float, typer.Option(metavar="SHARE", help="Leave this share of memory free, e.g. 0.1.")
]


@dataclass(frozen=True, slots=True)
class Ranking:
    """Options of the objective, and of what machine and user allow."""

    gpu: GpuKey = DEFAULT_GPU
    objective: By = "makespan"
    pessimistic: Pessimistic = False
    power_cap: CapOrAuto = None
    root: Annotated[
        bool,
        typer.Option(
            "--root/--no-root",
            help="Allow plans that need root: to switch MIG on and make instances.",
        ),
    ] = True
    memory_margin: MemoryMargin = 0.0
    protect: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Do not let sharing slow this job by more than --hurt; repeatable."
        ),
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
        bool, typer.Option("--details", help="Print all numbers, and how they were found.")
    ] = False
    commands: Annotated[
        int | None,
        typer.Option(
            metavar="RANK", min=1, help="Print only the shell commands of the plan of this rank."
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class Gpus:
    """Options of plans for several GPUs."""

    gpus: Annotated[
        int, typer.Option(metavar="N", min=1, max=MOST_GPUS, help="Plan for N equal GPUs.")
    ] = 1
    time_limit: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", help="End the search for many jobs or GPUs after this time."
        ),
    ] = 8.0


@dataclass(frozen=True, slots=True)
class Joining:
    """Options of jobs that join running ones."""

    running: Annotated[
        str | None,
        typer.Option(
            metavar="JOB[:COPIES],...",
            help="Add the JOBs to these jobs, which run on the GPU already.",
        ),
    ] = None
    running_sharing: Annotated[
        str | None,
        typer.Option(metavar="SHARING", help="How the running jobs share the GPU; default: naive."),
    ] = None
    now: Annotated[
        bool, typer.Option("--now", help="Ask the driver how the running jobs share the GPU now.")
    ] = False
    device: Device = "0"
    hurt: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Let steps of running or protected jobs become longer by this share at most, e.g. "
            "0.1 for 10 %; default: 0.05.",
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
            warn([f"no job runs on GPU {live.index} now"])
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
    ("commands", ("as_json",), "--commands prints only shell lines."),
    ("auto", tuple(_RUNS), "--running and --now need a number of copies, e.g. JOB:4."),
    ("auto", _NOT_OF_COPIES, "JOB:auto finds the number of copies of one JOB on one GPU."),
    ("details", ("commands", *_RUNS), "--details is for jobs that start together."),
    ("now", ("running_sharing",), "--now reads from the driver how the GPU is shared."),
    *((runs, ("gpus", "time_limit"), "the running jobs share one GPU.") for runs in _RUNS),
    *((runs, ("protect",), "--hurt protects the running jobs already.") for runs in _RUNS),
    ("protect", ("gpus",), "plans for several GPUs protect no job yet."),
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
                f"--commands {rank} and --top {top} exclude each other: the rank exceeds the "
                f"number of plans."
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
            apart(given, "running", ("device",), "--device is for --now.")
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
                raise InvalidInput(f"--protect {name}: no JOB has that name. Name one of the JOBs.")
        hurt = MOST_HURT if self.joining.hurt is None else self.joining.hurt
        return tuple(replace(job, protect=hurt) if job.name in names else job for job in jobs)

    def check_copies(self) -> None:
        """Check the options for a question about copies."""
        copied = f"{self.copied}{_COPIES}"
        if len(self.named.jobs or ()) > 1:
            raise InvalidInput(f"{copied}: expected one JOB. Leave the others out.")
        self._check_work(copied)

    def check_additions(self) -> None:
        """Check the options for jobs that join running ones."""
        self._check_work("--now" if self.joining.now else "--running")
        for runs in _RUNS:
            why = "commands are for plans whose jobs start together."
            apart(self.given, runs, ("commands",), why)
            why = "jobs join by how much they slow the running jobs."
            apart(self.given, runs, ("pessimistic",), f"{why} Allow less with --hurt.")

    def check_searched_whole(self, exact_jobs: int) -> None:
        """Check the options for jobs on one GPU, of which all plans are searched."""
        if "time_limit" in self.given:
            raise InvalidInput(
                f"--time-limit is for more than {exact_jobs} jobs or several --gpus: advisor "
                f"compares all plans of fewer jobs. Leave it out."
            )

    def _check_work(self, what: str) -> None:
        """Check that `what` is asked for by throughput and under one power cap."""
        if self.ranking.power_cap == AUTO:
            raise InvalidInput(
                f"--power-cap {AUTO} and {what} exclude each other: plans choose caps for jobs "
                f"that start together only. Write watts."
            )
        if "objective" in self.given and self.ranking.objective != "throughput":
            raise InvalidInput(
                f"--objective {self.ranking.objective} and {what} exclude each other: advisor "
                f"chooses copies and additions by throughput. Leave --objective out."
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

    Without a JOB, advisor ranks plans for bundled examples. For more than 8 jobs or several GPUs it
    prints the best plan found within --time-limit. JOB:auto prints how many copies of the JOB are
    worthwhile. --running and --now print which JOBs may join the running ones.
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
    from advisor.report.plan_tables import plan_commands, plans_report

    def document() -> dict[str, Any]:
        from advisor.report.recommendation import recommendation_document

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
        help="A job's name without its batch size, or the names or files of its profiles, one for "
        "each batch size.",
    ),
]
_Slices = Annotated[
    str | None,
    typer.Option(
        metavar="SLICES", help="Use only these MIG profiles, or whole; default: all of the GPU."
    ),
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
    """Print the largest batch that fits each slice of a GPU.

    The JOB needs profiles at two batch sizes or more.
    """
    from advisor.report.copies import slice_batches_document, slice_batches_report

    found = files.advisor(gpu, power_cap).batches(names, on=on.split(",") if on else [])
    warn(found.standing.doubts)
    show_found(found, as_json, slice_batches_report, slice_batches_document)


_Job = Annotated[
    str,
    typer.Argument(
        metavar="JOB",
        help="The job of one trial: a profile's name or file, or a measured train.py.",
    ),
]
_Epochs = Annotated[float, typer.Option(metavar="N", help="Train each trial for N epochs.")]
_Steps = Annotated[
    float | None, typer.Option(metavar="N", help="Train each trial for N steps instead.")
]
_Count = Annotated[
    int | None,
    typer.Option(metavar="N", help="Trials of the whole search; default: no end."),
]
_StartUp = Annotated[
    float,
    typer.Option(
        "--start-up", metavar="SECONDS",
        help="Start-up time of a trial's process; 0: one process runs all trials.",
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
        bool,
        typer.Option("--details", help="Print all numbers of trials at once that were compared."),
    ] = False,
    files: Files,
    as_json: AsJson = False,
) -> None:
    """Print how many trials of a search to run at once.

    Each trial is a process of its own; the answer includes how they share the GPU.
    """
    from advisor.plan.rules import Conditions
    from advisor.report.copies import trials_document, trials_report
    from advisor.workload.job import Job

    apart(given_in(context), "steps", ("epochs",), "both set the length of a trial.")
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
            f"{job}: expected the job of one trial. Write {name}. Set its length by --epochs, the "
            f"number of trials by --count."
        )
