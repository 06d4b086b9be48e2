"""Whole answers of `recommend`, `predict`, `simulate` and `export`, to compare two versions by.

    python benchmarks/whole_answers.py FOLDER      # a file for each of 80 commands

Run it with each version, then `diff -r` the folders: what a user sees should change on purpose
only. Questions of many jobs are searched for as long as there is time, so that theirs may differ
from one time to the next. Nothing here is a test.
"""

import subprocess
import sys
from itertools import product
from pathlib import Path

from answers import QUESTIONS

PAIR = "resnet50-imagenet64-bs128 bert-base-finetune-bs16"
FOUR = "cnn-cifar10-bs128:2 gpt2-small-pretrain-bs8-amp dlrm-1gb-bs128"
SHARINGS = (
    "serial", "naive", "mps", "mps=43,57", "mig=3g.71gb,4g.71gb", "mig=4g.71gb@0[1,2]/mps=60,40",
    "7g.141gb@0/ci=3c[1]+4c[2]", "naive[1];mps[2]", "serial[1];naive[2]", "mps=100,14",
)  # fmt: skip
FORMS = ("commands", "mps", "mig-parted", "slurm", "radt")
PLANS = (f"{PAIR} --sharing mps=43,57", f"{FOUR} --sharing naive[1,2];mps[3,4]",
         f"{PAIR} --sharing mig=3g.71gb,4g.71gb", f"{FOUR} --sharing mps")  # fmt: skip


def commands() -> list[str]:
    """Twenty of each, as words after ``advisor``."""
    recommend = [f"recommend {each}" for each in QUESTIONS]
    predict = [f"predict {PAIR} --sharing {each}{form}"
               for each, form in product(SHARINGS, ("", " --json"))]  # fmt: skip
    simulate = [f"simulate {jobs} --sharing {each}{form}"
                for jobs, each, form in product((PAIR, f"{PAIR}:2"), ("serial", "naive", "mps",
                "naive[1];mps[2]", "mps=43,57"), ("", " --json"))]  # fmt: skip
    export = [f"export {plan} --format {form}" for plan, form in product(PLANS, FORMS)]
    return [*recommend, *predict, *simulate, *export]


def main() -> None:
    """Write what each command prints, errors too, into a folder of its number."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for number, words in enumerate(commands()):
        done = subprocess.run(
            [sys.executable, "-m", "advisor", *words.split()],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        said = f"advisor {words}\n{done.stdout}{done.stderr}exit {done.returncode}\n"
        (folder / f"{number:02}.txt").write_text(said)


if __name__ == "__main__":
    main()
