"""The hook in a user's script: what a step is, old Pythons, and the folder of the script."""

import ast
import os
import subprocess
import sys
from _thread import start_new_thread
from itertools import islice
from pathlib import Path
from threading import Lock, Thread, get_ident

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

from advisor.measure.inside import PROGRESS
from advisor.measure.inside.program import Program
from advisor.measure.inside.steps import Feeds
from advisor.measure.script import create_progress, hook_variables, read_progress
from tests.lean import LEAN, LEAN_PATH


class Counting(Program):
    """A program whose steps are only counted."""

    def __init__(self):
        super().__init__("")
        self.ended = []

    def _step_ended(self):
        self.ended.append(1)


class Optimizer:
    """What a hook sees of an optimizer: `kind` is the number of its parameters."""

    def __init__(self, kind=1):
        self.param_groups = [{"params": [None] * kind}]


def ended_in(hook, *optimizers):
    """How many steps end while these optimizers step in turn."""
    hook.ended.clear()
    for each in optimizers:
        hook.optimizer_stepped(each)
    return len(hook.ended)


def has_no_burst(order):
    """Whether no optimizer of a round steps three times in a row while others wait."""
    doubled = [*order, *order]
    runs = zip(doubled, doubled[1:], doubled[2:], strict=False)
    return len(set(order)) == 1 or all(len(set(each)) > 1 for each in runs)


rounds = st.lists(st.integers(0, 4), min_size=1, max_size=12).filter(has_no_burst)


@given(rounds)
def test_once_a_round_of_all_optimizers_is_known_each_round_is_one_step(order):
    hook, optimizers = Counting(), [Optimizer() for _ in range(5)]
    a_round = [optimizers[each] for each in order]
    ended_in(hook, *a_round * 4)
    assert ended_in(hook, *a_round * 5) == 5 * min(map(order.count, order))


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 3)), min_size=1, max_size=12),
    st.booleans(),
)
def test_however_often_an_optimizer_is_made_again_each_of_its_steps_ends_one(trainings, kept):
    hook, alive = Counting(), []
    for steps, kind in [(3, 1), *trainings]:
        optimizer = Optimizer(kind if steps > 2 else 1)
        alive += [optimizer] * kept
        assert ended_in(hook, *[optimizer] * steps) == steps
    if all(steps > 2 for steps, _ in trainings):
        assert hook._finder.steps == 3 + sum(steps for steps, _ in trainings)


def test_trainings_of_two_optimizers_one_after_another_keep_their_rounds():
    hook = Counting()
    for _ in range(8):
        critic, generator = Optimizer(4), Optimizer(5)
        a_round = [critic, critic, generator]
        ended_in(hook, *a_round * 3)
        assert ended_in(hook, *a_round * 20) == 20
        del critic, generator, a_round
    assert hook._finder.steps == 8 * 23


def test_bursts_of_one_optimizer_count_by_what_follows_them():
    """Updates of a policy and then of its value are all steps, those of a critic are not."""
    hook, critic, generator = Counting(), Optimizer(), Optimizer(2)
    ended_in(hook, *[*[critic] * 5, generator] * 3)
    assert ended_in(hook, *[*[critic] * 5, generator] * 10) == 10
    hook, policy, value = Counting(), Optimizer(), Optimizer()
    for _ in range(5):
        assert ended_in(hook, *[policy] * 80, *[value] * 80) == 160
    assert hook._finder.steps == 5 * 160


def test_an_optimizer_that_rests_while_another_goes_on_ends_no_steps_any_more():
    hook, first, second = Counting(), Optimizer(), Optimizer()
    ended_in(hook, *[first, second] * 100)
    ended_in(hook, *[first] * 10)
    assert ended_in(hook, *[first] * 50) == 50
    assert hook._finder.steps == 160
    ended_in(hook, *[first, second] * 5)
    assert ended_in(hook, *[first, second] * 50) == 50


def test_the_first_step_of_an_optimizer_ends_the_count_of_backward_passes():
    hook, optimizer = Counting(), torch.optim.SGD.__new__(torch.optim.SGD)  # made in no time
    for _ in range(63):
        hook.pass_ended(whole=True)
    assert not hook.ended
    for _ in range(5):
        hook.pass_ended(whole=True)
        hook.pass_ended(whole=False)
    assert len(hook.ended) == 5
    assert ended_in(hook, optimizer) == 1
    hook.pass_ended(whole=True)
    assert (len(hook.ended), hook._finder.steps) == (1, 1)


def test_an_optimizer_that_torch_steps_inside_a_backward_pass_ends_the_step_after_it():
    hook, optimizer, over = Counting(), Optimizer(), Lock()

    def step():
        hook.optimizer_stepped(optimizer)
        over.release()

    def step_in(start, *, passing):
        over.acquire()
        hook.passing = get_ident() if passing else None
        start(step, ())
        with over:
            inside = len(hook.ended)
        hook.passing = None
        hook.pass_ended(whole=True)
        return inside, len(hook.ended)

    def start_of_python(target, _):
        Thread(target=target).start()

    def start_here(target, _):
        target()

    ended_in(hook, optimizer)
    assert step_in(start_new_thread, passing=True) == (1, 2)
    assert step_in(start_here, passing=True) == (2, 3)
    assert step_in(start_of_python, passing=True) == (3, 3)
    assert step_in(start_new_thread, passing=False) == (3, 3)


