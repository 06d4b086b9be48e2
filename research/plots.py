"""The scoreboard as pictures: predicted against measured, by degree, coverage, busy share."""

from collections.abc import Callable, Mapping, Sequence
from statistics import median

from advisor.sharing import SHARED_MODES, Mode
from advisor.validate.score_row import ScoreRow
from advisor.validate.score_tables import MODE_WORDS
from research.plot_figures import Points
from research.svg import Axis, Chart, Point, Series, picture

_BLUE, _ORANGE, _GREY = "#1f5fa8", "#d9730d", "#777777"
_SHARES = tuple((each / 100, f"{each} %") for each in (0, 25, 50, 75, 100))
_ERRORS = ((0.001, "0.1 %"), (0.01, "1 %"), (0.1, "10 %"), (1.0, "100 %"))
_MS = ((1.0, "1"), (10.0, "10"), (100.0, "100"), (1000.0, "1000"))


def plots(points: Mapping[str, Points], rows: Sequence[ScoreRow]) -> Mapping[str, str]:
    """SVG documents by file name, of the jobs of each mode and of the scoreboard."""
    drawn = {
        "predicted-against-measured.svg": _predicted(points),
        "error-by-degree.svg": _by_degree(rows),
        "error-by-busy-share.svg": _by_busy_share(points),
    }
    if any(each.inside for each in points.values()):
        drawn["coverage.svg"] = _coverage(points)
    return drawn


def _predicted(points: Mapping[str, Points]) -> str:
    axis = Axis(label="measured step, ms", low=0.5, high=5000.0, ticks=_MS, log=True)
    up = Axis(label="predicted step, ms", low=0.5, high=5000.0, ticks=_MS, log=True)
    equal = Series(points=((0.5, 0.5), (5000.0, 5000.0)), kind="line", colour=_GREY, name="equal")
    charts = []
    for mode in SHARED_MODES:
        of_mode = points[mode]
        steps = zip(of_mode.measured_s, of_mode.predicted_s, strict=True)
        places = [(1000 * measured_s, 1000 * predicted_s) for measured_s, predicted_s in steps]
        dots = Series(points=places, kind="dots", colour=_BLUE, name="a job in a run")
        charts.append(Chart(title=MODE_WORDS[mode], x=axis, y=up, series=(equal, dots)))
    return picture("Predicted against measured step times, families never seen", charts)


def _by_degree(scoreboard: Sequence[ScoreRow]) -> str:
    rows = [row for row in scoreboard if row.degree is not None and row.jobs == "all"]
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
        Chart(title=MODE_WORDS[mode], x=x, y=y, series=_degree_lines(rows, mode))
        for mode in SHARED_MODES
    ]
    return picture("Error by number of jobs, beside replay alone and the noise floor", charts)


def _degree_lines(rows: Sequence[ScoreRow], mode: Mode) -> tuple[Series, ...]:
    of_mode = [row for row in rows if row.mode == mode]
    model = _by_row(of_mode, lambda row: row.mape)
    replay = _by_row(of_mode, lambda row: row.baselines.get("replay"))
    floor = _by_row(of_mode, lambda row: row.noise_floor)
    return (
        Series(points=model, kind="line", colour=_BLUE, name="model"),
        Series(points=replay, kind="line", colour=_ORANGE, name="replay"),
        Series(points=floor, kind="dashed", colour=_GREY, name="noise floor"),
    )


def _by_row(rows: Sequence[ScoreRow], error_of: Callable[[ScoreRow], float | None]) -> list[Point]:
    pairs = [(float(row.degree or 0), error_of(row)) for row in rows]
    return [(degree, error) for degree, error in pairs if error is not None]


def _coverage(points: Mapping[str, Points]) -> str:
    x = Axis(label="nominal level", low=0.0, high=1.0, ticks=_SHARES)
    y = Axis(label="share of measured steps inside", low=0.0, high=1.0, ticks=_SHARES)
    even = Series(points=((0.0, 0.0), (1.0, 1.0)), kind="dashed", colour=_GREY, name="exact")
    charts = []
    for mode in SHARED_MODES:
        line = Series(points=points[mode].inside, kind="line", colour=_BLUE, name="intervals")
        charts.append(Chart(title=MODE_WORDS[mode], x=x, y=y, series=(even, line)))
    return picture("Coverage by nominal level; widths scaled as a normal distribution's", charts)


def _by_busy_share(points: Mapping[str, Points]) -> str:
    x = Axis(label="GPU busy, alone", low=0.0, high=1.0, ticks=_SHARES)
    y = Axis(label="absolute error", low=0.0005, high=1.0, ticks=_ERRORS, log=True)
    charts = []
    for mode in SHARED_MODES:
        places = _errors(points[mode])
        dots = Series(points=places, kind="dots", colour=_BLUE, name="a job in a run")
        line = Series(
            points=_medians(places), kind="line", colour=_ORANGE, name="median of a tenth"
        )
        charts.append(Chart(title=MODE_WORDS[mode], x=x, y=y, series=(dots, line)))
    return picture("Error against how busy a job alone keeps the GPU", charts)


def _errors(points: Points) -> list[Point]:
    """Busy share and absolute error of each job whose busy share was measured."""
    columns = zip(points.busy_share, points.predicted_s, points.measured_s, strict=True)
    return [
        (busy, abs(predicted_s / measured_s - 1))
        for busy, predicted_s, measured_s in columns
        if busy
    ]


def _medians(points: Sequence[Point]) -> list[Point]:
    """Median error in each tenth of the busy share that has points."""
    tenths: dict[int, list[float]] = {}
    for busy, error in points:
        tenths.setdefault(min(9, int(10 * busy)), []).append(error)
    return [((tenth + 0.5) / 10, median(errors)) for tenth, errors in sorted(tenths.items())]
