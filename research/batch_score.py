"""How far a step, its power and its memory are off at a batch size that was left out.

    python -m research.batch_score THEIRS > benchmarks/batch-sizes/score.json

Of each series of three or more batch sizes every size is left out in turn and estimated from the
others by `advisor.prediction.batch_law`. THEIRS is a folder with what others measured: MISO (A100
and its MIG slices, SoCC'22 artifact), MIGPerf (the same GPU, MLSysOps/MIGProfiler) and Zeus (V100
and A40 at their full power limit, NSDI'23 artifact). The law's two constants were chosen on the
V100 of Zeus; nothing else is. Whole profiles of three sizes or more lie in `benchmarks/translation`
and `benchmarks/batch-sizes`: their steps come from the two paths, and memory and energy are scored
too. Each is compared with two simple rules: as much as at the nearest size, and as much an example.
"""

import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import log
from pathlib import Path
from statistics import mean, median

from advisor.prediction.batch_law import FARTHEST, AtBatch, memory_at, step_at
from advisor.prediction.batch_profile import at_batch
from advisor.prediction.memory import Z95
from advisor.workload.other_batches import batch_name
from advisor.workload.profile import Profile
from research.files import BENCHMARKS, csv_rows, profiles_in

PROFILES = tuple(BENCHMARKS / each / "profiles" for each in ("translation", "batch-sizes"))

