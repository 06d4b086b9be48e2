"""How the time of an answer grows with the number of jobs: `growth.csv` and `docs/growth.svg`.

    python benchmarks/growth.py [draw]

*Recommend* is timed as in `benchmarks/solver.py`, for different jobs and for copies of one on an
A100 of 40 GB; for 12 jobs and more it is the search for many jobs on one GPU, and how many times as
long the best greedy plan takes, as in `benchmarks/many_jobs.py`. *Simulate* is a trace of arrivals
on 64 GPUs under MPS, first come first served, all mixes known, as in `benchmarks/trace_speed.py`.
Each time is the least of a few; `draw` only draws `growth.csv` anew. Nothing here is a test.
"""

import csv
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path
from time import perf_counter

from many_jobs import drawn as drawn_jobs
from many_jobs import greedy_s, timed
from solver import EIGHT, MEASURED_ON
from trace_speed import LENGTHS, measured

from advisor.api import Advisor
from advisor.hardware.catalogue import gpu
from advisor.plan.fleet_terms import FleetTerms
from advisor.plan.ranking import ranked
from advisor.prediction.model_file import load_model
from advisor.prediction.predictor import Predictor
from advisor.workload.job import Job
from advisor.workload.store import load_profile, model_path
from research.svg import Axis, Chart, Series, picture

HERE = Path(__file__).parent
TABLE, PICTURE = HERE / "growth.csv", HERE.parent / "docs" / "growth.svg"
COLUMNS = ("what", "jobs", "seconds", "greedy")
GPU, MANY, REPEATS = "a100-40gb", (12, 16, 24), 5
_BLUE, _ORANGE, _GREY = "#1f5fa8", "#d9730d", "#777777"

Row = tuple[str, int, float, float | None]
"""What was timed, of how many jobs, seconds, and the makespan of a greedy plan over that found."""


def least_s(call: Callable[[], object]) -> float:
    """The least of a few times, after one that warms up."""
    call()
    found = []
    for _ in range(REPEATS):
        began_s = perf_counter()
        call()
        found.append(perf_counter() - began_s)
    return min(found)


def of_few() -> Iterator[Row]:
    """One GPU, the whole plan space."""
    model = gpu(GPU)
    predictor = Predictor(model, load_model(model_path()))
    jobs = [Job(load_profile(name, MEASURED_ON)) for name in EIGHT]
    for count, what in product(range(1, len(jobs) + 1), ("different", "equal")):
        some = jobs[:count] if what == "different" else jobs[:1] * count
        yield what, count, least_s(lambda s=some: ranked(s, model, predictor, "makespan")), None


def of_many() -> Iterator[Row]:
    """One GPU, more jobs than can be looked at in every set."""
    predictor = Advisor(MEASURED_ON).uncalibrated
    timed(drawn_jobs(3, 3), FleetTerms(), predictor)  # compiles, and imports the solver
    for jobs in MANY:
        some = drawn_jobs(jobs, jobs)
        seconds, found = timed(some, FleetTerms(), predictor)
        yield "many", jobs, seconds, greedy_s(some, 1, predictor) / found.search.cost


def of_traces() -> Iterator[Row]:
    """Arrivals on many GPUs."""
    for jobs in LENGTHS:
        _, again_s, _ = measured(jobs, "first-come")
        yield "trace", jobs, again_s, None


def tabled(rows: Sequence[Row]) -> None:
    """Write `rows` to `TABLE`."""
    with TABLE.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for what, jobs, seconds, greedy in rows:
            times = "" if greedy is None else f"{greedy:.3f}"
            writer.writerow((what, jobs, f"{seconds:.3g}", times))


def known() -> list[Row]:
    """The rows of `TABLE`."""
    with TABLE.open(newline="") as file:
        return [
            (row["what"], int(row["jobs"]), float(row["seconds"]), float(row["greedy"] or "nan"))
            for row in csv.DictReader(file)
        ]


def _line(rows: Sequence[Row], what: str, name: str, colour: str) -> Series:
    points = [(float(jobs), seconds) for each, jobs, seconds, _ in rows if each == what]
    return Series(points=points, kind="line", colour=colour, name=name)


def _seconds(low: float, high: float) -> Axis:
    words = ((0.001, "1 ms"), (0.01, "10 ms"), (0.1, "0.1 s"), (1.0, "1 s"), (10.0, "10 s"))
    ticks = tuple(each for each in words if low <= each[0] <= high)
    return Axis(label="time", low=low, high=high, ticks=ticks, log=True)


def _jobs(low: float, high: float, ticks: Sequence[float], *, log: bool = False) -> Axis:
    named = tuple((float(each), f"{each:,.0f}") for each in ticks)
    return Axis(label="jobs", low=low, high=high, ticks=named, log=log)


def drawn(rows: Sequence[Row]) -> str:
    """The picture of `rows`."""
    greedy = [(float(jobs), over) for what, jobs, _, over in rows
              if what == "many" and over is not None]  # fmt: skip
    shares = tuple((1 + each / 100, f"{each} %") for each in (0, 5, 10, 15, 20))
    longer = Axis(label="longer", low=1.0, high=1.2, ticks=shares)
    many = _jobs(10, 26, MANY)
    charts = [
        Chart(
            title=f"recommend, {GPU}", x=_jobs(0.5, 8.5, range(1, 9)), y=_seconds(0.001, 10.0),
            series=(_line(rows, "different", "different", _BLUE),
                    _line(rows, "equal", "copies of one", _ORANGE)),
        ),
        Chart(title="recommend, many jobs", x=many, y=_seconds(0.1, 20.0),
              series=(_line(rows, "many", "seconds", _BLUE),)),
        Chart(title="the best greedy plan", x=many, y=longer,
              series=(Series(points=greedy, kind="line", colour=_GREY, name="all done later by"),)),
        Chart(title="simulate", x=_jobs(700, 140_000, LENGTHS, log=True), y=_seconds(0.01, 100.0),
              series=(_line(rows, "trace", "three simulations", _BLUE),)),
    ]  # fmt: skip
    return picture("How the time of an answer grows with the number of jobs", charts)


def main() -> None:
    if sys.argv[1:] != ["draw"]:
        rows: list[Row] = []
        for part in (of_few, of_many, of_traces):
            for row in part():
                print(*row, flush=True)
                rows.append(row)
        tabled(rows)
    PICTURE.write_text(drawn(known()))


if __name__ == "__main__":
    main()
