"""All figures in README.md, docs/ and profiles/: worked out from the data, written and compared.

``research/figures.json`` holds them. Errors and all that is called a share are 0 to 1, throughput
is the sum of solo over shared step times, and None means not measured.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from advisor.files.reading import read_bytes
from advisor.files.records import parse_record
from advisor.hardware.gpus import Gpu
from advisor.learn.fit import fit
from advisor.learn.observations import MeasuredGpu, ReplayCache
from advisor.learn.scores import compare, profiles_of
from advisor.learn.surrogate_fit import with_surrogate
from advisor.prediction.predictor import Predictor
from advisor.workload.run import Run
from research.bare import BareScores, bare_scores, selections
from research.choices import (
    Advice,
    Recommended,
    advice_score,
    recommended,
)
from research.classes import ClassLeftOut, classes_left_out
from research.constants import Constant, chosen_constants
from research.coverage import CoverageGroup, coverage_groups
from research.data_card import DataFigures, data_figures
from research.evaluate import evaluate, of_pace
from research.files import measured, rounded
from research.gpu_left_out import GpuLeftOut, gpus_left_out
from research.lacking import Lacking, lacking_scores
from research.memory import MemoryScore, memory_score
from research.pairs import PairScore, pair_scores
from research.peers import with_kace
from research.power import PowerRow, power_score
from research.programs import PrintedErrors, program_errors
from research.scoreboard import Scores, scores_of
from research.scripts import ScriptErrors, script_scores
from research.steps import (
    GroupErrors,
    OtherHost,
    RepeatSummary,
    errors_by_busy_share,
    errors_by_family,
    other_hosts,
    steadiness,
)
from research.whole_jobs import WholeJobs, simulated_runs, whole_jobs

# A figure has moved if it differs by more: 0.3 points of a share, 0.3 % of anything else.
TOLERANCE = 0.003
# More digits than any document shows, and far above what the order of a sum changes.
_FORM = ".6g"
_UNITS = ("_s", "_mib", "_w", "_j")
_NOTHING = "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """All figures.

    Attributes:
        data: Counts of what was measured.
        scores: Errors of steps, each family predicted without it.
        elsewhere: Real runs of the same jobs on two hosts.
        families: Errors of steps by family.
        busy: The same by GPU-busy share of a job alone.
        classes: Errors of steps if a whole class of families is left out.
        lacking: Errors for profiles that lack a part.
        bare: Errors and choices for profiles without a trace.
        coverage: Steps inside their 90 % intervals in every large group.
        constants: Constants chosen while errors of the scored runs were seen.
        left_out: Errors on a GPU by models that saw no run on it.
        recommended: Recommendations written down beforehand.
        first: The plan that `recommend` puts first, for job sets that ran in several ways; None:
            not worked out.
        whole_jobs: Jobs run from the first step to the last.
        advice: Runs of job sets under several plans.
        scripts: Mixes of training scripts.
        pairs: Choices between two ways to share, by real runs of both.
        programs: Mixes of public programs and of the zoo, timed by their own prints.
        recommendation: Output of ``advisor recommend`` on 100 columns, line by line.
    """

    schema: Literal[4] = 4
    data: DataFigures
    scores: Scores
    elsewhere: tuple[OtherHost, ...]
    families: tuple[GroupErrors, ...]
    busy: tuple[GroupErrors, ...]
    classes: tuple[ClassLeftOut, ...]
    lacking: tuple[Lacking, ...]
    bare: BareScores
    coverage: tuple[CoverageGroup, ...]
    constants: tuple[Constant, ...]
    steadiness: RepeatSummary
    left_out: tuple[GpuLeftOut, ...]
    recommended: tuple[Recommended, ...]
    whole_jobs: WholeJobs | None
    memory: MemoryScore
    power: tuple[PowerRow, ...]
    advice: Advice
    scripts: tuple[ScriptErrors, ...]
    pairs: tuple[PairScore, ...]
    programs: tuple[PrintedErrors, ...]
    recommendation: tuple[str, ...]


def figures_of(
    folder: Path, gpu: Gpu, processes: int = 1, recommendation: tuple[str, ...] = ()
) -> Figures:
    """Work out all figures from the profiles and runs in `folder`, over so many processes."""
    profiles, runs = measured(folder)
    playback = ReplayCache()
    taught = MeasuredGpu(gpu, profiles, runs_of_other_sets(runs))
    all_profiles = {gpu: list(profiles.values())}
    model = with_surrogate(fit([taught], playback), all_profiles, processes=processes)
    predictor = Predictor(gpu, model, replay=playback.play)
    evaluation = with_kace(evaluate(profiles, runs, gpu, processes, playback))
    advice = [
        compare(run, profiles_of(run, profiles), predictor)
        for run in of_pace(runs)
        if run.purpose == "validation" and run.shows_pace
    ]
    return Figures(
        data=data_figures(evaluation.chosen),
        scores=scores_of(evaluation),
        elsewhere=other_hosts(evaluation),
        families=errors_by_family(evaluation),
        busy=errors_by_busy_share(evaluation),
        classes=classes_left_out(evaluation, playback, processes),
        lacking=lacking_scores(evaluation, processes),
        bare=bare_scores(selections(folder), evaluation.models, processes),
        coverage=coverage_groups(evaluation),
        constants=chosen_constants(),
        steadiness=steadiness(evaluation.chosen.repeats),
        left_out=gpus_left_out(folder, evaluation.models, playback, processes),
        recommended=recommended(evaluation),
        whole_jobs=whole_jobs(simulated_runs(runs, profiles, predictor.on_known_host()), profiles),
        memory=memory_score(profiles, runs, gpu),
        power=power_score(evaluation),
        advice=advice_score(advice),
        scripts=script_scores(),
        pairs=pair_scores(evaluation),
        programs=program_errors(),
        recommendation=recommendation,
    )


def runs_of_other_sets(runs: Sequence[Run]) -> list[Run]:
    """Return those of `runs` that are not advice, repeat none, and share none of its job sets."""

    def jobs(run: Run) -> tuple[str, ...]:
        return tuple(sorted(run.names))

    advice = [run for run in runs if run.purpose == "validation"]
    ids, sets = {run.id for run in advice}, {jobs(run) for run in advice if len(run.tenants) > 1}
    return [run for run in runs if not {run.id, run.repeats} & ids and jobs(run) not in sets]


@dataclass(frozen=True, slots=True)
class Moved:
    """A figure that changed; `where` names it, outermost part first."""

    where: str
    before: object
    now: object

    def __str__(self) -> str:
        return f"{self.where}: {self.before} -> {self.now}"


def figures_text(figures: Figures) -> str:
    """Return `figures` as JSON: a line for each record, numbers with six significant digits."""
    parts = (f"{json.dumps(name)}: {_lines(part)}" for name, part in _document(figures).items())
    return "{\n" + ",\n".join(parts) + "\n}\n"


def parse_figures(text: str | bytes, where: str) -> Figures:
    """Return the figures in the JSON `text`, which messages call `where`.

    Raises:
        InvalidInput: It has no figures of this version.
    """
    return parse_record(Figures, text, where, "Write it again: `make report`.")


def read_figures(path: Path) -> Figures:
    """Return the figures in the file `path`.

    Raises:
        InvalidInput: There is no such file, or it has no figures of this version.
    """
    return parse_figures(read_bytes(path), str(path))


def moved(before: Figures, now: Figures) -> tuple[Moved, ...]:
    """Return what differs, if it is a number by more than `TOLERANCE`."""
    return tuple(_moved("", False, _document(before), _document(now)))


def _document(figures: Figures) -> dict[str, Any]:
    document: dict[str, Any] = rounded(asdict(figures), _FORM)
    return document


def _lines(part: Any) -> str:
    """Return `part` on one line, or on one for each record in it."""
    match part:
        case [{}, *_]:
            return "[\n" + ",\n".join(map(_line, part)) + "\n]"
        case {}:
            records = (f"{json.dumps(name)}: {_line(value)}" for name, value in part.items())
            return "{\n" + ",\n".join(records) + "\n}"
        case _:
            return _line(part)


def _line(part: Any) -> str:
    return json.dumps(part, separators=(",", ":"), allow_nan=False)


def _moved(where: str, unit: bool, before: Any, now: Any) -> Iterator[Moved]:
    match before, now:
        case {}, {}:
            for name in {**before, **now}:
                inner = f"{where}.{name}".lstrip(".")
                has_unit = unit or name.endswith(_UNITS)
                values = before.get(name, _NOTHING), now.get(name, _NOTHING)
                yield from _moved(inner, has_unit, *values)
        case [*_], [*_] if len(before) == len(now):
            for place, pair in enumerate(zip(before, now, strict=True)):
                first = next(iter(pair[1].values()), None) if isinstance(pair[1], dict) else None
                name = first if isinstance(first, str) else str(place)
                yield from _moved(f"{where}[{name}]", unit, *pair)
        case (int() | float(), int() | float()):
            size = max(abs(before), abs(now))
            if abs(before - now) > TOLERANCE * (size if unit else max(1.0, size)):
                yield Moved(where, before, now)
        case _ if before != now:
            yield Moved(where, before, now)
