"""``advisor profile --from-numbers``: writes what is known of a job as a minimal profile."""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from advisor.errors import InvalidInput
from advisor.hardware.bare_numbers import check_power
from advisor.hardware.catalogue import gpu_meant
from advisor.measure.process.supervisor import say
from advisor.workload.files import beside_package, is_file, read_bytes, shown, user_folder
from advisor.workload.minimal_profile import MinimalProfile, holds_minimal, minimal_text
from advisor.workload.writing import new_path, write_whole


def run(argv: Sequence[str]) -> int:
    """Write the profile that `argv` describes; 0.

    Raises:
        InvalidInput: The numbers are impossible, or a profile with more in it is there already.
        SystemExit: The words ask for help (0), or cannot be parsed (2).
    """
    asked = _parser().parse_args(argv)
    card = gpu_meant(asked.gpu)
    minimal = MinimalProfile(
        schema=1, workload=asked.name, gpu=card.key, batch_size=asked.batch_size,
        step_s=asked.step_s, memory_mib=asked.memory_mib, power_w=asked.power_w,
        gpu_utilization=asked.gpu_utilization, memory_utilization=asked.memory_utilization,
        examples_per_epoch=asked.examples_per_epoch,
    )  # fmt: skip
    check_power(minimal.whole(), card)
    if minimal.memory_mib > card.memory_mib:
        raise InvalidInput(
            f"--memory-mib is {minimal.memory_mib:,.0f}, and {card.key} has {card.memory_mib:,}: "
            "no job held that there. Check the number, or --gpu."
        )
    file, own = f"{minimal.workload}.json", user_folder("profiles") / card.key
    path = (asked.out or own) / file
    refuse_fuller(path)
    if asked.out is None:
        refuse_fuller(beside_package("profiles") / card.key / file)  # which the own one would hide
    write_whole(path, minimal_text(minimal))
    say(f"  {path}")
    return 0


def refuse_fuller(path: Path) -> None:
    """Refuse to write bare numbers over a profile that says more.

    Raises:
        InvalidInput: Such a one is there.
    """
    if is_file(path) and not holds_minimal(read_bytes(path)):
        raise InvalidInput(
            f"{shown(path)}: that profile says more than these numbers. Choose another --name."
        )


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text[:40]!r} is no number: write it alone, in the unit that the option names"
        ) from None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="advisor profile --from-numbers",
        description="Writes DIR/NAME.json from what a training log and nvidia-smi showed of a job "
        "alone on a GPU. Answers for it have wider ranges than for one that was measured.",
        epilog='The file holds {"schema": 1, "workload": "my-job", "gpu": "a100-40gb", '
        '"batch_size": 64, "step_s": 0.12, "memory_mib": 5300, "power_w": 190, '
        '"gpu_utilization": 0.83, "memory_utilization": 0.41}; the last three may be null, and '
        '"examples_per_epoch" may follow. Every command takes its path as a JOB.',
    )
    add = parser.add_argument
    add("--from-numbers", action="store_true", help=argparse.SUPPRESS)
    add("--name", required=True, help="what the job is called")
    known = os.environ.get("ADVISOR_GPU") or None
    add(
        "--gpu", required=known is None, default=known, metavar="KEY",
        help="a GPU that `advisor gpus` lists [env var: ADVISOR_GPU]",
    )  # fmt: skip
    add("--batch-size", required=True, type=int, metavar="N", help="examples a step")
    add("--step-s", required=True, type=_number, metavar="S", help="seconds of a training step")
    add("--memory-mib", required=True, type=_number, metavar="MIB", help="what its process holds")
    add("--power-w", type=_number, metavar="W", help="mean power of the whole GPU")
    add("--gpu-utilization", type=_number, metavar="SHARE", help="nvidia-smi's, 0 to 1")
    add("--memory-utilization", type=_number, metavar="SHARE", help="nvidia-smi's, 0 to 1")
    add("--examples-per-epoch", type=int, metavar="N", help="for epoch times")
    add(
        "--out", type=new_path, metavar="DIR", help="folder of profiles [your own, read by advisor]"
    )
    return parser
