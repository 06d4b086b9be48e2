"""Plans of every kind in every format, some of which golden files show.

``python -m tests.launch.golden_exports`` writes the files again; look at what changed.
"""

from dataclasses import replace
from pathlib import Path

from advisor.errors import InvalidInput
from advisor.launch.commands import side_by_side
from advisor.launch.exports import EXPORTS, SUFFIXES, WHOLE
from tests.handed import JOBS, handed

GOLDEN = Path(__file__).parents[1] / "golden" / "exports"
SHOWN = (
    "serial.commands.sh",
    "limits.commands.sh",
    "mig.commands.sh",
    "phases.commands.sh",
    "mig.slurm.sh",
    "mig.mig-parted.yaml",
    "naive.kubernetes.yaml",
    "mig.kubernetes.yaml",
    "limits.kubernetes-script.yaml",
    "several-gpus.slurm.sh",
)

PLANS = {
    "serial": handed("serial"),
    "naive": handed("naive"),
    "mps": handed("mps"),
    "limits": handed("mps=43,57.5"),
    "limits-above-100": handed("mps=80,70"),
    "capped-memory": handed("mps=50,50", held_mib=90_000, least_mib=60_000),
    "power-cap": handed("naive", cap_w=350.0),
    "mig": handed("mig=3g.71gb,4g.71gb@0"),
    "equal-instances": handed("mig=1g.18gb,1g.18gb,1g.35gb@4", JOBS),
    "several-on-an-instance": handed(
        "mig=4g.71gb[1]+3g.71gb[2,3]/mps=60,80", JOBS, held_mib=40_000, least_mib=30_000
    ),
    "compute-instances": handed("mig=7g.141gb/ci=3c[1]+4c[2]"),
    "compute-beside-whole": handed("mig=4g.71gb/ci=2c[1]+2c[2]/mps+3g.71gb[3]", JOBS),
    "phases": handed("mps=43,57[2,1];naive[3]", JOBS),
    "queue": handed("mps/2[3,1,2]", JOBS),
    "queue-in-phases": handed("naive/2[4,2,1];mps[3]", (*JOBS, JOBS[0])),
    "phases-of-mig": handed(
        "mig=4g.71gb[1]+3g.71gb[2];mig=7g.141gb[3];serial[4]", (*JOBS, JOBS[0])
    ),
}

BIG = replace(JOBS[2], gpus=2)
SEVERAL = side_by_side(
    {
        0: handed("mps[1,2];serial[3]", (*JOBS[:2], BIG)),
        1: handed("serial", (JOBS[1], BIG, JOBS[0])),
    },
    {0: [1, 2, 4], 1: [3, 4, 5]},
)
"""A plan for two GPUs, of which job 4 takes both."""


def written_for_several() -> dict[str, str]:
    """The text of `SEVERAL` for Slurm, by the name of a file."""
    return {"several-gpus.slurm.sh": WHOLE["slurm"](SEVERAL)}


def written() -> dict[str, str]:
    """The text of each plan in each format, by the name of a file; left out if a format cannot."""
    found = {}
    for name, plan in PLANS.items():
        for form, suffix in SUFFIXES.items():
            try:
                found[f"{name}.{suffix}"] = EXPORTS[form](plan)
            except InvalidInput:
                continue
    return found


if __name__ == "__main__":
    GOLDEN.mkdir(parents=True, exist_ok=True)
    for stale in GOLDEN.iterdir():
        stale.unlink()
    texts = written() | written_for_several()
    for name in SHOWN:
        (GOLDEN / name).write_text(texts[name])
