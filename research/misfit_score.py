"""How often "does not fit" is said of a job on a MIG slice, and how often that is so.

    python -m research.misfit_score > benchmarks/oom-alone/score.json

Nobody here can switch MIG on, so slices are emulated in two ways. **By size**: each process of the
drawn runs, with the memory that it was measured to hold, against every size of slice in the
catalogue. It fits where what it held does, and does not where not even its live tensors and its
context do; between these, whether the allocator can give up enough of its cache is not known, and
that is counted apart. **By trial**: jobs that ran on a GPU made to look like a smaller card, whose
outcomes are known; they were drawn close to the edge. A job is said not to fit from the risk on at
which plans are left out. As everywhere a family is predicted by what the others taught.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from statistics import mean

from advisor.hardware.catalogue import Gpu, gpu, known_gpus
from advisor.plan.rules import MAX_OOM_PROBABILITY
from advisor.prediction.fit.memory_fit import Trial, fit_context, fit_edges, trials
from advisor.prediction.fit.observation import shared_runs
from advisor.prediction.memory_edge import Edge, edge_for
from advisor.sharing import Mode
from advisor.workload.profile import Profile
from advisor.workload.run import Run
from research.files import PROFILES, measured
from research.memory_score import ScoredProcess, scored_processes

# Of a slice, within which what a job needs is close to it.
_CLOSE = 0.15
# Where no trial taught anything: of a process's memory.
_SIGMA = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One process on one emulated slice, or one trial.

    Attributes:
        said: Whether it was said not to fit.
        fits: Whether it does; None where nobody can know without trying.
        close: Whether what it needs is close to what there is.
    """

    said: bool
    fits: bool | None
    close: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class MisfitScore:
    """Recall and false alarms of "does not fit", 0..1; None where there is nothing to count.

    Attributes:
        what: Which jobs on which memory.
        unknown: How many whose outcome cannot be known.
        unknown_said: Share of these that were said not to fit.
    """

    gpu: str
    what: str
    misfits: int
    recall: float | None
    fits: int
    false_alarms: float | None
    unknown: int
    unknown_said: float | None


Teaches = Callable[[str], Mapping[Mode, Edge]]
"""What trials without a family teach of when memory runs out."""


def slice_sizes_mib() -> tuple[int, ...]:
    """Memory of every MIG slice of every GPU in the catalogue, increasing."""
    every = {each.memory_mib for card in known_gpus().values() for each in card.mig}
    return tuple(sorted(every))


def scored(card: Gpu, what: str, judged: Iterable[Judged]) -> MisfitScore:
    """What `judged` come to."""
    outcomes: dict[bool | None, list[bool]] = {True: [], False: [], None: []}
    for each in judged:
        outcomes[each.fits].append(each.said)
    fits, misfits, unknown = (outcomes[each] for each in (True, False, None))
    return MisfitScore(
        gpu=card.key, what=what,
        misfits=len(misfits), recall=mean(misfits) if misfits else None,
        fits=len(fits), false_alarms=mean(fits) if fits else None,
        unknown=len(unknown), unknown_said=mean(unknown) if unknown else None,
    )  # fmt: skip


def by_size(
    processes: Iterable[ScoredProcess], taught: Teaches, sizes_mib: Sequence[int]
) -> Iterator[Judged]:
    """Each process, as if alone, on memory of each size."""
    for each in processes:
        edge = edge_for(taught(each.family), "serial", 1, _SIGMA)
        for size_mib in sizes_mib:
            misfit = each.least_mib > size_mib
            yield Judged(
                said=edge.risk([each.predicted], size_mib) > MAX_OOM_PROBABILITY,
                fits=False if misfit else True if each.held_mib <= size_mib else None,
                close=abs(each.least_mib / size_mib - 1) < _CLOSE,
            )


def by_trial(tried: Sequence[Trial], taught: Teaches, *, alone: bool) -> Iterator[Judged]:
    """Each trial once for each of its families; of processes alone, or of mixes."""
    for each in tried:
        if (len(each.needs) == 1) == alone:
            for family in each.families:
                edge = edge_for(taught(family), each.mode, len(each.needs), _SIGMA)
                risk = edge.risk(each.needs, each.capacity_mib)
                yield Judged(said=risk > MAX_OOM_PROBABILITY, fits=not each.refused)


Measured = tuple[Mapping[str, Profile], Sequence[Run], Gpu]
"""Profiles, and runs of theirs, on one GPU."""


def scores(measured: Sequence[Measured]) -> list[MisfitScore]:
    """All of it for each GPU; what the trials of all of them teach counts for each."""
    of_each = [_trials(*each) for each in measured]
    every = [one for tried in of_each for one in tried]

    @cache
    def taught(family: str) -> Mapping[Mode, Edge]:
        return fit_edges([each for each in every if family not in each.families])

    found = []
    for (profiles, runs, card), tried in zip(measured, of_each, strict=True):
        shared = shared_runs(profiles, runs, card)
        drawn = [each for each in shared if each.run.purpose == "drawn"]
        processes = scored_processes(profiles, shared, drawn, card)
        pairs = list(by_size(processes, taught, slice_sizes_mib()))
        close = [each for each in pairs if each.close]
        found += [
            scored(card, "alone on slices of every size", pairs),
            scored(card, "alone on slices within 15 % of the need", close),
            scored(card, "alone on a smaller card, run", by_trial(tried, taught, alone=True)),
            scored(card, "mixes on a smaller card, run", by_trial(tried, taught, alone=False)),
        ]
    return found


def _trials(profiles: Mapping[str, Profile], runs: Sequence[Run], card: Gpu) -> tuple[Trial, ...]:
    context = fit_context(profiles, shared_runs(profiles, runs, card), card)
    return trials(profiles, runs, context, card)


def main() -> None:
    folders = sorted(each for each in PROFILES.iterdir() if (each / "runs").is_dir())
    found = scores([(*measured(folder), gpu(folder.name)) for folder in folders])
    print(json.dumps([asdict(each) for each in found], indent=1))


if __name__ == "__main__":
    main()
