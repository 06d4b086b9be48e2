"""The scoreboard as pictures: predicted against measured, by degree, coverage, busy share."""

from collections.abc import Callable, Mapping, Sequence
from statistics import NormalDist, median

import numpy as np

from advisor.validation.comparison import JobComparison
from advisor.validation.evaluate import Evaluation
from advisor.validation.scoreboard import MODES, Row, runs_of_mode, scoreboard
from advisor.validation.svg import Axis, Chart, Point, Series, picture
from advisor.validation.words import MODE_WORDS

_BLUE, _ORANGE, _GREY = "#1f5fa8", "#d9730d", "#777777"
_SHARES = tuple((each / 100, f"{each} %") for each in (0, 25, 50, 75, 100))
_ERRORS = ((0.001, "0.1 %"), (0.01, "1 %"), (0.1, "10 %"), (1.0, "100 %"))
_MS = ((1.0, "1"), (10.0, "10"), (100.0, "100"), (1000.0, "1000"))
_LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)


def plots(evaluation: Evaluation) -> Mapping[str, str]:
    """SVG documents by file name."""
    drawn = {
        "predicted-against-measured.svg": _predicted(evaluation),
        "error-by-degree.svg": _by_degree(evaluation),
        "error-by-busy-share.svg": _by_busy_share(evaluation),
    }
    if evaluation.intervals:
        drawn["coverage.svg"] = _coverage(evaluation)
    return drawn


def _jobs(evaluation: Evaluation, mode: str) -> list[JobComparison]:
    return [job for run in runs_of_mode(evaluation.runs, mode) for job in run.jobs]


def _predicted(evaluation: Evaluation) -> str:
    axis = Axis(label="measured step, ms", low=0.5, high=5000.0, ticks=_MS, log=True)
    up = Axis(label="predicted step, ms", low=0.5, high=5000.0, ticks=_MS, log=True)
    equal = Series(points=((0.5, 0.5), (5000.0, 5000.0)), kind="line", colour=_GREY, name="equal")
    charts = []
    for mode in MODES:
        points = [(1000 * j.measured_s, 1000 * j.predicted_s.p50) for j in _jobs(evaluation, mode)]
        dots = Series(points=points, kind="dots", colour=_BLUE, name="a job in a run")
        charts.append(Chart(title=MODE_WORDS[mode], x=axis, y=up, series=(equal, dots)))
    return picture("Predicted against measured step times, families never seen", charts)


def _by_degree(evaluation: Evaluation) -> str:
    rows = [row for row in scoreboard(evaluation) if row.degree is not None and row.jobs == "all"]
    degrees = sorted({row.degree or 0 for row in rows})
    x = Axis(
        label="jobs at once",
        low=min(degrees) - 0.5,
        high=max(degrees) + 0.5,
        ticks=tuple((float(each), str(each)) for each in degrees),
    )
    y = Axis(
        label="mean absolute error", low=0.0, high=0.2,
        ticks=tuple((each / 100, f"{each} %") for each in (0, 5, 10, 15, 20)),
    )  # fmt: skip
    charts = [
        Chart(title=MODE_WORDS[mode], x=x, y=y, series=_degree_lines(rows, mode)) for mode in MODES
    ]
    return picture("Error by number of jobs, beside replay alone and the noise floor", charts)


def _degree_lines(rows: Sequence[Row], mode: str) -> tuple[Series, ...]:
    of_mode = [row for row in rows if row.mode == mode]
    model = _by_row(of_mode, lambda row: row.mape)
    replay = _by_row(of_mode, lambda row: row.baselines.get("replay"))
    floor = _by_row(of_mode, lambda row: row.noise_floor)
    return (
        Series(points=model, kind="line", colour=_BLUE, name="model"),
        Series(points=replay, kind="line", colour=_ORANGE, name="replay"),
        Series(points=floor, kind="dashed", colour=_GREY, name="noise floor"),
    )


def _by_row(rows: Sequence[Row], error_of: Callable[[Row], float | None]) -> list[Point]:
    pairs = [(float(row.degree or 0), error_of(row)) for row in rows]
    return [(degree, error) for degree, error in pairs if error is not None]


def _coverage(evaluation: Evaluation) -> str:
    x = Axis(label="nominal level", low=0.0, high=1.0, ticks=_SHARES)
    y = Axis(label="share of measured steps inside", low=0.0, high=1.0, ticks=_SHARES)
    even = Series(points=((0.0, 0.0), (1.0, 1.0)), kind="dashed", colour=_GREY, name="exact")
    charts = []
    for mode in MODES:
        jobs = _jobs(evaluation, mode)
        line = Series(
            points=[(each, _inside(jobs, each)) for each in _LEVELS] if jobs else [],
            kind="line",
            colour=_BLUE,
            name="intervals",
        )
        charts.append(Chart(title=MODE_WORDS[mode], x=x, y=y, series=(even, line)))
    return picture("Coverage by nominal level; widths scaled as a normal distribution's", charts)


def _inside(jobs: Sequence[JobComparison], level: float) -> float:
    """Share of `jobs` inside, each half of the 90 % interval scaled in log to `level`."""
    stretch = NormalDist().inv_cdf((1 + level) / 2) / NormalDist().inv_cdf(0.95)
    inside = 0
    for job in jobs:
        off = np.log(job.measured_s / job.predicted_s.p50)
        low = np.log(job.predicted_s.p05 / job.predicted_s.p50)
        high = np.log(job.predicted_s.p95 / job.predicted_s.p50)
        inside += bool(stretch * low <= off <= stretch * high)
    return inside / len(jobs)


def _by_busy_share(evaluation: Evaluation) -> str:
    x = Axis(label="GPU busy, alone", low=0.0, high=1.0, ticks=_SHARES)
    y = Axis(label="absolute error", low=0.0005, high=1.0, ticks=_ERRORS, log=True)
    charts = []
    for mode in MODES:
        points = [(j.busy_share, abs(j.error)) for j in _jobs(evaluation, mode) if j.busy_share]
        dots = Series(points=points, kind="dots", colour=_BLUE, name="a job in a run")
        line = Series(
            points=_medians(points), kind="line", colour=_ORANGE, name="median of a tenth"
        )
        charts.append(Chart(title=MODE_WORDS[mode], x=x, y=y, series=(dots, line)))
    return picture("Error against how busy a job alone keeps the GPU", charts)


def _medians(points: Sequence[Point]) -> list[Point]:
    """Median error in each tenth of the busy share that has points."""
    tenths: dict[int, list[float]] = {}
    for busy, error in points:
        tenths.setdefault(min(9, int(10 * busy)), []).append(error)
    return [((tenth + 0.5) / 10, median(errors)) for tenth, errors in sorted(tenths.items())]
