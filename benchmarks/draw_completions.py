"""Draws whole jobs to run to their ends: mixes for the simulator, and job sets to choose plans for.

    python -m benchmarks.draw_completions --seed 2031

writes ``completion/plan.toml``: three mixes of the first study and seven drawn ones, each naive,
under MPS and with limits drawn for each; and two more, ``completion-panels/plan.toml`` and
``completion-panels-second/plan.toml``: sets of 3 to 8 jobs, each in eleven ways that follow from
the jobs alone and from no prediction. To the sets, `benchmarks/recommend_panels.py` adds what a
model recommends. No drawn set was run before.

A job has as many steps as it does in a drawn number of seconds alone, so ends are staggered.
"""

import argparse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random

from advisor.sharing import parse_sharing
from advisor.sharing.traversal import running_together
from advisor.workload.profile import Profile
from advisor.workload.writing import write_whole
from benchmarks.draw_panels import by_busy, one, ran, run_text
from research.files import measured

ROOT = Path(__file__).resolve().parents[1]
GPU = "h200-141gb"
# Seconds that a job takes alone, from the shortest of a set to the longest.
MIX_S, PANEL_S = (3.0, 12.0), (1.0, 4.0)
LIMITS = (28, 43, 57, 71)
# The first study's small and medium job: ResNet26 on CIFAR-10, ResNet50 on 64-pixel ImageNet.
S, M = "resnet26-cifar10-bs128", "resnet50-imagenet64-bs128"
STUDY = ((M, S), (M, S, S), (M, M, M, S))
# The seven others have one job of so many of these, which the first study had not.
KINDS = (("recurrent",), ("bert", "gpt2", "t5", "transformer"), ("dlrm",), ("unet",))
DEGREES = (2, 2, 3, 3, 3, 4, 4)
PANEL_DEGREES = (3, 4, 5, 6, 7, 8)
# Beside the steps: processes start, load, settle and end, once in each group.
START_S = 4.0

HEAD = """\
# Whole jobs, drawn by benchmarks/draw_completions.py with seed {seed}: each does its steps and
# leaves, the others go on.
name = "{name}"
gpu = "{gpu}"
seed = {seed}
solo_every = 0

[timing]
settle_s = 0.5
"""

# Names of a set's jobs, and steps of each.
Jobs = tuple[list[str], list[int]]


class Drawing:
    """What is drawn from, by one seed."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.random = Random(seed)
        self.profiles, runs = measured(folder)
        self.known = ran(runs)
        names = [name for name, each in self.profiles.items() if not _slow_to_start(each)]
        self.names = by_busy(names, self.profiles)

    def mixes(self) -> Iterator[Jobs]:
        """The study's mixes, then those of the other kinds."""
        for names in STUDY:
            yield self._timed(list(names), MIX_S)
        for degree in DEGREES:
            yield self._timed(self._new(lambda d=degree: self._of_kinds(d)), MIX_S)

    def panels(self) -> Iterator[Jobs]:
        """Sets of any workloads."""
        for n in PANEL_DEGREES:
            yield self._timed(self._new(lambda n=n: one(self.random, self.names, n, n)), PANEL_S)

    def _of_kinds(self, degree: int) -> list[str]:
        kinds = self.random.sample(KINDS, degree)
        return [
            self.random.choice([n for n in self.names if self.profiles[n].workload.family in kind])
            for kind in kinds
        ]

    def _new(self, draw: Callable[[], list[str]]) -> list[str]:
        """What `draw` gives first that was not run or drawn before."""
        while tuple(sorted(names := draw())) in self.known:
            pass
        self.known.add(tuple(sorted(names)))
        return names

    def _timed(self, names: list[str], seconds: tuple[float, float]) -> Jobs:
        """Each job as long as a drawn one of so many seconds, of equal ratio to each other."""
        shortest, longest = seconds
        parts = [place / (len(names) - 1) for place in range(len(names))]
        self.random.shuffle(parts)
        lengths_s = [shortest * (longest / shortest) ** part for part in parts]
        pairs = zip(names, lengths_s, strict=True)
        return names, [max(1, round(s / self.profiles[name].step_s)) for name, s in pairs]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks")
    asked = parser.parse_args()
    drawing = Drawing(asked.seed, ROOT / "profiles" / GPU)
    mixes = [(jobs, _mix_ways(len(jobs[0]), drawing.random)) for jobs in drawing.mixes()]
    plans = {"completion": mixes}
    for name in ("completion-panels", "completion-panels-second"):
        plans[name] = [(jobs, panel_ways(jobs, drawing.profiles)) for jobs in drawing.panels()]
    for name, sets in plans.items():
        write_whole(asked.out / name / "plan.toml", plan_text(name, asked.seed, sets))
        runs = [(jobs, how) for jobs, ways in sets for how in ways.values()]
        seconds = sum(_about_s(*run, drawing.profiles) for run in runs)
        print(f"{name}: {len(runs)} runs, at most about {seconds:.0f} s of a GPU")


