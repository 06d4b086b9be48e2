"""Commands that choose plans: ``advisor recommend``, ``trials`` and ``batch``."""

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
from advisor.cli.output import leave_out, show, show_answer, show_json, show_text, warn
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

    def running_jobs(self, advisor: "Advisor") -> "Running | None":
        """Return the running jobs; None if none runs."""
        names = [name for name in (self.running or "").split(",") if name]
        if not self.now:
            return advisor.running(names, self.running_sharing or "naive")
        from advisor.hardware.live_gpu import live_gpu

        live = live_gpu(self.device)
        running, refused = advisor.running_now(names, live)
        leave_out(*refused)
        if running is None:
            warn([f"no job runs on GPU {live.index} now"])
        return running


_COPIES = ":auto"
_RUNS = {"running": "--running", "now": "--now"}
_NOT_OF_COPIES = (
    "job_file", "running", "now", "running_sharing", "hurt", "device", "gpus", "time_limit",
    "commands", "top", "protect",
)  # fmt: skip
# Options that need one of others; options that exclude each other, and why.
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
class _Question:
    """All options of the command line; `given` holds those without defaults."""

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
        """Name of the job in ``JOB:auto``; None: no such job."""
        names = self.named.jobs or ()
        return next((name.removesuffix(_COPIES) for name in names if name.endswith(_COPIES)), None)

    def check(self) -> None:
        """Refuse options that would be ignored; ``--gpus 1`` equals no ``--gpus``."""
        from advisor.workload.job import check_protection

        rank, top = self.shown.commands, self.shown.top
        if rank is not None and "top" in self.given and rank > top:
            raise InvalidInput(
                f"--commands {rank} and --top {top} exclude each other: the rank exceeds the "
                f"number of plans."
            )
        given = {
            name: word for name, word in self.given.items()
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
        if self.joining.hurt is not None:
            check_protection("--hurt", self.joining.hurt)

    def check_by_throughput(self, what: str) -> None:
        """Refuse other objectives than throughput for `what`, and a choice of power caps."""
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
    given = given_in(context)
    answer = _answer(_Question(advisor, named, ranking, shown, several, joining, given))
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


def _answer(question: _Question) -> _Answer:
    """Answer one of four questions, depending on the options."""
    from advisor.plan.rules import EXACT_JOBS, MOST_HURT

    question.check()
    if question.copied is not None:
        return _answer_copies(question, question.copied)
    jobs, joining = question.named.chosen(question.advisor, question.several.gpus), question.joining
    protected = question.ranking.protect or []
    for name in protected:
        if name not in {job.name for job in jobs}:
            raise InvalidInput(f"--protect {name}: no JOB has that name. Name one of the JOBs.")
    hurt = MOST_HURT if joining.hurt is None else joining.hurt
    jobs = tuple(replace(job, protect=hurt) if job.name in protected else job for job in jobs)
    if (joining.running is not None or joining.now) and (
        running := joining.running_jobs(question.advisor)
    ):
        return _answer_additions(question, running, jobs)
    if question.several.gpus > 1 or len(jobs) > EXACT_JOBS:
        return _answer_fleet(question, jobs)
    if "time_limit" in question.given:
        raise InvalidInput(
            f"--time-limit is for more than {EXACT_JOBS} jobs or several --gpus: advisor compares "
            f"all plans of fewer jobs. Leave it out."
        )
    return _answer_one_gpu(question, jobs)


def _answer_one_gpu(question: _Question, jobs: "Sequence[Job]") -> _Answer:
    from advisor.launch.commands import with_commands
    from advisor.report.plan_tables import plan_commands, plans_report

    def document() -> dict[str, Any]:
        from advisor.report.recommendation import recommendation_document

        return recommendation_document(advised, shown.top)

    ranking, shown = question.ranking, question.shown
    advised = question.advisor.recommend(
        jobs, ranking.objective, conditions=ranking.conditions, level=ranking.level
    )
    if question.device is not None:
        advised = with_commands(advised, question.device)
    top = shown.top if "top" in question.given else None
    return _Answer(
        standing=advised.standing,
        report=lambda: plans_report(advised, top, details=shown.details),
        document=document,
        commands=lambda rank: plan_commands(advised, rank),
        refused=advised.refused_variants,
        jobs=jobs,
    )


def _answer_copies(question: _Question, name: str) -> _Answer:
    from advisor.report.copies import copies_document, copies_report

    if len(question.named.jobs or ()) > 1:
        raise InvalidInput(f"{name}{_COPIES}: expected one JOB. Leave the others out.")
    question.check_by_throughput(f"{name}{_COPIES}")
    ranking = question.ranking
    job = question.advisor.chosen_jobs([name])[0]
    copies = question.advisor.recommend_copies(job, ranking.conditions, ranking.level)
    return _Answer(
        standing=copies.standing,
        report=lambda: copies_report(copies, details=question.shown.details),
        document=lambda: copies_document(copies),
    )


def _answer_fleet(question: _Question, jobs: "Sequence[Job]") -> _Answer:
    from advisor.plan.objectives import FleetTerms
    from advisor.report.fleet import fleet_commands, fleet_document, fleet_report

    ranking, device = question.ranking, question.device
    terms = FleetTerms(
        objective=ranking.objective, gpus=question.several.gpus,
        limit_s=question.several.time_limit, conditions=ranking.conditions, level=ranking.level,
    )  # fmt: skip
    plan = question.advisor.recommend_fleet(jobs, terms)
    return _Answer(
        standing=plan.standing,
        report=lambda: fleet_report(plan, details=question.shown.details),
        document=lambda: fleet_document(plan, device),
        commands=lambda rank: fleet_commands(plan, rank, device),
        jobs=jobs,
    )


def _answer_additions(question: _Question, running: "Running", jobs: "Sequence[Job]") -> _Answer:
    from advisor.plan.admission import AdmissionLimits
    from advisor.report.copies import additions_document, additions_report

    joining, top = question.joining, question.shown.top
    question.check_by_throughput("--now" if joining.now else "--running")
    for runs in _RUNS:
        why = "commands are for plans whose jobs start together."
        apart(question.given, runs, ("commands",), why)
        why = "jobs join by how much they slow the running jobs. Allow less with --hurt."
        apart(question.given, runs, ("pessimistic",), why)
    hurt = {} if joining.hurt is None else {"most_hurt": joining.hurt}
    limits = AdmissionLimits(**hurt, conditions=question.ranking.conditions)
    additions = question.advisor.admit(running, jobs, limits)
    return _Answer(
        standing=additions.standing,
        report=lambda: additions_report(additions, top),
        document=lambda: additions_document(additions, top),
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

    batches = files.advisor(gpu, power_cap).batches(names, on=on.split(",") if on else [])
    warn(batches.standing.doubts)
    show_answer(batches, as_json, slice_batches_report, slice_batches_document)


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
    # A file's path may hold the signs that separate copies and epochs.
    name = re.split("[:@]", job)[0]
    if name != job and not job.endswith((".json", ".py")):
        raise InvalidInput(
            f"{job}: expected the job of one trial. Write {name}. Set its length by --epochs, the "
            f"number of trials by --count."
        )
    advisor = files.advisor(gpu, power_cap)
    search = advisor.trials(
        Job(advisor.find_profile(job), epochs=epochs), steps=steps, count=count, start_s=start_up,
        conditions=Conditions(memory_margin=memory_margin),
        level="p95" if pessimistic else "p50",
    )  # fmt: skip
    warn(search.standing.doubts)
    show_answer(
        search, as_json, lambda answer: trials_report(answer, details=details), trials_document
    )