Known = dict[int, float]
Series = dict[str, Known]
"""What a step takes by batch size, of each workload on each part of a GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOutSize:
    """One batch size that was left out, and what was said of it; shares of what was measured.

    Attributes:
        between: Whether it lies between others.
        error: Of the estimate.
        as_step: Error of the nearest size's step.
        as_example: Error of the nearest size's time for an example.
        inside: Whether it was measured in the 90 % interval.
    """

    between: bool
    error: float
    as_step: float
    as_example: float
    inside: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchScore:
    """Errors of one number of one source, between sizes or beyond them; shares."""

    source: str
    number: str
    where: str
    sizes: int
    mape: float
    median: float
    inside: float
    as_step: float
    as_example: float


def _each_without(known: Known) -> Iterator[tuple[int, Known]]:
    """Each size of `known` with the others; those too far from all of them are passed over."""
    for batch in known:
        others = {size: value for size, value in known.items() if size != batch}
        if len(others) >= 2 and min(others) / FARTHEST <= batch <= max(others) * FARTHEST:
            yield batch, others


def left_out(known: Known, *, memory: bool = False) -> Iterator[LeftOutSize]:
    """Each size of `known` estimated from the others."""
    law = memory_at if memory else step_at
    for batch, others in _each_without(known):
        yield judged(law(others, batch), others, batch, known[batch])


def judged(found: AtBatch, others: Known, batch: int, measured: float) -> LeftOutSize:
    """`found` of `batch` from `others`, compared with what was `measured`."""
    near = min(others, key=lambda size: abs(log(size / batch)))
    return LeftOutSize(
        between=min(others) < batch < max(others),
        error=found.middle / measured - 1,
        as_step=others[near] / measured - 1,
        as_example=others[near] * batch / near / measured - 1,
        inside=abs(log(measured / found.middle)) <= Z95 * found.spread,
    )


def scored(source: str, number: str, sizes: Iterable[LeftOutSize]) -> Iterator[BatchScore]:
    """The errors of `sizes`, between others and beyond them apart."""
    known = list(sizes)
    for where in ("between", "beyond"):
        each = [one for one in known if one.between == (where == "between")]
        if each:
            yield BatchScore(
                source=source, number=number, where=where, sizes=len(each),
                mape=mean(abs(one.error) for one in each),
                median=median(abs(one.error) for one in each),
                inside=mean(one.inside for one in each),
                as_step=mean(abs(one.as_step) for one in each),
                as_example=mean(abs(one.as_example) for one in each),
            )  # fmt: skip


MISO, MIGPERF = "a100_mig_slice_steptime.csv", "a100_mig_training.csv"


def on_slices(table: Path, column: str) -> Series:
    """A column of one of these tables on each slice, of the rows that ran."""
    found: Series = defaultdict(dict)
    for row in csv_rows(table):
        if row[column]:
            name = f"{row['model']} on {row['mig_profile']}"
            found[name][int(row["batch_size"])] = float(row[column])
    return found


def zeus(theirs: Path, gpu: str) -> tuple[Series, Series]:
    """Time and energy of a step at the full power limit; of as many examples in all, so relative.

    Where several optimizers were run, their median.
    """
    times, joules = defaultdict(list), defaultdict(list)
    for row in csv_rows(theirs / "power_limit_training.csv"):
        if row["gpu"] == gpu and row["power_limit_w"] == row["max_power_limit_w"]:
            batch = int(row["batch_size"])
            key = (f"{row['network']} on {row['dataset']}", batch)
            times[key].append(float(row["epoch_s"]) * batch)
            joules[key].append(float(row["energy_per_epoch_j"]) * batch)
    return _by_workload(times), _by_workload(joules)


def _by_workload(values: Mapping[tuple[str, int], Sequence[float]]) -> Series:
    found: Series = defaultdict(dict)
    for (name, batch), each in values.items():
        found[name][batch] = median(each)
    return found


Number = Callable[[Profile], float | None]

_OF_PROFILES: dict[str, Number] = {
    "step": lambda each: each.step_s,
    "memory": lambda each: each.memory.device_mib,
    "energy": lambda each: None if each.power_w is None else each.power_w * each.step_s,
}
"""What of a whole profile is scored."""


def of_profiles(profiles: Sequence[Profile], what: str = "step") -> Iterator[LeftOutSize]:
    """As `left_out`, for a number of whole profiles of one workload; steps by their two paths."""
    number = _OF_PROFILES[what]
    known = {each.workload.batch: value for each in profiles if (value := number(each))}
    for batch, others in _each_without(known):
        found = at_batch([each for each in profiles if each.workload.batch != batch], batch)
        middle, of_batch = number(found), found.other_batches
        if middle is not None and of_batch is not None:
            spread = of_batch.memory_spread if what == "memory" else of_batch.step_spread
            yield judged(AtBatch(middle, spread), others, batch, known[batch])


def committed(folder: Path) -> list[list[Profile]]:
    """The profiles in `folder` of each workload with three batch sizes or more."""
    found: dict[str, list[Profile]] = defaultdict(list)
    for name, profile in profiles_in(folder).items():
        if said := batch_name(name):
            found[said.work].append(profile)
    return [each for each in found.values() if len(each) >= 3]


def scores(theirs: Path, profiles: Sequence[Path] = PROFILES) -> list[BatchScore]:
    """Everything that is scored, source by source."""

    def of(source: str, number: str, series: Series, *, memory: bool = False) -> list[BatchScore]:
        each = (one for known in series.values() for one in left_out(known, memory=memory))
        return list(scored(source, number, each))

    found = of("MISO", "step", on_slices(theirs / MISO, "step_s_median"))
    found += of("MIGPerf", "step", on_slices(theirs / MIGPERF, "step_ms"))
    found += of("MIGPerf", "memory", on_slices(theirs / MIGPERF, "fb_used_mib"), memory=True)
    for gpu in ("V100", "A40"):
        times, joules = zeus(theirs, gpu)
        found += of(f"Zeus, {gpu}", "step", times) + of(f"Zeus, {gpu}", "energy", joules)
    for folder in profiles:
        for what in _OF_PROFILES:
            whole = (one for each in committed(folder) for one in of_profiles(each, what))
            found += scored(f"whole profiles, {folder.parent.name}", what, whole)
    return found


def main() -> None:
    found = scores(Path(sys.argv[1]))
    print(json.dumps([asdict(each) for each in found], indent=1))


if __name__ == "__main__":
    main()