def plan_text(name: str, seed: int, sets: Iterable[tuple[Jobs, Mapping[str, str]]]) -> str:
    """The plan of a campaign that runs each of `sets` in its ways."""
    runs = (
        run_text(f"{name}-{number:02}-{way}", sharing, names, steps)
        for number, ((names, steps), ways) in enumerate(sets)
        for way, sharing in ways.items()
    )
    return HEAD.format(name=name, gpu=GPU, seed=seed) + "".join(runs)


def _mix_ways(degree: int, random: Random) -> dict[str, str]:
    limits = ",".join(str(random.choice(LIMITS)) for _ in range(degree))
    return {"naive": "naive", "mps": "mps", "limits": f"mps={limits}"}


def panel_ways(jobs: Jobs, profiles: Mapping[str, Profile]) -> dict[str, str]:
    """How each set is run, by the ends of ids: from how long and how busy its jobs are alone.

    Limits are an equal part of the GPU, one and a half and two of these; parts as the jobs' lengths
    are, and twice that; and all for the longest beside an equal part for each other. Phases keep
    the busier half of the jobs to themselves: side by side, or one by one.
    """
    names, steps = jobs
    alone_s = [n * profiles[name].step_s for name, n in zip(names, steps, strict=True)]
    equal, whole_s, longest = 100 / len(names), sum(alone_s), max(alone_s)
    parts = [100 * each / whole_s for each in alone_s]
    order = sorted(range(len(names)), key=lambda job: profiles[names[job]].busy_share or 0.0)
    half = (len(order) + 1) // 2
    idle, busy = _numbers(order[:half]), _numbers(order[half:])
    return {
        "serial": "serial",
        "naive": "naive",
        "mps": "mps",
        "equal": _limits([equal] * len(names)),
        "wide": _limits([1.5 * equal] * len(names)),
        "wider": _limits([2 * equal] * len(names)),
        "lengths": _limits(parts),
        "doubled": _limits([2 * each for each in parts]),
        "longest": _limits([100 if each == longest else equal for each in alone_s]),
        "halves": f"mps{idle};mps{busy}",
        "apart": f"serial{busy};mps{idle}",
    }


def _limits(shares: Sequence[float]) -> str:
    """In whole per cent, none below 10: fewer SMs than that starve a job."""
    return "mps=" + ",".join(str(min(100, max(10, round(each)))) for each in shares)


def _numbers(positions: Sequence[int]) -> str:
    return "[" + ",".join(str(each + 1) for each in sorted(positions)) + "]"


def _slow_to_start(profile: Profile) -> bool:
    """Compiled jobs start for minutes; loaders want more cores than eight jobs find."""
    return profile.workload.execution == "compiled" or profile.workload.loader_workers > 0


def _about_s(jobs: Jobs, sharing: str, profiles: Mapping[str, Profile]) -> float:
    """As if nothing were gained by sharing."""
    names, steps = jobs
    groups = running_together(parse_sharing(sharing), len(names))
    return len(groups) * START_S + sum(
        n * profiles[name].step_s for name, n in zip(names, steps, strict=True)
    )


if __name__ == "__main__":
    main()
