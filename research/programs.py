"""Compares public programs and workloads of the zoo, timed by their own prints, with predictions.

``benchmarks/programs/measure.py`` made the profiles on a host and ran the mixes on it, so the
intervals are those of the profiles' own host.

    python -m research.programs RESULTS.jsonl.gz ...
"""

import gzip
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import mean, median
from typing import Any

from advisor.hardware.gpus import gpu
from advisor.prediction.model import load_model
from advisor.prediction.prediction import Interval
from advisor.prediction.predictor import Predictor
from advisor.report.format import percent
from advisor.sharing import SHARED_MODES, Mode, parse_sharing
from advisor.sharing.groups import together
from advisor.workload.profile import Moment, Profile
from advisor.workload.profile_checks import averaged
from advisor.workload.store import model_path, parse_profile
from research.files import BENCHMARKS
from research.score_tables import MODE_HEADINGS, MODE_WORDS, markdown

RESULTS = BENCHMARKS / "programs" / "results"

_HEADINGS = (
    "jobs",
    "sharing",
    "steps",
    "step, MAPE",
    "median",
    "slowdown, MAPE",
    "profile, alone",
    "repeat, alone",
    "repeat, shared",
    "in 90 % interval",
    "p95/p05, median",
)
_AGAIN = "/again"

# A printed interval this many times as long as most, and seldom, holds something that is no step,
# e.g. a validation: those of steps alone differ by less, also between slices of the GPU. What comes
# more often than once in so many steps is a part of a round, as in profiles.
_PAUSE, _SELDOM = 3.0, 20
_LEAST_INTERVALS, _LEAST_S = 3, 10.0  # one of these: a long interval is a mean of many steps


@dataclass(frozen=True, slots=True, kw_only=True)
class PrintedStep:
    """A step of one job in one run with others, by its own prints.

    Attributes:
        kind: ``"programs"`` or ``"zoo"``.
        alone_s: Its printed step alone on the same host, the mean of two runs if it ran twice.
        alone_differs: How far these two differ; None of one run.
        profiled_s: Its step alone by its profile.
        again_s: Its printed step in a second run of the mix; None without one.
    """

    job: str
    kind: str
    mode: Mode
    measured_s: float
    alone_s: float
    alone_differs: float | None
    profiled_s: float
    again_s: float | None
    predicted_s: Interval
    predicted_slowdown: float

    @property
    def error(self) -> float:
        """Predicted over measured step, less 1."""
        return self.predicted_s.p50 / self.measured_s - 1

    @property
    def slowdown_error(self) -> float:
        """Predicted over measured slowdown, less 1."""
        return self.predicted_slowdown / (self.measured_s / self.alone_s) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PrintedErrors:
    """Errors of some steps.

    Attributes:
        mape: Mean absolute error of the step, and `median` the median one.
        slowdown_mape: Mean absolute error of the slowdown against the printed step alone.
        alone: Mean difference of a step alone by its profile and by its prints.
        alone_twice: Mean difference of it by the prints of two runs; None if none ran twice.
        together: Mean difference of a step in two runs of a mix; None if none ran twice.
        width: Median of p95 over p05.
    """

    kind: str
    mode: str
    steps: int
    mape: float
    median: float
    slowdown_mape: float
    alone: float
    alone_twice: float | None
    together: float | None
    inside: float
    width: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileCost:
    """How profiling went on a host: `made` of `tried`, and the median seconds of those made."""

    kind: str
    tried: int
    made: int
    seconds: float


def printed_step_s(stamps: Sequence[Sequence[float]], window: tuple[float, float]) -> float | None:
    """Return the seconds of a step in the window, without pauses; None if it printed too little.

    Args:
        stamps: Seconds and steps so far, shape (stamps, 2). The count may begin again: what comes
            between two epochs is a pause.
        window: Its first and last second.
    """
    inside = [stamp for stamp in stamps if window[0] <= stamp[0] <= window[1]]
    intervals = [
        (later - earlier, after - before)
        for (earlier, before), (later, after) in pairwise(inside)
        if after > before
    ]
    if not intervals or (
        len(intervals) < _LEAST_INTERVALS and sum(seconds for seconds, _ in intervals) < _LEAST_S
    ):
        return None
    usual_s = median(seconds / steps for seconds, steps in intervals)
    kept = [(s, steps) for s, steps in intervals if s / steps <= _PAUSE * usual_s]
    all_steps = sum(steps for _, steps in intervals)
    if (len(intervals) - len(kept)) * _SELDOM > all_steps:
        kept = intervals
    return sum(seconds for seconds, _ in kept) / sum(steps for _, steps in kept)


