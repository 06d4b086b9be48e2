"""How good predictions are on the committed runs, as the report scores them.

Each family is left out in turn, so that its jobs are predicted by a model that saw none of them.
"""

import json
from pathlib import Path

from advisor.hardware.gpus import gpu
from research.evaluate import evaluate
from research.files import measured
from research.regret import MODEL
from research.scoreboard import ALL, scores_of

GPU = "h200-141gb"
LEFT_OUT = ("bert", "resnet", "t5")
# What the model is fitted to besides, in the quick version.
LEARNT = ("convnext", "gpt2")
MODES = ("naive", "mps", "mps-limits")

_ROOT = Path(__file__).parents[2]
_MEASURED = _ROOT / "profiles" / GPU
_STORED = Path(__file__).with_name("accuracy.json")
_SCORED = ("drawn", "validation")  # purposes of runs


def read():
    return json.loads(_STORED.read_text())


def write(figures):
    _STORED.write_text(json.dumps(figures, indent=1) + "\n")


def figures_of(folder, *, whole=False):
    """Error, coverage and regret; of all families where it is the `whole`, else of three.

    Args:
        folder: An empty one, for profiles and runs.
        whole: Whether each of the 29 families is left out.
    """
    _fill(folder / GPU, whole)
    scores = scores_of(evaluate(*measured(folder / GPU), gpu(GPU)))
    regret = scores.chosen.rules[MODEL]
    figures = {"regret": {name: getattr(regret, name) for name in ("n", "mean", "worst")}}
    for row in scores.pooled():
        if row.bound == row.jobs == ALL and row.mode in MODES:
            figures[row.mode] = {name: getattr(row, name) for name in ("n", "mape", "coverage90")}
    return figures


def _fill(folder, whole):
    """Put the profiles and runs of some families there.

    Of the scored runs those of the families in `LEFT_OUT` alone are kept for scoring.
    """
    (folder / "runs").mkdir(parents=True)
    for path in _MEASURED.glob("*.json"):
        workload = json.loads(path.read_text()).get("workload")
        if workload and (whole or workload["family"] in LEFT_OUT + LEARNT):
            (folder / path.name).symlink_to(path)
    lines = []
    for path in sorted((_MEASURED / "runs").glob("*.jsonl")):
        for run in map(json.loads, path.read_text().splitlines()):
            families = {tenant["workload"]["family"] for tenant in run["tenants"]}
            if not whole and not families <= {*LEFT_OUT, *LEARNT}:
                continue
            if not whole and run["purpose"] in _SCORED and not families <= {*LEFT_OUT}:
                run["purpose"] = "chosen"  # the model is fitted to it all the same
            lines.append(json.dumps(run))
    (folder / "runs" / "runs.jsonl").write_text("\n".join(lines) + "\n")
