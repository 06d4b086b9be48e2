"""The programs in docs/hyperparameter-search.md run, where what they use is installed."""

import ast
import re
import subprocess
import sys
from importlib.util import find_spec
from inspect import signature
from pathlib import Path

import pytest

from advisor.apply import study
from advisor.sharing import Naive

TEXT = Path(__file__).parents[2].joinpath("docs", "hyperparameter-search.md").read_text()
SNIPPETS = dict(re.findall(r"```python\n# (?:python: )?([\w.]+)\n(.*?)```", TEXT, re.DOTALL))
OBJECTIVES = Path(__file__).with_name("study_objectives.py")

_TRIED = """
from os import sched_getaffinity
from advisor.sharing import Naive

def train(rate):
    rate = rate["rate"] if isinstance(rate, dict) else rate
    return {{"twice": 2 * rate}}

how = SharedProcesses(processes=2, sharing=Naive())
found = run_trials(train, [1, 2, 3, 4], how, "cpu")
print(sorted({read}))
"""


@pytest.mark.parametrize("name", ["search.py", "optuna", "joblib", "ray"])
def test_every_program_of_the_page_is_python(name):
    assert ast.parse(SNIPPETS[name]).body


def tried(name, read):
    program = SNIPPETS[name] + _TRIED.format(read=read)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)  # noqa: PLW1510
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()[-1]


@pytest.mark.skipif(find_spec("joblib") is None, reason="joblib is not installed")
def test_joblib_runs_trials_in_processes_that_share_a_device():
    assert tried("joblib", "each['twice'] for each in found") == "[2, 4, 6, 8]"


@pytest.mark.exhaustive
@pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed")
def test_ray_tune_runs_trials_in_processes_that_share_a_device():
    assert tried("ray", "each.metrics['twice'] for each in found") == "[2, 4, 6, 8]"


def test_the_optuna_program_runs_as_advised(tmp_path, monkeypatch):
    real, asked = study.run_study, []

    def on_cpu(*arguments):
        bound = signature(real).bind(*arguments).arguments
        asked.append(bound)
        how = study.SharedProcesses(processes=2, sharing=Naive())
        return real(f"{OBJECTIVES}:told", 2, how, bound["spec"], device="cpu")

    monkeypatch.setattr(study, "run_study", on_cpu)
    monkeypatch.chdir(tmp_path)
    exec(compile(SNIPPETS["optuna"], "optuna", "exec"), {})
    assert asked[0]["objective"] == "search.py:objective"
    assert asked[0]["how"].processes > 1
