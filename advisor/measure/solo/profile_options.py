"""The options of ``advisor profile``, and which models of timm they ask for."""

import argparse
from argparse import Namespace
from pathlib import Path
from typing import get_args

from advisor.errors import InvalidInput
from advisor.measure.process.option_numbers import ABOVE_0
from advisor.measure.process.tenant_handle import LOAD_S
from advisor.measure.solo.script_options import add_script_options
from advisor.workload.named_workloads import timm_workload
from advisor.workload.spec import Execution, Precision, Workload
from advisor.workload.writing import new_path

_OF_TIMM = (
    "resolution", "classes", "batch", "precision", "execution", "loader_workers", "examples"
)  # fmt: skip


def timm_workloads(words: Namespace) -> list[Workload]:
    """The model of timm that the words describe, if any.

    Raises:
        InvalidInput: They contradict each other.
    """
    given = {name: getattr(words, name) for name in _OF_TIMM if getattr(words, name) is not None}
    if words.timm is None:
        if given:
            flag = "--" + next(iter(given)).replace("_", "-")
            raise InvalidInput(f"{flag} describes a model of timm: give --timm NAME too.")
        if not words.workloads:
            raise InvalidInput("name a workload, or a model with --timm. `advisor workloads` lists")
        return []
    if lacking := [name for name in ("resolution", "classes", "batch") if name not in given]:
        raise InvalidInput(f"--timm {words.timm} also needs --{' and --'.join(lacking)}.")
    examples = given.pop("examples", None)
    return [timm_workload(words.timm, examples_per_epoch=examples, **given)]


def profile_parser() -> argparse.ArgumentParser:
    """What reads the words of ``advisor profile``, those of a script's own command left out."""
    parser = argparse.ArgumentParser(
        prog="advisor profile",
        usage="advisor profile [-h] [options] WORKLOAD...\n"
        "       advisor profile [-h] [options] -- python train.py [arguments]",
        description="Measures each workload alone on a GPU and writes DIR/NAME.json: workloads by "
        "name, or a script of your own, started as it is. Also starts "
        "as `python -m advisor.profiling`, which needs torch, timm and nvidia-ml-py only; "
        "`advisor profile --mlflow URI` logs to MLflow what is measured.",
        epilog="Exit codes: 0 all measured, 1 some failed, 2 wrong use, 4 no GPU to use.",
    )
    _add_measuring_options(parser)
    add_script_options(parser.add_argument_group("a script of your own, after --"))
    _add_timm_options(parser.add_argument_group("any model of timm"))
    return parser


def _add_measuring_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("workloads", nargs="*", metavar="WORKLOAD", help="names; `advisor workloads` lists them")
    add("--device", default="0", help="GPU index or UUID, or cpu to try out [0]")
    add(
        "--out", type=new_path, metavar="DIR", help="folder of profiles [your own, read by advisor]"
    )
    add("--gpu", metavar="KEY", help="refuse any other GPU model than this, e.g. h200-141gb")
    add("--no-probe", dest="probe", action="store_false", help="do not measure under MPS")
    add("--cores", help="host cores for the processes, e.g. 0-7 [all]")
    add("--deadline", type=ABOVE_0, metavar="S", help="start none that would end later than this")
    add("--patience", type=ABOVE_0, metavar="S", default=LOAD_S, help="end what takes no step "
        "for so long, e.g. while it loads or compiles [300]")  # fmt: skip
    add("--skip-existing", action="store_true", help="leave out what DIR has already")
    add("--data", type=Path, metavar="DIR", help="images that loaders read: a folder for each "
        "class, or CIFAR-10's binary files [made up]")  # fmt: skip
    add("--from-numbers", action="store_true", help="measure nothing, and write down what is known "
        "of a job: step time, memory, utilisation; --from-numbers --help says how")  # fmt: skip


def _add_timm_options(group: "argparse._ArgumentGroup") -> None:
    add = group.add_argument
    add("--timm", metavar="NAME", help="its name there, e.g. resnet18")
    add("--resolution", type=int, metavar="PX", help="pixels of an image's side")
    add("--classes", type=int, help="outputs of the classifier")
    add("--batch", type=int, help="images a step; also of a script [its loader's]")
    add("--precision", choices=get_args(Precision), help="[default]")
    add("--execution", choices=get_args(Execution), help="[eager]")
    add("--loader-workers", type=int, metavar="N", help="processes of a data loader [0]; also of "
        "a script [its loader's]")  # fmt: skip
    add("--examples", type=int, metavar="N", help="images of one pass, for epoch times")
