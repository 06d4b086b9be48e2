"""What a command costs from its first import to its end, and how many files it runs through.

    python benchmarks/fresh_process.py                 # `advisor recommend` of three jobs
    python benchmarks/fresh_process.py predict JOB ... # any other command
    python benchmarks/fresh_process.py --before FOLDER # 3 and 7 jobs in another checkout, too

On 27 November 2026 this took 0.67 to 0.71 (3 jobs) and 0.84 to 0.86 (7 jobs) of the processor's
time of the commit c9fd82f5, and 14 ms for the same question again in one process.

Prints the least of some runs, because others use the machine too: seconds, seconds of the
processor (which other processes change little), both as ratios to `python -c "import numpy"`, and
the files of advisor/ in which a function runs. With another checkout, runs of both and of that
import alternate, and medians count. Nothing here is a test.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from statistics import median
from time import perf_counter

RECOMMEND = (
    "recommend",
    "resnet50-imagenet-bs32-amp",
    "bert-base-finetune-bs4",
    "gpt2-small-finetune-bs2",
    "--gpu",
    "h200-141gb",
)
SEVEN = (
    "recommend",
    "bert-base-finetune-bs16",
    "resnet50-imagenet64-bs128",
    "gpt2-small-finetune-bs2",
    "densenet121-cifar10-bs64",
    "lstm-wikitext-bs32",
    "t5-small-pretrain-bs16",
    "transformer-toy-bs512",
    "--gpu",
    "h200-141gb",
)
REPEATS = 9
KEEPING_BYTECODE = os.environ | {"PYTHONDONTWRITEBYTECODE": ""}  # as an installed package does
# Runs the command with a note of each file whose functions are called, in all threads.
NOTING = """
import atexit, inspect, os, sys, threading
import advisor
home, files = os.path.dirname(advisor.__file__), set()
def note(frame, event, _):
    code = frame.f_code  # those of modules and classes are not optimized
    if code.co_flags & inspect.CO_OPTIMIZED and code.co_filename.startswith(home):
        files.add(code.co_filename)
def say():
    sys.setprofile(None)
    print(len(files), file=sys.stderr)
atexit.register(say)
from advisor.__main__ import main
threading.setprofile(note)
sys.setprofile(note)
main()
"""


def cost_s(*words: str, of: Path | None = None) -> tuple[float, float]:
    """Seconds of a fresh process, and seconds that it keeps a processor busy; `of` a checkout."""
    environment = KEEPING_BYTECODE | ({} if of is None else {"PYTHONPATH": str(of)})
    before, began = getrusage(RUSAGE_CHILDREN), perf_counter()
    subprocess.run(
        [sys.executable, *words], check=True, capture_output=True, env=environment, cwd=of
    )
    length_s, after = perf_counter() - began, getrusage(RUSAGE_CHILDREN)
    return length_s, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def least_s(*words: str) -> tuple[float, float]:
    """The least of each cost over some runs."""
    lengths_s, busy_s = zip(*(cost_s(*words) for _ in range(REPEATS)), strict=True)
    return min(lengths_s), min(busy_s)


def beside(before: Path, *command: str) -> dict[str, object]:
    """Seconds of `command` in the checkout `before` and in this one."""
    words, here = ("-m", "advisor", *command), Path(__file__).resolve().parents[1]
    ways = {
        "before": lambda: cost_s(*words, of=before),
        "after": lambda: cost_s(*words, of=here),
        "import numpy": lambda: cost_s("-c", "import numpy"),
    }
    for way in ways.values():  # compiles what is not yet compiled
        way()
    rounds = [{name: way()[1] for name, way in ways.items()} for _ in range(REPEATS)]
    processor_s = {name: round(median(each[name] for each in rounds), 3) for name in ways}
    return {
        "command": " ".join(("advisor", *command)),
        "processor_s": processor_s,
        "after_over_before": round(processor_s["after"] / processor_s["before"], 3),
    }


def again_ms() -> float:
    """Milliseconds of a question about seven jobs that was answered before in this process."""
    from advisor.api import Advisor

    advisor, names = Advisor(gpu="h200-141gb"), SEVEN[1:-2]
    advisor.recommend(names)
    began = perf_counter()
    advisor.recommend(names)
    return round(1e3 * (perf_counter() - began), 1)


def files_passed(*words: str) -> int:
    """How many files of the package a command runs through."""
    done = subprocess.run(
        [sys.executable, "-c", NOTING, *words],
        check=True,
        capture_output=True,
        text=True,
        env=KEEPING_BYTECODE,
    )
    return int(done.stderr.split()[-1])


def main() -> None:
    if sys.argv[1:2] == ["--before"]:
        folder = Path(sys.argv[2]).resolve()
        compared = [beside(folder, *command) for command in (RECOMMEND, SEVEN)]
        print(json.dumps({"fresh": compared, "again_ms": again_ms()}, indent=1))
        return
    words = sys.argv[1:] or RECOMMEND
    files = files_passed(*words)  # also compiles what is not yet compiled
    start = least_s("-c", "import numpy")
    for what, ours, least in zip(
        ("from start to end", "of a processor"),
        least_s("-m", "advisor", *words),
        start,
        strict=True,
    ):
        print(f"{ours:6.3f} s {what}, {ours / least:.1f} x `import numpy`")
    print(f"{files} files of advisor/ run")


if __name__ == "__main__":
    main()
