"""The options of ``advisor profile``, parsed into a `ProfileRequest`."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from advisor.errors import InvalidInput
from advisor.workload.named_workloads import timm_workload
from advisor.workload.spec import Execution, Precision, Workload

_OF_TIMM = (
    "resolution", "classes", "batch", "precision", "execution", "loader_workers", "examples"
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileRequest:
    """A batch of workloads to profile.

    Attributes:
        workloads: Names in the zoo, or workloads already described.
        device: GPU index or UUID, or ``"cpu"``.
        out: Folder of profiles; None: the user's own, for the device's GPU model.
        gpu: Catalogue key that the device must have; None: any.
        probe: Whether to measure under MPS too.
        cores: Host cores for tenants, e.g. ``"0-7"``; None: all.
        deadline_s: No workload is begun that would end later than this; None: no deadline.
        skip_existing: Leave out workloads whose profile is in `out` already.
        command: The user's command line, for the record.
    """

    workloads: tuple[str | Workload, ...]
    device: str
    out: Path | None
    gpu: str | None = None
    probe: bool = True
    cores: str | None = None
    deadline_s: float | None = None
    skip_existing: bool = False
    command: str = "advisor profile"


def parsed_request(argv: Sequence[str], command: str) -> ProfileRequest:
    """The request in the words `argv`.

    Raises:
        InvalidInput: They contradict each other.
        SystemExit: They ask for help (0), or cannot be parsed (2).
    """
    words = _parser().parse_args(argv)
    return ProfileRequest(
        workloads=(*words.workloads, *_timm(words)),
        device=words.device,
        out=words.out,
        gpu=words.gpu,
        probe=words.probe,
        cores=words.cores,
        deadline_s=words.deadline,
        skip_existing=words.skip_existing,
        command=command,
    )


def _timm(words: argparse.Namespace) -> tuple[Workload, ...]:
    given = {name: getattr(words, name) for name in _OF_TIMM if getattr(words, name) is not None}
    if words.timm is None:
        if given:
            flag = "--" + next(iter(given)).replace("_", "-")
            raise InvalidInput(f"{flag} describes a model of timm: give --timm NAME too.")
        if not words.workloads:
            raise InvalidInput("name a workload, or a model with --timm. `advisor workloads` lists")
        return ()
    if lacking := [name for name in ("resolution", "classes", "batch") if name not in given]:
        raise InvalidInput(f"--timm {words.timm} also needs --{' and --'.join(lacking)}.")
    examples = given.pop("examples", None)
    return (timm_workload(words.timm, examples_per_epoch=examples, **given),)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="advisor profile",
        description="Measures each workload alone on a GPU and writes DIR/NAME.json. Also starts "
        "as `python -m advisor.profiling`, which needs torch, timm and nvidia-ml-py only.",
        epilog="Exit codes: 0 all measured, 1 some failed, 2 wrong use, 4 no GPU to use.",
    )
    add = parser.add_argument
    add("workloads", nargs="*", metavar="WORKLOAD", help="names; `advisor workloads` lists them")
    add("--device", default="0", help="GPU index or UUID, or cpu to try out [0]")
    add("--out", type=Path, metavar="DIR", help="folder of profiles [your own, read by advisor]")
    add("--gpu", metavar="KEY", help="refuse any other GPU model than this, e.g. h200-141gb")
    add("--no-probe", dest="probe", action="store_false", help="do not measure under MPS")
    add("--cores", help="host cores for the processes, e.g. 0-7 [all]")
    add("--deadline", type=_seconds, metavar="S", help="begin none that would end after these")
    add("--skip-existing", action="store_true", help="leave out what DIR has already")
    _add_timm(parser.add_argument_group("any model of timm"))
    return parser


def _add_timm(group: "argparse._ArgumentGroup") -> None:
    add = group.add_argument
    add("--timm", metavar="NAME", help="its name there, e.g. resnet18")
    add("--resolution", type=int, metavar="PX", help="pixels of an image's side")
    add("--classes", type=int, help="outputs of the classifier")
    add("--batch", type=int, help="images a step")
    add("--precision", choices=get_args(Precision), help="[default]")
    add("--execution", choices=get_args(Execution), help="[eager]")
    add("--loader-workers", type=int, metavar="N", help="processes of a data loader [0]")
    add("--examples", type=int, metavar="N", help="images of one pass, for epoch times")


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return value
