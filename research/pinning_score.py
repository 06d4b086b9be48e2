"""What pinning jobs to cores of their own gained where jobs wait for their hosts.

    python -m research.pinning_score benchmarks/pinning > benchmarks/pinning/score.json

The folder is one that `benchmarks/pinning_study.py` filled. A gain is a job's step when all jobs of
the mix were free to move, over its step when each was pinned, on the same GPU and cores; above 1,
pinning paid. Two runs alike differ as well, so single gains say less than their median.
"""

import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from advisor.validate.panels import counted_names
from advisor.validate.score_tables import MODE_WORDS, markdown
from advisor.workload.run import Run
from advisor.workload.stored_runs import read_runs
from research.script_table import Scores, committed

_WORDS = {"few": "as many as needed", "all": "all"}
_COLUMNS = ("jobs", "sharing", "cores", "steps", "gain, median", "least", "most")


@dataclass(frozen=True, slots=True, kw_only=True)
class PinningGain:
    """Gains of the jobs of one mix.

    Attributes:
        jobs: Names with counts, as the command line takes them; ``"all"`` of all that ran together.
        sharing: As the runs have it; ``"alone"`` for one job.
        cores: ``"few"``: the mix had as many as its jobs need; ``"all"``: those of half a host.
        steps: Steps that were compared, one of each job on each GPU.
    """

    jobs: str
    sharing: str
    cores: str
    steps: int
    median: float
    least: float
    most: float


def gains(runs: Iterable[Run]) -> Iterator[PinningGain]:
    """Of each mix on each number of cores, then of all that had mates by the number of cores."""
    cases: dict[tuple[str, str], dict[tuple[str, str], Run]] = defaultdict(dict)
    for run in runs:
        head, where, how = run.id.rsplit("-", 2)
        _, device, mix = head.split("-", 2)  # the mix may have hyphens
        cases[mix, where][device, how] = run
    of_all: dict[str, list[float]] = defaultdict(list)
    for (_, where), ran in sorted(cases.items()):
        found = [
            free.step_s / pinned.step_s
            for (device, how), run in ran.items()
            if how == "pinned" and (twin := ran.get((device, "free")))
            for pinned, free in zip(run.tenants, twin.tenants, strict=True)
        ]
        if not found:
            continue
        some = next(iter(ran.values()))
        names = [tenant.workload.name for tenant in some.tenants]
        if len(names) > 1:
            of_all[where] += found
        sharing = some.sharing if len(names) > 1 else "alone"
        yield _gain(counted_names(names), sharing, where, found)
    for where, found in of_all.items():
        yield _gain("all", "all", where, found)


def _gain(jobs: str, sharing: str, where: str, found: Sequence[float]) -> PinningGain:
    return PinningGain(
        jobs=jobs, sharing=sharing, cores=where, steps=len(found),
        median=median(found), least=min(found), most=max(found),
    )  # fmt: skip


def pinning_table() -> str:
    """In Markdown, a line for each mix and number of cores, from the committed score."""
    return markdown(_COLUMNS, rows(committed("pinning")))


def rows(scores: Scores) -> Iterator[tuple[str, ...]]:
    """The cells."""
    words = MODE_WORDS | {"alone": "-", "all": "-"}
    for each in scores:
        jobs = "all that ran together" if each["jobs"] == "all" else each["jobs"]
        shown = (f"{each[name]:.2f}x" for name in ("median", "least", "most"))
        yield jobs, words[each["sharing"]], _WORDS[each["cores"]], str(each["steps"]), *shown


def main() -> None:
    runs = [run for file in sorted(Path(sys.argv[1]).glob("*.jsonl")) for run in read_runs(file)]
    print(json.dumps([asdict(each) for each in gains(runs)], indent=1))


if __name__ == "__main__":
    main()
