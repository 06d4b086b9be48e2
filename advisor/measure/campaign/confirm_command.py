"""``advisor confirm``: measures the studies' cases on a GPU, to set beside what is predicted."""

import argparse
from argparse import Namespace
from collections.abc import Sequence

from advisor.errors import InvalidInput
from advisor.measure.campaign.campaign_command import add_places, measure_campaign
from advisor.measure.campaign.confirm_cases import NAME, cases
from advisor.measure.process.claimed_device import device_at_hand, devices_in
from advisor.measure.process.provenance import command_line
from advisor.measure.process.supervisor import say
from advisor.workload.files import user_folder
from advisor.workload.writing import new_path


def run(argv: Sequence[str]) -> int:
    """Measure the cases on the devices that the words `argv` name; the exit code.

    Raises:
        InvalidInput: Words or files are invalid.
        GpuUnavailable: A device cannot be used.
    """
    asked = parsed(argv)
    if asked.apply:
        raise InvalidInput(
            "--apply makes MIG instances, which takes the whole package: `advisor confirm --apply`"
        )
    key = device_at_hand(devices_in(asked.devices or "0")[0]).key
    campaign = cases(key, whole=asked.out is not None)
    place_records(asked, key)
    code = measure_campaign(campaign, asked, command_line("advisor.confirm", argv), one_file=True)
    say_what_next(asked, key)
    return code


def place_records(asked: Namespace, key: str) -> None:
    """Say in `asked` where profiles and runs of the GPU `key` go."""
    asked.store = asked.out
    folder = (asked.out or user_folder("profiles")) / key
    asked.profiles, asked.out, asked.ray = folder, folder / "runs", None


def say_what_next(asked: Namespace, key: str) -> None:
    """Say how predictions are set beside what was measured."""
    if not asked.dry_run:
        words = f"--gpu {key} --from {asked.out / NAME}.jsonl"
        words += "" if asked.store is None else f" --profiles {asked.store} --out {asked.store}"
        say(f"`advisor validate {words}` sets predictions beside them")


def parsed(argv: Sequence[str]) -> Namespace:
    """The options in the words `argv`.

    Raises:
        SystemExit: They ask for help (0), or cannot be parsed (2).
    """
    parser = argparse.ArgumentParser(
        prog="advisor confirm",
        description="Measures the cases of published studies on your GPU, in about a quarter of an "
        "hour: trainings of three sizes alone, 2, 3 and 7 at once, and a recommender beside "
        "ResNet-152. With --apply, on a GPU in MIG mode, the same on MIG instances, which are "
        "made and taken away again: not yet run on MIG hardware. All runs go to one file, which "
        "`advisor fit` takes. What is there already is not done again. Without MIG it also starts "
        "as `python -m advisor.confirm`, which needs torch, timm, numpy and nvidia-ml-py only.",
        epilog="Exit codes: 0 all measured or the deadline is near, 1 some failed, 2 wrong use, "
        "4 no GPU to use.",
    )
    add = parser.add_argument
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument("--without-mig", action="store_true", help="time-sliced and under MPS; leave "
        "MIG as it is")  # fmt: skip
    how.add_argument("--apply", action="store_true", help="on MIG instances: change those of a GPU "
        "that is in MIG mode, and put back what was there")  # fmt: skip
    add("--out", type=new_path, metavar="DIR", help="folder laid out as `profiles/`: runs go to "
        "DIR/GPU/runs/confirm.jsonl, and to DIR/GPU a profile of each job, also of those that have "
        "a shipped one [your own, read by advisor]")  # fmt: skip
    add_places(parser)
    return parser.parse_args(argv)
