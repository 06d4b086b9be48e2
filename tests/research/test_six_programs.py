import importlib.util
import json
import os
import runpy
import sys
import time
from copy import deepcopy
from types import SimpleNamespace

import pytest

from advisor.files.reading import beside_package
from benchmarks.programs.measure import MODES
from benchmarks.six_programs import measure, predict
from benchmarks.six_programs.program_list import BATCHES, MIXES, six_programs
from research.six_programs import six_programs_text, six_scores

SCRIPTS = beside_package("benchmarks") / "six_programs" / "scripts"
NEEDS = {"segmenter": ["transformers"], "speech": ["transformers", "lightning"]}
MIX = ("detector", "speech")
STEP_S = {"detector": 0.05, "speech": 0.02}


def test_twelve_mixes_of_two_to_four_programs_use_all_six():
    assert len({frozenset(mix) for mix in MIXES}) == len(MIXES) == 12
    assert {len(mix) for mix in MIXES} == {2, 3, 4}
    assert {name for mix in MIXES for name in mix} == set(BATCHES)


@pytest.mark.parametrize("name", BATCHES)
def test_a_program_trains_on_a_cpu_and_prints_its_step(name, monkeypatch, capsys):
    if missing := [
        each for each in ("torch", *NEEDS.get(name, ())) if importlib.util.find_spec(each) is None
    ]:
        pytest.skip(f"needs {', '.join(missing)}")
    monkeypatch.syspath_prepend(str(SCRIPTS))
    monkeypatch.setattr(sys, "argv", [name, "--tiny", "--steps", "1"])
    runpy.run_path(str(SCRIPTS / f"{name}.py"), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert [six_programs()[name].printed_steps(line, 0) for line in lines][-1] == 1


def ran(slowdown, *names):
    """A run whose programs print every half second; each step is `slowdown` times as long."""
    jobs = [
        {
            "name": name,
            "exit": None,
            "tail": "",
            "stamps": [
                [0.5 * count, 0.5 * count / (slowdown * STEP_S[name])] for count in range(60)
            ],
        }
        for name in names
    ]
    return {"window": [5.0, 29.0], "jobs": jobs}


@pytest.fixture(scope="module")
def measured_alone():
    made = {}
    for name in MIX:
        place = SimpleNamespace(
            uuid=None, cores=(0, 1), together=lambda programs, *_: ran(1, programs[0].name)
        )
        watched = measure.alone(place, six_programs()[name], 1.0)
        rows = [(6.0, 55.0, 20.0, 250.0, 9000.0), (7.0, 57.0, 22.0, 254.0, 9400.0)]
        shares = {share: 0.3 for share in predict._SHARES}
        made[f"alone/{name}"] = watched | {"smi": rows, "before_mib": 400, "counters": [shares]}
        made[f"profile/{name}"] = measure.profiled(place, six_programs()[name])
    return made


@pytest.fixture
def results(measured_alone, monkeypatch):
    """Two programs that were watched and profiled, without a run of their mix."""
    monkeypatch.setattr(predict, "MIXES", [MIX])
    return deepcopy(measured_alone)


class Sampler:
    """Stands in for the GPU's counters."""

    def __init__(self, uuid):
        assert uuid == "GPU-1"

    def begin(self):
        pass

    def end(self):
        return SimpleNamespace(counters=measure._MADE_UP)


def test_what_nvidia_smi_shows_before_a_program_starts_is_no_memory_of_it(tmp_path, monkeypatch):
    smi, calls, started = (tmp_path / name for name in ("nvidia-smi", "calls", "started"))
    smi.write_text(
        f"#!/bin/sh\necho call >> {calls}\n"
        f'[ -e {started} ] && echo "90, 30, 400.5, 9000" || echo "0, 0, 70, 500"\n'
    )
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(measure, "ActivitySampler", Sampler)
    monkeypatch.setattr(measure, "_PERIOD_S", 0.01)

    def wait_for_rows(count):
        last = len(calls.read_text().splitlines()) + count
        while len(calls.read_text().splitlines()) < last:
            time.sleep(0.01)

    def together(programs, *_):
        began = time.monotonic()
        started.touch()
        wait_for_rows(2)
        opened_s = time.monotonic() - began
        wait_for_rows(3)
        return ran(1, programs[0].name) | {"window": [opened_s, 600]}

    place = SimpleNamespace(uuid="GPU-1", cores=(0,), together=together)
    watched = measure.alone(place, six_programs()["speech"], 1.0)
    assert watched["before_mib"] == 500
    assert {tuple(row[1:]) for row in watched["smi"]} == {(90, 30, 400.5, 9000)}
    assert watched["counters"][0]["sm_active"] == 0.4


def test_a_program_is_described_by_the_means_of_what_was_read_of_it_alone(results):
    described = predict.descriptions(results, "speech")
    bare, counters = described["bare"], described["counters"].counters
    assert (bare.busy_share, bare.power_w, bare.memory.device_mib) == pytest.approx(
        (0.56, 252, 8800)
    )
    assert bare.step_s == pytest.approx(0.02)
    assert bare.counters.sm_active is None
    assert (counters.sm_active, counters.memory_utilization) == pytest.approx((0.3, 0.21))
    assert described["full"].trace is not None
    assert predict.descriptions(results, "segmenter") is None


def test_predictions_made_beforehand_are_compared_with_the_mixes_that_ran(results):
    document = predict.predictions(results)
    assert document["runs_before"] == 0
    (mix,) = document["mixes"]
    assert set(mix["by"]) == {"bare", "counters", "full"}
    for by in mix["by"].values():
        by["first"] = "naive"
        for jobs in by["ways"].values():
            assert all(job["step_s"]["p05"] <= job["step_s"]["p95"] for job in jobs)
    mix["by"]["full"]["first"] = "mps"
    slowdowns = {"naive": 2.0, "mps": 1.25, "mps-limits": 1.6}
    measured = results | {f"mix/00/{mode}": ran(slowdowns[mode], *MIX) for mode in MODES}
    scores = six_scores(measured, json.loads(json.dumps(document)))
    assert len(scores.steps) == 3 * 3 * 2
    assert scores.beforehand
    lost = {rule: regret.mean for rule, regret in scores.regrets.items()}
    assert lost["full"] == lost["always-mps"] == 0
    assert lost["bare"] == lost["always-naive"] == pytest.approx(1 - 1.25 / 2)
    assert lost["equal-limits"] == pytest.approx(1 - 1.25 / 1.6)
    assert lost["always-serial"] == pytest.approx(1 - 1.25 / 2)
    assert "before any mix ran" in six_programs_text(measured, document)


def test_a_mix_in_which_a_program_ended_is_not_scored(results):
    document = predict.predictions(results)
    measured = results | {f"mix/00/{mode}": ran(2.0, *MIX) for mode in MODES}
    measured["mix/00/mps"]["jobs"][0]["exit"] = 1
    scores = six_scores(measured, document)
    assert {step.mode for step in scores.steps} == {"naive", "mps-limits"}
    assert scores.regrets == {}


def test_predictions_are_written_once_and_only_of_programs_that_were_measured(
    results, tmp_path, monkeypatch, capsys
):
    file, out = tmp_path / "results.jsonl", tmp_path / "predictions.json"
    file.write_text(
        "".join(json.dumps({"id": key, **each}) + "\n" for key, each in results.items())
    )
    words = ["predict", str(file), "--out", str(out)]
    monkeypatch.setattr(sys, "argv", words)
    assert predict.main() == 1
    assert "segmenter" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", [*words, "--partial"])
    assert predict.main() == 0
    first = out.read_text()
    assert predict.main() == 0
    assert out.read_text() == first
