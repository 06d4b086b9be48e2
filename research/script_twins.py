"""Scripts beside workloads of the zoo that do the same: by turns of a profile, and of a second.

`benchmarks/whole_way.py --twins` profiled both by turns, some minutes each. Where
`benchmarks/twin_turns.py` measured, two processes of each took turns of a second on one core, or on
the next in each round, so that hosts that change from minute to minute fall on all alike. Cores of
these hosts are now fast and now 1.6 times as slow, since somebody else's thread may share them: the
fastest turns are those that nobody disturbed.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from advisor.workload.profile import Profile
from research.files import profiles_in

# Each script, and the workload of the zoo that does the same.
ALIKE = {
    "plain_loop": "resnet50-imagenet64-bs32",
    "timm_style": "vit_small_patch16_224-imagenet-bs32-amp",
    "lightning_style": "mobilenetv3_large_100-imagenet64-bs128-loader2",
}

Paces = Sequence[float | None]


def twins(folder: Path) -> Iterator[dict[str, Any]]:
    """Each script beside the workload of the zoo that does the same, by medians of their profiles.

    ``step``, ``on_gpu`` and ``memory`` are of the script over the workload's, less 1;
    ``script_repeats`` and ``zoo_repeats`` how far the steps of the profiles of one job differ.
    """
    profiled = [profiles_in(turn) for turn in sorted(folder.iterdir())]
    for script, name in ALIKE.items():
        own, zoo = ([turn[job] for turn in profiled] for job in (script, name))
        yield {
            "script": script,
            "step": _medians(own, zoo, lambda each: each.step_s),
            "on_gpu": _medians(own, zoo, lambda each: each.gpu_s),
            "memory": _medians(own, zoo, lambda each: each.memory.device_mib),
            "script_repeats": _apart(own),
            "zoo_repeats": _apart(zoo),
        }


def turns(folder: Path, how: str) -> Iterator[dict[str, Any]]:
    """Of each file of turns: the script's steps over the zoo's, and two processes of one kind.

    Each is the median over rounds in which both said a pace, less 1; ``undisturbed`` is the bound
    of the fastest tenth of the script's turns over that of the zoo's, less 1. `how` cores changed.
    """
    for path in sorted(folder.glob("*.json")):
        step_s: dict[str, Paces] = json.loads(path.read_text())["step_s"]
        script, zoo = ([step_s[f"{kind} {turn}"] for turn in (1, 2)] for kind in ("script", "zoo"))
        yield {
            "script": path.stem,
            "how": how,
            "step": _over(_mean(*script), _mean(*zoo)),
            "undisturbed": _fastest(script) / _fastest(zoo) - 1,
            "scripts": abs(_over(*script)),
            "zoos": abs(_over(*zoo)),
        }


def _mean(one: Paces, other: Paces) -> Paces:
    return [a and b and (a + b) / 2 for a, b in zip(one, other, strict=True)]


def _fastest(processes: Sequence[Paces]) -> float:
    return quantiles([each for paces in processes for each in paces if each], n=10)[0]


def _over(one: Paces, other: Paces) -> float:
    return median(a / b for a, b in zip(one, other, strict=True) if a and b) - 1


def _medians(
    one: Sequence[Profile], other: Sequence[Profile], number: Callable[[Profile], float | None]
) -> float:
    mine, theirs = (median(number(each) or 0.0 for each in these) for these in (one, other))
    return mine / theirs - 1


def _apart(profiles: Sequence[Profile]) -> float:
    steps = [each.step_s for each in profiles]
    return max(steps) / min(steps) - 1
