"""Runs of the jobs at hand beside their predictions: which count, and how good these were."""

import json
from dataclasses import replace

import pytest

from advisor.errors import InvalidInput
from advisor.report.runs_of_jobs_chart import runs_of_jobs_chart
from advisor.validate.runs_of_jobs import noise_floors, runs_of_jobs
from advisor.validate.runs_of_jobs_text import runs_of_jobs_rows, runs_of_jobs_text
from advisor.workload.writing import append_run
from tests import synthetic
from tests.report.test_plan_charts import drawn
from tests.validate.test_validate import H200, PAIR, SaysTwice, advised

STRANGER = synthetic.profile("resnet26-cifar10-bs128")
RUNS = (
    advised("mps", 2.0, "as-predicted"),
    advised("naive", 4.0, "far-off", PAIR[:1] * 2),
    advised("mps", 2.0, "with-a-stranger", [PAIR[0], STRANGER]),
    advised("naive", 1.0, "alone", PAIR[:1]),
    replace(advised("mps", 2.0, "control"), purpose="control"),
)


class OnTheH200(SaysTwice):
    gpu = H200


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """Where shipped runs lie, and the user's own."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    shipped = tmp_path / "profiles"
    own = tmp_path / "home" / "advisor" / "profiles"
    for each in (shipped, own):
        (each / H200.key / "runs").mkdir(parents=True)
    return shipped, own


def put(folder, *runs):
    for run in runs:
        append_run(folder / H200.key / "runs" / "validation.jsonl", run)


def found(folders, profiles=PAIR):
    return runs_of_jobs(profiles, OnTheH200(), folders[0])


def test_runs_that_share_the_gpu_among_these_jobs_alone_count(folders):
    put(folders[0], *RUNS)
    assert [each.run.id for each in found(folders).runs] == ["as-predicted", "far-off"]
    assert [each.run.id for each in found(folders, PAIR[:1]).runs] == ["far-off"]


def test_the_users_own_runs_are_told_from_the_shipped_ones(folders):
    put(folders[0], RUNS[0])
    put(folders[1], RUNS[1])
    both = found(folders)
    assert [len(both.shipped), len(both.own)] == [1, 1]
    said = runs_of_jobs_text(both, H200.key)
    assert "2 runs of some of these jobs, 1 of them your own (diamonds); 1 of all" in said
    assert "2 lie in their 90 % intervals" in said
    assert "learnt from the shipped runs" in said
    assert {row["whose"] for row in runs_of_jobs_rows(both)} == {"shipped", "your own"}


def test_a_prediction_of_half_the_measured_step_is_fifty_per_cent_below(folders):
    put(folders[0], *RUNS)
    rows = {(row["mode"], row["job"]): row for row in runs_of_jobs_rows(found(folders))}
    off = rows["naive", PAIR[0].name]
    assert (off["low"], off["error"], off["high"]) == pytest.approx((-55, -50, -45))
    assert rows["mps", PAIR[1].name]["error"] == pytest.approx(0)
    assert off["noise"] is None


def test_without_a_run_it_says_how_to_make_one(folders):
    assert "`advisor validate`" in runs_of_jobs_text(found(folders), H200.key)


def test_the_noise_of_each_mode_is_drawn_where_the_evaluation_has_it(folders):
    put(folders[0], *RUNS)
    (folders[0] / H200.key / "runs" / "noise.json").write_text('{"mps": 0.015}')
    measured = found(folders)
    rows = runs_of_jobs_rows(measured)
    shown, _ = drawn(runs_of_jobs_chart(rows, [each.name for each in PAIR]))
    assert [row for row in shown if "from" in row] == [{"mode": "mps", "from": -1.5, "to": 1.5}]
    assert "Grey is how far two runs" in runs_of_jobs_text(measured, H200.key)
    assert "Grey" not in runs_of_jobs_text(replace(measured, noise={}), H200.key)


@pytest.mark.parametrize("text", ["", "[]", '{"mps": {}}', '{"mps": "x"}'])
def test_a_malformed_noise_file_is_refused(folders, text):
    (folders[0] / H200.key / "runs" / "noise.json").write_text(text)
    with pytest.raises(InvalidInput, match=r"noise\.json"):
        noise_floors(H200.key, folders[0])


def test_a_file_of_runs_that_holds_none_is_refused_in_a_sentence(folders):
    (folders[1] / H200.key / "runs" / "bad.jsonl").write_text(json.dumps({"id": 1}))
    with pytest.raises(InvalidInput, match=r"bad\.jsonl"):
        found(folders)
