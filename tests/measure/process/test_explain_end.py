"""Programs that end before they train, and what to give instead."""

import shlex
import sys

import pytest

from advisor.measure.script import explain_end, first_of_several
from advisor.workload.spec import Script


def explained(folder, line, output=""):
    return explain_end(Script(command=tuple(shlex.split(line)), folder=str(folder)), output) or ""


@pytest.mark.parametrize(
    ("output", "remedy"),
    [
        ("Continue? [y/n] Traceback ...\nEOFError: EOF when reading a line\n", "standard input"),
        ("wandb.errors.UsageError: api_key not configured (no-tty). call wandb.login", "--measure"),
        ("ValueError: bad data\n", ""),
    ],
)
def test_a_program_that_asks_its_user_is_explained_by_what_it_printed(tmp_path, output, remedy):
    text = explained(tmp_path, "python train.py", output)
    assert (remedy in text) if remedy else (text == "")


@pytest.mark.parametrize(
    ("module", "named"),
    [("torch", True), ("lightning.pytorch", True), ("nets", False), ("own.layers", False)],
)
def test_a_python_that_lacks_a_package_is_not_the_one_of_the_script(tmp_path, module, named):
    (tmp_path / "nets.py").touch()
    (tmp_path / "own").mkdir()
    printed = f"Traceback ...\n[rank0]: ModuleNotFoundError: No module named '{module}'\n"
    for python in (sys.executable, "/gone/python3"):
        text = explained(tmp_path, f"{python} fit.py", printed)
        assert ("-- /path/to/env/bin/python fit.py" in text) == named
        assert ("advisor itself" in text) == (named and python == sys.executable)


@pytest.mark.parametrize(
    ("line", "parent", "several"),
    [
        ("bash -c 'for k in 0 1; do python train.py $k; done'", "bash -c x", True),
        ("bash -c 'python train.py 0 && python train.py 1'", "bash -c x", True),
        ("bash -c 'seq 5 | xargs -n1 python train.py'", "xargs python train.py", True),
        ("python folds.py", "python folds.py", True),
        ("python -u k_fold.py", "python3.11 k_fold.py", True),
        ("python train.py", "", False),
        ("bash -c 'cd here && python train.py'", "bash -c x", False),
        ("torchrun train.py", "python /usr/bin/torchrun train.py", False),
        ("accelerate launch a.py", "/bin/python /bin/accelerate launch a.py", False),
        ("python -m torch.distributed.run a.py", "python -m torch.distributed.run a.py", False),
    ],
)
def test_a_command_that_may_train_several_times_in_turn_is_said_to_be_seen_once(
    line, parent, several, tmp_path
):
    script = Script(command=tuple(shlex.split(line)), folder=str(tmp_path))
    said = first_of_several(script, shlex.split(parent))
    assert (said is not None and "first" in said) == several
