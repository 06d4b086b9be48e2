"""Compares real runs of advice with predictions from profiles alone."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from advisor.errors import InvalidInput, OutsideInterval
from advisor.hardware.gpus import Gpu
from advisor.learn.scores import JobComparison, RunComparison, compare, profiles_of, sharing_of
from advisor.plan.rules import FitsMemory
from advisor.prediction.mix_steps import Predicts
from advisor.prediction.model import at_own_pace
from advisor.prediction.prediction import Interval
from advisor.report.scores import percent
from advisor.workload.profile import Profile
from advisor.workload.run import Run

if TYPE_CHECKING:
    from rich.table import Table

    from advisor.api import Advisor

    pass


@dataclass(frozen=True, slots=True)
class Validation:
    """Real runs of advice.

    Attributes:
        runs: All runs, those in which a tenant ended early included.
        comparisons: Comparisons of the runs that ran to the end.
        left_out: Plans that nothing here can run, in words.
        host: The host that was predicted for, in words.
        foreseen: Ids of runs that ran out of memory as predicted.
        estimated: By job, the key of the GPU whose profile was translated to predict it.
    """

    gpu: Gpu
    runs: tuple[Run, ...]
    comparisons: tuple[RunComparison, ...]
    left_out: tuple[str, ...] = ()
    host: str | None = None
    foreseen: tuple[str, ...] = ()
    estimated: Mapping[str, str] = field(default_factory=dict)


def compared(
    runs: Sequence[Run], profiles: Mapping[str, Profile], predictor: Predicts, gpu: Gpu
) -> tuple[RunComparison, ...]:
    """Each of `runs` predicted from its tenants' profiles, compared with the measurement.

    Profiles are converted to the cores that the run had, if it recorded their speed.

    A run in which a tenant ended early is skipped, and named by `check`; so is one that does not
    show pace.

    Raises:
        InvalidInput: A run is of another GPU, or a tenant has no profile.
    """
    if strangers := sorted({run.gpu for run in runs} - {gpu.key}):
        raise InvalidInput(
            f"the runs are of {', '.join(strangers)}, but {gpu.key} was asked for. "
            f"Use --gpu {strangers[0]}."
        )
    return tuple(
        compare(run, profiles_of(run, profiles, "core-adjusted"), predictor, gpu, {})
        for run in runs
        if run.shows_pace
    )


def foreseen_misfits(
    runs: Sequence[Run], profiles: Mapping[str, Profile], predictor: Predicts, gpu: Gpu
) -> tuple[str, ...]:
    """Ids of those of `runs` that ran out of memory, and were predicted not to fit."""
    fits = FitsMemory(gpu)
    misfits = [run for run in runs if any(t.outcome == "out-of-memory" for t in run.tenants)]
    return tuple(
        run.id
        for run in misfits
        if fits.broken(predictor.predict(profiles_of(run, profiles, "raw"), sharing_of(run)))
    )


def compared_as_ranked(
    runs: Sequence[Run], profiles: Mapping[str, Profile], advisor: "Advisor"
) -> tuple[RunComparison, ...]:
    """Each of `runs` compared with what `advisor` ranks plans by, here and now; else as `compared`.

    Jobs alone are those on its machine's host, since it reckons throughput so.
    """
    return tuple(_as_ranked(run, profiles, advisor) for run in runs if run.shows_pace)


def _as_ranked(run: Run, profiles: Mapping[str, Profile], advisor: "Advisor") -> RunComparison:
    measured = profiles_of(run, profiles, "raw")
    paced = [at_own_pace(each, advisor.own_paces) for each in measured]
    here = advisor.machine.profiles_here(paced, len(measured))
    found = compare(run, measured, advisor.predictor, advisor.card, {})
    jobs = zip(found.jobs, here, strict=True)
    return RunComparison(run, tuple(replace(job, alone_s=each.step_s) for job, each in jobs))


def check(validation: Validation) -> None:
    """Check that the advice came true.

    Raises:
        OutsideInterval: A measured step lies outside its interval, or a tenant ended early;
            the message lists all.
    """
    outside = [
        f"{comparison.run.id}: {job.job}: {_ms(job.measured_s)} ms, "
        f"not in {_interval_ms(job.predicted_s)} ms"
        for comparison in validation.comparisons
        for job in comparison.jobs
        if not job.inside
    ]
    ended = [
        f"{run.id}: {tenant.workload.name}: {tenant.outcome}, predicted to run"
        for run in validation.runs
        for tenant in run.tenants
        if tenant.outcome != "ok" and run.id not in validation.foreseen
    ]
    if outside or ended:
        listed = "\n  ".join(outside + ended)
        raise OutsideInterval(
            f"{len(outside) + len(ended)} outside what was predicted:\n  {listed}\n"
            f"The next `advisor fit --gpu {validation.gpu.key}` learns from these runs."
        )


def validation_table(validation: Validation) -> "Table":
    """What ``advisor validate`` prints: for each run its throughput, then each job's step."""
    from rich.box import SIMPLE

    from advisor.report.format import FittedTable

    notes = [f"Left out: {each}." for each in validation.left_out]
    notes += [f"Out of memory, as predicted: {each}." for each in validation.foreseen]
    estimated = validation.estimated.items()
    notes += [f"Estimated from a profile of {key}: {job}." for job, key in estimated]
    caption = "\n".join([*notes, *([validation.host] if validation.host else [])])
    table = FittedTable(
        box=SIMPLE, padding=(0, 1), pad_edge=False, show_edge=False, caption=caption or None
    )
    for heading in ("", "predicted", "90 % interval", "measured", "error", ""):
        table.add_column(heading, justify="right" if heading else "left")
    for each in validation.comparisons:
        table.add_row(*_throughput_cells(each), style="bold")
        for job in each.jobs:
            predicted, interval, measured, error = step_cells(job.predicted_s, job.measured_s)
            mark = "" if job.inside else "outside"
            table.add_row(f"  {job.job}", predicted, interval, f"{measured} ms", error, mark)
        table.add_section()
    return table