def results_in(file: Path) -> dict[str, dict[str, Any]]:
    """Return the results of one host by their ids."""
    with (gzip.open if file.suffix == ".gz" else open)(file, "rt") as lines:
        return {result["id"]: result for result in map(json.loads, lines)}


def _profiles(results: dict[str, dict[str, Any]]) -> dict[str, Profile]:
    made = {key: result.get("profile") for key, result in results.items()}
    return {
        key.removeprefix("profile/"): parse_profile(json.dumps(profile).encode(), key)
        for key, profile in made.items()
        if key.startswith("profile/") and profile
    }


def _kind(profile: Profile) -> str:
    return "programs" if profile.workload.source == "script" else "zoo"


def with_moment(profile: Profile, step_s: float) -> Profile:
    """Return `profile` with a run alone as a second moment, of which its printed step is known."""
    host_s, slower = profile.host_s, step_s / profile.step_s
    paced_by_host = host_s is not None and host_s >= (profile.gpu_s or 0.0)
    again_s = host_s * slower if host_s is not None and paced_by_host else host_s
    return averaged(
        profile,
        [
            Moment(date="", step_s=profile.step_s, host_s=host_s),
            Moment(date="", step_s=step_s, host_s=again_s),
        ],
    )


def printed_steps(
    results: dict[str, dict[str, Any]], *, two_moments: bool = False
) -> list[PrintedStep]:
    """Return each job's step in each run whose jobs all have a profile and ran to its end.

    With `two_moments`, predictions count the first run alone, too.
    """
    profiles = _profiles(results)
    alone_s = {name: alone_steps_s(results, name) for name in profiles}
    for name, steps_s in alone_s.items() if two_moments else ():
        profiles[name] = with_moment(profiles[name], steps_s[0]) if steps_s else profiles[name]
    steps = []
    for key, run in results.items():
        if not key.startswith("mix/") or "jobs" not in run:
            continue
        names = [job["name"] for job in run["jobs"]]
        sharing = together(parse_sharing(run["sharing"]))
        ended = any(job["exit"] is not None for job in run["jobs"])
        if sharing is None or ended or not profiles.keys() >= set(names):
            continue
        mix = [profiles[name] for name in names]
        predictor = Predictor(gpu(mix[0].gpu), load_model(model_path())).on_known_host()
        predicted = predictor.predict(mix, sharing).jobs
        measured_s, again_s = run_steps_s(run), run_steps_s(results.get(key + _AGAIN, {}))
        for profile, job, name in zip(mix, predicted, names, strict=True):
            in_mix_s, each_s = measured_s[name], alone_s[name]
            if in_mix_s is not None and each_s:
                differs = abs(each_s[1] / each_s[0] - 1) if len(each_s) > 1 else None
                steps.append(
                    PrintedStep(
                        job=name,
                        kind=_kind(profile),
                        mode=run["mode"],
                        measured_s=in_mix_s,
                        alone_s=mean(each_s),
                        alone_differs=differs,
                        profiled_s=profile.step_s,
                        again_s=again_s.get(name),
                        predicted_s=job.step_s,
                        predicted_slowdown=job.slowdown,
                    )
                )
    return steps


def alone_steps_s(results: dict[str, dict[str, Any]], name: str) -> list[float]:
    """Return the printed step of a job in each run alone that has one, shape (runs,)."""
    runs = (results.get(f"alone/{name}{again}", {}) for again in ("", _AGAIN))
    return [step_s for run in runs if (step_s := run_steps_s(run).get(name)) is not None]


def run_steps_s(run: Mapping[str, Any]) -> dict[str, float | None]:
    """Return the printed step of each job of a run, or of one alone."""
    return {
        job["name"]: printed_step_s(job["stamps"], run["window"]) for job in run.get("jobs", ())
    }


def program_scores(steps: Sequence[PrintedStep]) -> tuple[PrintedErrors, ...]:
    """Return the errors of programs, then of the zoo: in each mode, then in all."""
    groups = {
        (kind, word): [step for step in steps if step.kind == kind and step.mode in modes]
        for kind in ("programs", "zoo")
        for word, modes in (
            *((MODE_WORDS[mode], (mode,)) for mode in SHARED_MODES),
            ("all", SHARED_MODES),
        )
    }
    return tuple(_errors(kind, word, group) for (kind, word), group in groups.items() if group)


