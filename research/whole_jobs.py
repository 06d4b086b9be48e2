"""Real runs of whole jobs beside their simulation from the jobs' profiles alone."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean

import numpy as np

from advisor.plan.forecast import Mixes, forecast
from advisor.prediction.host import profiles_on_host
from advisor.prediction.mix_steps import Predicts
from advisor.prediction.prediction import Interval
from advisor.report.format import percent
from advisor.sharing import SHARED_MODES, Mode, Sharing, parse_sharing
from advisor.workload.job import Job
from advisor.workload.profile import Profile
from advisor.workload.run import Run
from research.files import BENCHMARKS
from research.regret import CHOOSERS, Regret, regret_of
from research.score_tables import MODE_WORDS, REGRET_HEADINGS, RULE_WORDS, markdown, regret_rows
from research.steps import joined

RECOMMENDED, SIMULATED = "recommended", "simulated"
_MODES: tuple[Mode, ...] = ("serial", *SHARED_MODES, "phases")
_WORDS = {
    **MODE_WORDS,
    **RULE_WORDS,
    "serial": "one after another",
    "phases": "in phases",
    RECOMMENDED: "recommended beforehand",
    SIMULATED: "shortest simulated of those run",
}
_HEADINGS = (
    "sharing",
    "runs",
    "jobs",
    "makespan, mean error",
    "worst",
    "completion times, mean error",
    "P90",
    "in 90 % interval",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedRun:
    """One run of whole jobs; columns have shape (jobs,).

    Attributes:
        work: Of each job its workload and its steps.
        predicted_s: When each job ends, simulated.
        predicted_makespan_s: When the last one does.
        measured_s: When each ended.
        makespan_s: When the last one did.
    """

    run: str
    sharing: Sharing
    work: tuple[tuple[str, int], ...]
    predicted_s: tuple[Interval, ...]
    predicted_makespan_s: Interval
    measured_s: tuple[float, ...]
    makespan_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """Errors over the runs of one mode, as shares.

    Attributes:
        makespan: Mean absolute error of when the last job ends.
        worst_makespan: The largest.
        completion: Mean absolute error of when each job ends.
        p90: What one in ten of these exceeds.
        inside: Share of jobs that ended within their 90 % intervals.
    """

    runs: int
    jobs: int
    makespan: float
    worst_makespan: float
    completion: float
    p90: float
    inside: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeJobs:
    """Errors by mode, and what each way to choose gives away of the best speed of a job set."""

    modes: Mapping[str, Finished]
    sets: int
    rules: Mapping[str, Regret]


def simulated_runs(
    runs: Iterable[Run], profiles: Mapping[str, Profile], predictor: Predicts
) -> tuple[SimulatedRun, ...]:
    """Simulate those of `runs` in which whole jobs with profiles ran to their ends."""
    results = []
    for run in runs:
        done = run.completion
        profiled = all(tenant.workload.name in profiles for tenant in run.tenants)
        if done is None or not run.ok or not profiled:
            continue
        sharing, alone = parse_sharing(run.sharing), profiles_on_host(run, profiles)
        jobs = [job_of_steps(*pair) for pair in zip(alone, done.steps, strict=True)]
        simulated = forecast(Mixes(jobs, predictor), sharing)
        assert simulated.ends_s is not None  # the jobs' lengths are known
        assert simulated.makespan_interval_s is not None
        results.append(
            SimulatedRun(
                run=run.id,
                sharing=sharing,
                work=tuple(zip(run.names, done.steps, strict=True)),
                predicted_s=simulated.ends_s,
                predicted_makespan_s=simulated.makespan_interval_s,
                measured_s=tuple(end_s for end_s in done.ended_s if end_s is not None),
                makespan_s=done.makespan_s,
            )
        )
    return tuple(results)


def job_of_steps(profile: Profile, steps: int) -> Job:
    """Return a job that does so many steps of `profile`."""
    workload = profile.workload
    shortened = replace(workload, examples_per_epoch=steps * workload.batch)
    return Job(replace(profile, workload=shortened))


def whole_jobs(
    runs: Sequence[SimulatedRun], profiles: Mapping[str, Profile], folder: Path = BENCHMARKS
) -> WholeJobs | None:
    """Summarise `runs`; None without any.

    Args:
        runs: In any mode.
        profiles: Solo profiles by name.
        folder: Contains the recommendations that were written before anything was run.
    """
    if not runs:
        return None
    sets = _panels(runs)
    lost = regrets(sets, profiles, _recommended_runs(folder))
    by_mode = {mode: [run for run in runs if run.sharing.mode == mode] for mode in _MODES}
    return WholeJobs(
        modes={mode: finished(of_mode) for mode, of_mode in by_mode.items() if of_mode},
        sets=len(sets),
        rules={name: regret_of(shares) for name, shares in lost.items()},
    )


def finished(runs: Sequence[SimulatedRun]) -> Finished:
    """Return the errors over `runs`, of which there is at least one."""
    pairs = [pair for run in runs for pair in zip(run.predicted_s, run.measured_s, strict=True)]
    ends = [abs(predicted.p50 / measured_s - 1) for predicted, measured_s in pairs]
    makespans = [abs(run.predicted_makespan_s.p50 / run.makespan_s - 1) for run in runs]
    return Finished(
        runs=len(runs),
        jobs=len(ends),
        makespan=mean(makespans),
        worst_makespan=max(makespans),
        completion=mean(ends),
        p90=float(np.quantile(ends, 0.9)),
        inside=mean(predicted.contains(measured_s) for predicted, measured_s in pairs),
    )


def _panels(runs: Iterable[SimulatedRun]) -> list[list[SimulatedRun]]:
    """Return the runs of each job set that ran in several ways, one after another among them."""
    sets: dict[object, list[SimulatedRun]] = {}
    for run in runs:
        sets.setdefault(run.work, []).append(run)
    return [ways for ways in sets.values() if any(run.sharing.mode == "serial" for run in ways)]


def regrets(
    sets: Iterable[Sequence[SimulatedRun]],
    profiles: Mapping[str, Profile],
    recommended: Collection[str] = (),
) -> dict[str, list[float]]:
    """Return the share of the best speed that each way to choose gives away, set by set."""
    lost: dict[str, list[float]] = {name: [] for name in (RECOMMENDED, SIMULATED, *CHOOSERS)}
    for panel in sets:
        best_s = min(run.makespan_s for run in panel)
        jobs = tuple(profiles[name] for name, _ in panel[0].work)
        for name, shares in lost.items():
            if name == RECOMMENDED:
                chosen = [run for run in panel if run.run in recommended]
            elif name == SIMULATED:
                chosen = [min(panel, key=lambda run: run.predicted_makespan_s.p50)]
            else:
                sharing = CHOOSERS[name](jobs, [run.sharing for run in panel])
                chosen = [run for run in panel if run.sharing == sharing]
            shares += [1 - best_s / run.makespan_s for run in chosen[:1]]
    return lost


def _recommended_runs(folder: Path) -> frozenset[str]:
    documents = [json.loads(f.read_text()) for f in folder.glob("completion-*/recommended.json")]
    return frozenset(entry["run"] for document in documents for entry in document["sets"])


def whole_jobs_section(score: WholeJobs | None) -> str:
    """Return the tables in Markdown; empty if no whole jobs were run."""
    if score is None:
        return ""
    rows = [
        (
            _WORDS[mode],
            str(done.runs),
            str(done.jobs),
            percent(done.makespan),
            percent(done.worst_makespan),
            percent(done.completion),
            percent(done.p90),
            percent(done.inside),
        )
        for mode, done in score.modes.items()
    ]
    parts = [
        "## Whole jobs, from the first step to the last",
        "Each job had its own number of steps and left when it had done them; we compare when. The "
        "simulator was given the jobs' profiles as on the cores that they had, and their steps, "
        "but no time that was measured of them together. Neither side includes the start of "
        "processes and loading. No model was fitted to these runs.",
        markdown(_HEADINGS, rows),
    ]
    if score.sets:
        parts += [
            f"{score.sets} job sets ran in several ways that were fixed before anything was "
            "predicted. Regret is the share of the speed of the fastest that a choice gives away.",
            markdown(REGRET_HEADINGS, regret_rows(score.rules, _WORDS)),
        ]
    return joined(*parts)
