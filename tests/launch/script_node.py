"""Exported scripts among stand-ins: how they are run, and what their jobs saw."""

import os
import subprocess
from pathlib import Path

from tests.handed import write
from tests.waiting import PATIENCE_S

# Writes down whether MPS answers where its settings say, then does what the test asks of it.
JOB = """\
#!/usr/bin/env bash
name=${0##*/}
echo get_server_list | nvidia-cuda-mps-control > /dev/null 2>&1 && on=on || on=off
echo "$on device=$CUDA_VISIBLE_DEVICES limit=$CUDA_MPS_ACTIVE_THREAD_PERCENTAGE" > "$name.seen"
echo "${!CUDA_MPS_@}" > "$name.named"
[ -z "$ENDLESS" ] || { sleep 600 & echo $! > "$name.pid"; wait; }
[ "$name" != "$FAILS" ] || exit 3
"""
QUICK_SLEEP = """\
#!/bin/bash
[ "$1" = 600 ] && exec /usr/bin/sleep 600
exec /usr/bin/sleep 0.02
"""
# Lists twelve GPUs of this test alone; GPU 3 is in MIG mode if the test asks for that.
SMI = """\
#!/bin/sh
for index in 0 1 2 3 4 5 6 7 8 9 10 11; do
  mode=Disabled
  [ "$index" != 3 ] || mode=$MODE_OF_3
  echo "GPU-$index-$MACHINE, $index, $mode"
done
"""
# Gives the third GPU of its node to each job, which it runs at once and whole.
SBATCH = """\
#!/usr/bin/env bash
export CUDA_VISIBLE_DEVICES=2
bash
echo $? >> submitted
"""


def put(path, text):
    path.write_text(text)
    path.chmod(0o755)


def pipe_folders():
    """The folders of pipes of MPS daemons for the GPUs of this node."""
    return list(Path("/tmp").glob(f"advisor-mps-*{os.environ['MACHINE']}*"))


def tools_without_mps(folder):
    """What this machine has, but for MPS, if it has that."""
    folder.mkdir()
    for tool in Path("/usr/bin").iterdir():
        if not tool.name.startswith("nvidia-"):
            (folder / tool.name).symlink_to(tool)
    return folder


def script(form, plan):
    put(Path("plan.sh"), write(form, plan))
    return ["bash", "./plan.sh"]


def ended(form, plan, *words, **variables):
    return subprocess.run(
        [*script(form, plan), *words],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )


def seen_by(job):
    """The settings that the job got, and what it saw of MPS; None where it never ran."""
    file = Path(f"{job.name}.sh.seen")
    return file.read_text().strip() if file.exists() else None
