"""Plans of every kind in every format, some of which golden files show.

``python -m tests.launch.golden_exports`` writes the files again; look at what changed.
"""

from dataclasses import replace
from pathlib import Path

from advisor.errors import InvalidInput
from advisor.launch.exports import FORMATS
from tests.handed import JOBS, handed, on_gpus, write

GOLDEN = Path(__file__).parents[1] / "golden" / "exports"
SHOWN = (
    "serial.commands.sh",
    "limits.commands.sh",
    "mig.commands.sh",
    "phases.commands.sh",
    "mig.slurm.sh",
    "mig.mig-parted.yaml",
    "limits.kubernetes.yaml",
    "several-gpus.slurm.sh",
)

BIG = replace(JOBS[2], gpus=2)
SEVERAL = on_gpus(
    ("mps[1,2];serial[3]", (*JOBS[:2], BIG)),
    ("serial", (JOBS[1], BIG, JOBS[0])),
    numbers=[[1, 2, 4], [3, 4, 5]],
)
"""A plan for two GPUs, of which job 4 takes both."""

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
    "two-gpus": on_gpus(("naive", JOBS[:2], 350.0), ("mps=43,57.5", JOBS[:2])),
    "several-gpus": SEVERAL,
}


def written(forms=FORMATS):
    """The text of each plan in each format, by the name of a file; left out if a format cannot."""
    texts = {}
    for name, plan in PLANS.items():
        for form in forms:
            if isinstance(plan, tuple) and not FORMATS[form].several_gpus:
                continue
            try:
                texts[f"{name}.{FORMATS[form].file_end}"] = write(form, plan)
            except InvalidInput:
                continue
    return texts


if __name__ == "__main__":
    GOLDEN.mkdir(parents=True, exist_ok=True)
    for stale in GOLDEN.iterdir():
        stale.unlink()
    texts = written()
    for name in SHOWN:
        (GOLDEN / name).write_text(texts[name])
