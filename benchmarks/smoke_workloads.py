"""Builds workloads on a device and takes some steps of each, to see that all of them run.

    python benchmarks/smoke_workloads.py --device cuda [--timeout 300] [WORKLOAD...]

One line each: milliseconds a step, peak memory, the loss; or what went wrong. Each runs in a
process of its own, after whose failure the others go on. Exits 1 if any failed.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

LIST = Path(__file__).with_name("workloads.toml")
STEPS, WARM_STEPS = 5, 3


def listed() -> list[str]:
    document = tomllib.loads(LIST.read_text())
    return [*document["small"], *document["large"]]


def tried(name: str, device: str) -> dict[str, float]:
    """Milliseconds a step, peak MiB and the loss of the last of some steps, in this process."""
    import torch

    from advisor.workload.named_workloads import workload
    from advisor.zoo.task import build

    torch.set_num_threads(1)
    wait: Callable[[], None] = torch.cuda.synchronize if device == "cuda" else lambda: None
    began = perf_counter()
    step = build(workload(name), device)
    for _ in range(WARM_STEPS):
        step()
    wait()
    ready = perf_counter()
    for _ in range(STEPS):
        step()
    wait()
    step_ms = 1e3 * (perf_counter() - ready) / STEPS
    peak_mib = torch.cuda.max_memory_reserved() / 2**20 if device == "cuda" else 0.0
    loss = float(step.loss) if step.loss is not None else math.nan
    step.close()
    return {"step_ms": step_ms, "peak_mib": peak_mib, "loss": loss, "ready_s": ready - began}


def line_of(name: str, device: str, timeout_s: float) -> tuple[bool, str]:
    """Whether `name` ran well in a fresh process, and what to say of it."""
    root = Path(__file__).resolve().parents[1]
    paths = [str(root), *filter(None, [os.environ.get("PYTHONPATH")])]
    command = [sys.executable, __file__, "--one", "--device", device, name]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        )
    except subprocess.TimeoutExpired:
        return False, f"took more than {timeout_s:.0f} s"
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.strip()]
        return False, (said or [f"ended with exit status {done.returncode}"])[-1][:300]
    told = json.loads(done.stdout.splitlines()[-1])
    text = "{step_ms:9.2f} ms {peak_mib:9.0f} MiB  loss {loss:.4g}  ready after {ready_s:.0f} s"
    return math.isfinite(told["loss"]), text.format_map(told)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help="[all listed]")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--timeout", type=float, default=300.0, metavar="S", help="of each [300]")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(tried(asked.workloads[0], asked.device)))
        return 0
    failed = 0
    for name in asked.workloads or listed():
        well, text = line_of(name, asked.device, asked.timeout)
        failed += not well
        print(f"{'ok  ' if well else 'FAIL'} {name:52} {text}", flush=True)
    print(f"{failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