def _throughput_cells(run: RunComparison) -> tuple[str, ...]:
    if len(run.jobs) == 1:
        return ("serial",)
    predicted, measured = run.predicted_speedup, run.measured_speedup
    error = percent(predicted / measured - 1)
    return (run.run.sharing, f"{predicted:.2f}x", "", f"{measured:.2f}x", error)


def step_cells(predicted_s: Interval, measured_s: float) -> tuple[str, ...]:
    """Cells of a step: predicted, its interval, measured, and the error."""
    return (
        _ms(predicted_s.p50),
        _interval_ms(predicted_s),
        _ms(measured_s),
        percent(predicted_s.p50 / measured_s - 1),
    )


def sharing_word(comparison: RunComparison) -> str:
    """How the run shared; a job alone is how a serial plan runs."""
    return "serial" if len(comparison.jobs) == 1 else comparison.run.sharing


def validation_document(validation: Validation) -> dict[str, Any]:
    """What ``advisor validate --json`` prints."""
    return {
        "schema": 1,
        "gpu": validation.gpu.key,
        "host": validation.host,
        "estimated_from": ", ".join(sorted({*validation.estimated.values()})) or None,
        "estimated_profiles": dict(validation.estimated),
        "runs": [
            {
                "id": each.run.id,
                "sharing": sharing_word(each),
                "weighted_speedup": {
                    "predicted": each.predicted_speedup,
                    "measured": each.measured_speedup,
                },
                "jobs": [_job_document(job) for job in each.jobs],
            }
            for each in validation.comparisons
        ],
        "left_out": list(validation.left_out),
    }


def _job_document(job: JobComparison) -> dict[str, Any]:
    return {
        "job": job.job,
        "step_s": asdict(job.predicted_s),
        "measured_step_s": job.measured_s,
        "error": job.error,
        "inside": job.inside,
        "memory_mib": job.memory_mib,
        "measured_memory_mib": job.measured_memory_mib,
    }


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:,.2f}"


def _interval_ms(step_s: Interval) -> str:
    return f"{_ms(step_s.p05)} to {_ms(step_s.p95)}"
