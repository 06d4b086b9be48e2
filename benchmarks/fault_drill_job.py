"""A job of `fault_drill.py`: small steps, and what it does wrong.

    python fault_drill_job.py cuda|cpu steps N [loud] | oom | hang | fork | deaf

When all went well it writes so into the file DRILL_TRUTH, whatever anybody reports of it.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import sleep

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from advisor.measure.process.progress_file import ProgressWriter

STEP_S = 0.02


def stepper(device: str) -> Callable[[], None]:
    """What does one step."""
    stand_in = os.environ.get("DRILL_STAND_IN")
    if stand_in:
        return __import__(stand_in, fromlist=["client_step"]).client_step()
    if device == "cpu":
        return lambda: sleep(STEP_S)
    import torch

    weights = torch.randn(1024, 1024, device="cuda")

    def step() -> None:
        (weights @ weights).sum().item()
        sleep(STEP_S / 2)

    return step


def exhaust(device: str) -> None:
    if device == "cpu" or os.environ.get("DRILL_STAND_IN"):
        raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB.")
    import torch

    held = []
    while True:
        held.append(torch.empty(2**30, dtype=torch.uint8, device="cuda"))


def leave_children() -> None:
    """Processes in sessions of their own, whose parents have ended."""
    words = (
        "import os, time\nfor _ in range(3):\n    if os.fork() == 0: os.setsid()\ntime.sleep(600)"
    )
    subprocess.Popen([sys.executable, "-c", words], start_new_session=True)
    sleep(0.5)


def main() -> None:
    device, behaviour, *more = sys.argv[1:]
    writer, step = ProgressWriter(), stepper(device)
    if behaviour == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    steps = int(more[0]) if behaviour == "steps" else 30
    number = 0
    while number < steps or behaviour == "deaf":
        step()
        number += 1
        writer.report(number)
        if "loud" in more:
            print("x" * 8000, flush=True)
    if behaviour == "oom":
        exhaust(device)
    if behaviour == "hang":
        sleep(600)
    if behaviour == "fork":
        leave_children()
    Path(os.environ["DRILL_TRUTH"]).write_text("done")


if __name__ == "__main__":
    main()