class Graph:
    """A CUDA graph, as a hook sees it."""


def test_a_step_that_a_graph_captured_is_one_at_each_replay_and_none_at_its_capture():
    hook, graph, optimizer = Counting(), Graph(), Optimizer()
    ended_in(hook, *[optimizer] * 3)
    hook.capture_began(graph, capture_error_mode="global")
    assert ended_in(hook, optimizer) == 0
    hook.capture_ended(graph)
    for _ in range(5):
        hook.replayed(graph)
    assert len(hook.ended) == 5
    hook.replayed(Graph())
    assert len(hook.ended) == 5, "another graph trains nothing"


def test_a_script_that_says_its_steps_itself_is_believed():
    hook, optimizer = Counting(), Optimizer()
    hook.stepped_explicitly()
    for _ in range(10):
        hook.optimizer_stepped(optimizer)
    assert len(hook.ended) == 1
    hook.stepped_explicitly()
    assert len(hook.ended) == 2
    assert hook._finder.steps == 2


@pytest.fixture
def feeds(monkeypatch):
    """Notes the batches that torch loaders of this process give, until the test ends."""
    for name in ("__init__", "__next__"):
        monkeypatch.setattr(_BaseDataLoaderIter, name, getattr(_BaseDataLoaderIter, name))
    watching = Feeds()
    watching.watch_loaders(_BaseDataLoaderIter)
    return watching


def train_on(feeds, loader):
    """A pass; how many new passes were seen in it."""
    before = feeds.between["passes"]
    for _ in loader:
        feeds.note_step()
    return feeds.between["passes"] - before


@pytest.mark.parametrize("workers", [0, 1])
def test_each_pass_of_the_loader_that_feeds_the_training_is_seen(feeds, workers):
    data = list(range(12))
    first, second = (
        DataLoader(data, size, num_workers=workers, persistent_workers=workers > 0)
        for size in (4, 3)
    )
    train_on(feeds, first)
    expected = {"batch": 4, "steps_per_epoch": 3, "loader_workers": workers, "other_epochs": []}
    assert feeds.data(3) == expected
    assert [train_on(feeds, first) for _ in range(3)] == [1, 1, 1]
    for _ in DataLoader(data, 2):  # a validation
        pass
    assert [train_on(feeds, each) for each in (first, second, second, first)] == [1, 1, 1, 1]
    assert feeds.between["passes"] == 7


@pytest.mark.parametrize("lengths", [(3, 12), (12, 3), (5, 5)])
def test_of_two_loaders_that_feed_each_step_the_longer_is_the_epoch(feeds, lengths):
    def endless(loader):
        while True:
            yield from loader

    few, many = (DataLoader(list(range(4 * length)), 4) for length in lengths)
    for _ in islice(zip(endless(few), endless(many), strict=False), 12):
        feeds.note_step()
    seen = feeds.data(12)
    assert seen["steps_per_epoch"] == max(lengths)
    assert seen["other_epochs"] == sorted({*lengths} - {max(lengths)})


def test_a_validation_that_takes_more_batches_than_the_training_is_no_epoch(feeds):
    training, validation = (DataLoader(list(range(length)), 2) for length in (8, 400))
    train_on(feeds, training)
    feeds.mode_changed(None, mode=False)
    for _ in validation:
        pass
    feeds.mode_changed(None)
    train_on(feeds, training)
    seen = feeds.data(8)
    assert (seen["steps_per_epoch"], seen["other_epochs"]) == (4, [])


FOLDS = """
import torch
for fold in range(8):
    network = torch.nn.Linear(4, 3)
    optimizer = torch.optim.AdamW(network.parameters())
    for _ in range(31):
        network(torch.ones(2, 4)).sum().backward()
        optimizer.step()
"""


def counted_steps(code, folder):
    """How many steps of a program are counted while a plan runs."""
    create_progress(folder / "progress")
    hook = hook_variables(folder / "hook", {"count": True}, os.environ)
    environment = {**os.environ, **hook, PROGRESS: str(folder / "progress")}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
    return read_progress(folder / "progress").steps


