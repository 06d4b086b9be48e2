"""The programs of the page on hyper-parameter search, as a user copies and starts them."""

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from advisor.cli import main
from tests.launch.slurm_node import MISSING, slurm_node
from tests.waiting import until

PAGE = Path(__file__).parents[1] / "docs" / "hyperparameter-search.md"
# A trial that writes what it sees, before and after it trains.
TRAINING = """
import os
import time
from pathlib import Path

FOLDER = Path({folder!r})


def train(rate):
    seen = os.environ.get("CUDA_VISIBLE_DEVICES"), os.environ[
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
    ]
    start = time.monotonic()
    (FOLDER / f"began-{{os.getpid()}}").touch()
    time.sleep({seconds})
    if (FOLDER / "fails").exists():
        (FOLDER / "fails").unlink()
        raise ValueError("diverged")
    (FOLDER / f"ended-{{rate}}").write_text(repr((*seen, start, time.monotonic())))
    return rate
"""


@pytest.fixture
def folder(tmp_path, monkeypatch, capfd):
    """A function that makes a user's folder with the files of the page and such an answer."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.chdir(tmp_path)

    def make(*question, seconds=0.5):
        for text in re.findall(r"^```(?:python|yaml)\n(.*?)^```", PAGE.read_text(), re.M | re.S):
            file = tmp_path / re.match("# (.*)\n", text)[1]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        (tmp_path / "my_training.py").write_text(
            TRAINING.format(folder=str(tmp_path), seconds=seconds)
        )
        with pytest.raises(SystemExit) as ended:
            main(["trials", "resnet26-cifar10-bs128", "--gpu", "a100-40gb", *question, "--json"])
        assert not ended.value.code
        answer = capfd.readouterr().out
        (tmp_path / "trials.json").write_text(answer)
        (tmp_path / "conf/trials.yaml").write_text(answer)
        return json.loads(answer)

    return make


def start(program, *words, **more):
    return subprocess.Popen(
        [sys.executable, program, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        **more,
    )


def completed():
    """Return the variables of each trial that ended, and when it ran."""
    return [eval(file.read_text()) for file in Path().glob("ended-*")]


def most_at_once(trials):
    """The most trials that ran at the same time on any GPU."""
    return max(
        Counter(gpu for gpu, _, begin, end in trials if begin <= moment < end).most_common(1)[0][1]
        for _, _, moment, _ in trials
    )


def test_optuna_runs_as_many_trials_at_once_on_each_gpu_as_advised_and_goes_on(folder):
    answer = folder("--count", "4", "--gpus", "2")
    (hosts,) = answer["hosts"]
    Path("fails").touch()
    assert start("search.py").communicate(timeout=120)[0]
    assert len(completed()) == 3
    assert start("search.py").communicate(timeout=120)[0]
    trials = completed()
    assert len(trials) == 4
    assert {gpu for gpu, *_ in trials} == {"0", "1"}
    assert {limit for _, limit, *_ in trials} == {
        hosts["environment"]["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"]
    }
    assert most_at_once(trials) <= hosts["at_once"] == 2


@pytest.mark.exhaustive
def test_an_interrupt_ends_all_trials_of_optuna(folder):
    folder("--count", "2", seconds=600)
    search = start("search.py")
    until(lambda: len(list(Path().glob("began-*"))) == 2)
    search.send_signal(signal.SIGINT)
    search.communicate(timeout=60)  # the trials hold its output open
    assert search.returncode
    assert not completed()


@pytest.mark.exhaustive
def test_ray_gives_each_trial_its_part_of_a_gpu(folder):
    pytest.importorskip("ray")
    (hosts,) = folder("--count", "6")["hosts"]
    begin = "import ray\nray.init(num_cpus=2, num_gpus=1, include_dashboard=False)\n"
    program = Path("tune_search.py")
    program.write_text(begin + program.read_text())
    printed, errors = start(program).communicate(timeout=300)
    assert "'rate'" in printed.splitlines()[-1], errors
    assert len(completed()) == 6
    assert {gpu for gpu, *_ in completed()} == {"0"}
    assert 1 < most_at_once(completed()) <= hosts["at_once"]


@pytest.mark.exhaustive
def test_hydra_runs_each_trial_with_the_limit_of_the_answer(folder):
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher")
    (hosts,) = folder("--count", "6", seconds=0)["hosts"]
    words = "hydra/launcher=submitit_local", "hydra.sweeper.params.rate='0.1,0.2'"
    search = start("train.py", *words)
    _, errors = search.communicate(timeout=120)
    assert search.returncode == 0, errors
    assert [limit for _, limit, *_ in completed()] == [
        hosts["environment"]["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"]
    ] * 2


@pytest.mark.exhaustive
@pytest.mark.skipif(bool(MISSING), reason=f"not on this machine: {', '.join(MISSING)}")
def test_slurm_runs_as_many_trials_of_hydra_on_a_gpu_as_it_has_shards(folder):
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher")
    folder("--count", "4", "--gpus", "2", seconds=3)
    with slurm_node("#   GresTypes=gpu,shard\n#   NodeName=NODE Gres=gpu:N,shard:4\n") as own:
        path = f"/usr/sbin:{os.environ['PATH']}"
        search = start("train.py", env=os.environ | own | {"PATH": path})
        _, errors = search.communicate(timeout=120)
    assert search.returncode == 0, errors
    assert len(completed()) == 4
    assert {gpu for gpu, *_ in completed()} == {"0", "1"}
    assert most_at_once(completed()) <= 2
