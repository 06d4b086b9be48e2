"""Jobs that record when and on which GPUs they ran, and whether that was as planned."""

from collections import defaultdict
from pathlib import Path

from tests.launch.script_node import put

RECORDER = """\
#!/bin/bash
note() { echo "$ADVISOR_JOB $1 $EPOCHREALTIME ${SLURM_JOB_GPUS-$CUDA_VISIBLE_DEVICES}" >> events; }
note begun
sleep 0.2
note ended
"""


def put_recorders(names):
    for name in names:
        put(Path(f"{name}.sh"), RECORDER)


def check_ran_as_planned(plans):
    """Check that each job ran once, each group after the one before, and no more at once."""
    times = defaultdict(dict)
    for line in Path("events").read_text().splitlines():
        number, what, time, _ = line.split()
        assert what not in times[int(number)], f"{number} ran twice"
        times[int(number)][what] = float(time)
    assert times.keys() == {start.number for plan in plans for start in plan.starts}
    for plan in plans:
        free = 0.0
        for stage in plan.stages:
            runs = [times[start.number] for start in stage.starts]
            assert free <= min(run["begun"] for run in runs)
            free = max(run["ended"] for run in runs)
            for run in runs:
                at = run["begun"]
                assert sum(o["begun"] <= at < o["ended"] for o in runs) <= stage.at_once


def gpus_of_jobs():
    """The indices of the GPUs that each job had."""
    lines = [line.split() for line in Path("events").read_text().splitlines()]
    return {int(number): [int(each) for each in gpus.split(",")] for number, _, _, gpus in lines}
