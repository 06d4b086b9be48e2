"""The words of the command that measures a campaign."""

import argparse
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from advisor.measure.process.option_numbers import ABOVE_0


def parsed_words(argv: Sequence[str]) -> Namespace:
    """The options in the words `argv`.

    Raises:
        SystemExit: They ask for help (0), or cannot be parsed (2).
    """
    parser = argparse.ArgumentParser(
        prog="advisor campaign",
        description="Measures the runs of a plan on all GPUs asked for, out of one queue. What the "
        "folder has already is not done again. Also starts as `python -m advisor.campaign`, which "
        "needs torch, timm and nvidia-ml-py only.",
        epilog="Exit codes: 0 all measured or the deadline is near, 1 some failed, 2 wrong use, "
        "4 no GPU to use.",
    )
    add = parser.add_argument
    add("plan", type=Path, metavar="PLAN.toml", help="what to measure")
    add("--out", type=Path, metavar="DIR", help="folder of runs [your own, read by advisor]")
    add("--profiles", type=Path, metavar="DIR", help="folder of profiles, read, and where missing "
        "ones go [your own, read by advisor]")  # fmt: skip
    add_places(parser)
    add("--ray", metavar="ADDRESS", help="measure on the GPUs of this Ray cluster, e.g. auto; "
        "advisor must be installed on its nodes")  # fmt: skip
    return parser.parse_args(argv)


def add_places(parser: argparse.ArgumentParser) -> None:
    """Add the options that say where and how long a campaign measures."""
    add = parser.add_argument
    add("--devices", metavar="LIST", help="GPU indices or UUIDs, e.g. 0-7 or 0,2; or cpu,cpu to "
        "try out with two runners [0; with --ray, all that are free]")  # fmt: skip
    add("--cores", help="host cores, split evenly among the devices, e.g. 0-63 [all]")
    add("--deadline", type=ABOVE_0, metavar="S", help="begin nothing that would end after these")
    add("--dry-run", action="store_true", help="write the drawn list and count it; measure nothing")