def _errors(kind: str, mode: str, steps: Sequence[PrintedStep]) -> PrintedErrors:
    twice = [abs(step.again_s / step.measured_s - 1) for step in steps if step.again_s]
    alone_twice = [step.alone_differs for step in steps if step.alone_differs is not None]
    return PrintedErrors(
        kind=kind,
        mode=mode,
        steps=len(steps),
        mape=mean(abs(step.error) for step in steps),
        median=median(abs(step.error) for step in steps),
        slowdown_mape=mean(abs(step.slowdown_error) for step in steps),
        alone=mean(abs(step.profiled_s / step.alone_s - 1) for step in steps),
        alone_twice=mean(alone_twice) if alone_twice else None,
        together=mean(twice) if twice else None,
        inside=mean(step.predicted_s.contains(step.measured_s) for step in steps),
        width=median(step.predicted_s.p95 / step.predicted_s.p05 for step in steps),
    )


def profile_costs(results: dict[str, dict[str, Any]]) -> tuple[ProfileCost, ...]:
    """Return how profiling went, for programs and for the zoo."""
    tried = [result for key, result in results.items() if key.startswith("profile/")]
    costs = []
    for kind in ("programs", "zoo"):
        group = [each for each in tried if each.get("kind") == kind]
        made = [each["seconds"] for each in group if each["profile"]]
        if made:
            costs.append(
                ProfileCost(kind=kind, tried=len(group), made=len(made), seconds=median(made))
            )
    return tuple(costs)


def program_errors() -> tuple[PrintedErrors, ...]:
    """Return the errors on all hosts whose results are kept."""
    hosts = map(results_in, sorted(RESULTS.glob("*.jsonl.gz")))
    return program_scores([step for results in hosts for step in printed_steps(results)])


def programs_table(scores: Iterable[PrintedErrors]) -> str:
    """Return the table in Markdown."""
    return markdown(
        _HEADINGS,
        [
            (
                row.kind,
                MODE_HEADINGS.get(row.mode, row.mode),
                str(row.steps),
                percent(row.mape),
                percent(row.median),
                percent(row.slowdown_mape),
                percent(row.alone),
                percent(row.alone_twice),
                percent(row.together),
                percent(row.inside),
                f"{row.width:.2f}",
            )
            for row in scores
        ],
    )


def each_step_table(steps: Iterable[PrintedStep]) -> str:
    """Return a table in Markdown of what was predicted and measured in each run, in ms a step."""
    headings = (
        "job",
        "mode",
        "alone, printed",
        "alone, profile",
        "together, printed",
        "together, predicted",
        "slowdown, printed",
        "slowdown, predicted",
    )
    return markdown(
        headings,
        [
            (
                step.job,
                MODE_WORDS[step.mode],
                f"{1e3 * step.alone_s:.2f}",
                f"{1e3 * step.profiled_s:.2f}",
                f"{1e3 * step.measured_s:.2f}",
                "{:.2f} ({:.2f}-{:.2f})".format(
                    *(
                        1e3 * each
                        for each in (
                            step.predicted_s.p50,
                            step.predicted_s.p05,
                            step.predicted_s.p95,
                        )
                    )
                ),
                f"{step.measured_s / step.alone_s:.2f}",
                f"{step.predicted_slowdown:.2f}",
            )
            for step in sorted(steps, key=lambda step: (step.kind, step.job, step.mode))
        ],
    )


def main(files: Sequence[str]) -> None:
    """Print the tables of the results of some hosts."""
    hosts = [results_in(Path(file)) for file in files]
    steps = [step for results in hosts for step in printed_steps(results)]
    for cost in (cost for results in hosts for cost in profile_costs(results)):
        print(f"{cost.kind}: {cost.made} of {cost.tried} profiled, {cost.seconds:.0f} s each")
    twice = [step for results in hosts for step in printed_steps(results, two_moments=True)]
    tables = map(programs_table, map(program_scores, (steps, twice)))
    print(
        next(tables),
        "With the first run alone as a second moment:",
        next(tables),
        each_step_table(steps),
        sep="\n\n",
    )


if __name__ == "__main__":
    main(sys.argv[1:] or sorted(map(str, RESULTS.glob("*.jsonl.gz"))))