def test_each_step_of_a_cross_validation_is_counted(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", LEAN_PATH)
    assert counted_steps(FOLDS, tmp_path) == 248


@pytest.mark.parametrize(
    "report",
    [
        "",
        '{"steps": 3',
        "[]",
        '{"steps": -1, "at": 2}',
        '{"steps": 1.5, "at": 2}',
        '{"steps": 1, "at": 2, "memory": {"allocated_mib": 2, "reserved_mib": 1}}',
    ],
)
def test_a_report_that_is_half_written_or_cannot_be_true_does_not_count(report, tmp_path):
    (tmp_path / "progress").write_text(report)
    assert read_progress(tmp_path / "progress") is None


SHOWS = """\
import os, sys
assert os.environ["ADVISOR_HOOK"] == '{"count": true}'
print(os.environ["PYTHONPATH"], *sys.argv[1:], sep="|")
"""
RUNS = """\
export PYTHONPATH=$PWD
python show.py 'a b' ''
"""
# As these start a program: conda by a shell script of its own, uv by a child with another PATH, and
# accelerate from a Python that its first line names.
CONDA = """\
#!/bin/sh
shift 3
echo "$@" > conda-script
bash conda-script
"""
UV = """\
#!/bin/sh
shift
PATH=$VENV:$PATH VIRTUAL_ENV=$VENV "$@"
"""
ACCELERATE = """\
import subprocess, sys
sys.exit(subprocess.run([sys.executable, *sys.argv[2:]]).returncode)
"""
MAKES = """\
export PYTHONPATH := here
train:
\t@python show.py x
"""


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (("python", "show.py", "a  b", "*", ""), "{hook}:before|a  b|*|"),
        (("bash", "run.sh"), "{hook}:{home}|a b|"),
        (("env", "PYTHONPATH=.", "python", "show.py"), "{hook}:."),
        (("sh", "-c", "env -i PATH=$PATH python show.py"), "{hook}"),
        (("sh", "-c", "PYTHONPATH= exec python3 show.py"), "{hook}"),
        (("bash", "-c", "unset PYTHONPATH; nohup python show.py"), "{hook}"),
        (("make", "--no-print-directory", "train"), "{hook}:here|x"),
        (("./show.py", "*"), "{hook}:before|*"),
        (("conda", "run", "-n", "base", "python", "show.py"), "{hook}:before"),
        (("uv", "run", "python", "show.py", "x"), "{hook}:before|x"),
        (("sh", "-c", "PYTHONPATH=. accelerate launch show.py"), "{hook}:."),
    ],
)
def test_the_hook_is_found_whatever_a_launcher_does_to_the_python_path(words, shown, tmp_path):
    home, hook = tmp_path / "home", tmp_path / "hook"
    home.mkdir()
    for name, text in {
        "show.py": f"#!/usr/bin/env python\n{SHOWS}",
        "run.sh": RUNS,
        "Makefile": MAKES,
        "conda": CONDA,
        "uv": UV,
        "accelerate": f"#!{sys.executable}\n{ACCELERATE}",
    }.items():
        (home / name).write_text(text)
        (home / name).chmod(0o755)
    path = os.pathsep.join([str(home), str(Path(sys.executable).parent), os.environ["PATH"]])
    venv = str(Path(sys.executable).parent)
    caller = {**os.environ, "PYTHONPATH": "before", "PATH": path, "VENV": venv}
    environment = {**caller, **hook_variables(hook, {"count": True}, caller)}
    done = subprocess.run(
        words, env=environment, cwd=home, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == shown.format(hook=hook, home=home)


# What came with Python 3.11, taken away before the hook is imported as in a script: after torch.
WITHOUT = f"""\
exec({LEAN.read_text()!r})
import datetime, enum, sys, torch
sys.path.insert(0, sys.argv[1])
sys.modules["tomllib"] = sys.modules["numpy"] = None
del enum.StrEnum, datetime.UTC
from advisor_inside import hook
print(*(each.__file__ for name, each in sys.modules.items() if name.startswith("advisor")))
"""
NEW_IN_TYPING = {"LiteralString", "Never", "NotRequired", "Self", "Unpack", "assert_never"}


def typing_names(file):
    """What a module takes from `typing`."""
    for node in ast.walk(ast.parse(file.read_text(), feature_version=(3, 10))):
        if isinstance(node, ast.ImportFrom) and node.module == "typing":
            yield from (each.name for each in node.names)


def test_the_hook_in_a_script_needs_nothing_that_came_after_python_3_10(tmp_path):
    hook_variables(tmp_path / "hook", {}, os.environ)
    words = [sys.executable, "-I", "-c", WITHOUT, str(tmp_path / "hook")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    modules = [Path(each) for each in done.stdout.split()]
    assert len(modules) > 6
    for module in modules:
        assert module.parent.name == "advisor_inside", "nothing else of advisor is imported"
        assert NEW_IN_TYPING.isdisjoint(typing_names(module)), module


def test_what_is_evaluated_inside_a_step_is_no_validation():
    feeds = Feeds()
    feeds.mode_changed(None, mode=False)  # layers that are not trained, in every step
    feeds.pass_began()
    feeds.mode_changed(None)
    assert feeds.between["validation_s"] == 0
    feeds.mode_changed(None, mode=False)
    feeds.mode_changed(None)
    assert feeds.between["validation_s"] > 0
