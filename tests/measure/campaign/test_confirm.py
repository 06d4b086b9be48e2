"""``advisor confirm``: the studies' cases on the GPU at hand."""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from advisor.measure.campaign.confirm_cases import cases
from advisor.measure.campaign.draw import drawn_plans
from advisor.workload.stored_runs import read_runs
from advisor.workload.writing import profile_text
from tests import synthetic
from tests.measure.shared.real_command import Started
from tests.measure.shared.test_run_list import HIDE


@pytest.fixture
def confirm():
    """``python -m advisor.confirm`` on two runners of the CPU, whose jobs have profiles."""
    with TemporaryDirectory(dir="/tmp") as folder:
        for name in ("mlp-toy-bs32", "mlp-toy-bs64"):
            path = Path(folder) / "cpu" / f"{name}.json"
            path.parent.mkdir(exist_ok=True)
            path.write_text(profile_text(replace(synthetic.profile(name), gpu="cpu")))
        words = ("--without-mig", "--devices", "cpu,cpu", "--out", folder)
        command = Started(folder, "-m", "advisor.confirm", *words)
        yield command
        command.clear()


def test_the_cases_run_where_only_torch_and_timm_are_into_one_file_and_nothing_twice(
    confirm, tmp_path
):
    (tmp_path / "sitecustomize.py").write_text(HIDE)
    code, said = confirm.finish(PYTHONPATH=str(tmp_path))
    assert code == 0, said
    assert "min on 2 devices" in said
    file = confirm.folder / "cpu" / "runs" / "confirm.jsonl"
    runs = read_runs(file)
    assert sorted(len(run.tenants) for run in runs) == [1, 2, 2]
    assert all(run.shows_pace for run in runs)
    assert f"--from {file} --profiles {confirm.folder}" in said
    code, said = confirm.finish()
    assert code == 0, said
    assert "0 runs to do" in said
    assert read_runs(file) == runs
    confirm.assert_nothing_is_left()


def test_without_a_word_about_mig_nothing_is_begun(confirm):
    confirm._words = tuple(each for each in confirm._words if each != "--without-mig")
    code, said = confirm.finish()
    assert code == 2
    assert "--without-mig" in said


@pytest.mark.parametrize("key", ["a100-40gb", "h200-141gb", "a30-24gb"])
def test_each_case_runs_time_sliced_and_under_mps_and_each_job_alone(key):
    planned = drawn_plans(cases(key))
    shared = {(run.sharing, run.workloads) for run in planned if run.purpose == "chosen"}
    assert {mode for mode, _ in shared} == {"naive", "mps"}
    assert {jobs for mode, jobs in shared if mode == "mps"} == {
        jobs for mode, jobs in shared if mode == "naive"
    }
    alone = {run.workloads[0] for run in planned if run.purpose == "solo"}
    assert alone == {job for _, jobs in shared for job in jobs}
    assert {2, 3, 7} <= {len(jobs) for _, jobs in shared if len(set(jobs)) == 1}


def test_the_recommender_is_as_big_as_the_gpu_allows():
    def tables(key):
        names = {each.name for each in cases(key).small}
        return next(name for name in names if name.startswith("dlrm"))

    assert tables("a100-40gb") == "dlrm-29gb-bs1"
    assert tables("a30-24gb") == "dlrm-8gb-bs1"


def test_a_folder_of_its_own_gets_every_profile_and_else_shipped_ones_count():
    assert cases("h200-141gb").profile.known
    assert cases("h200-141gb", whole=True).profile.known == ()
    assert cases("a100-40gb").profile.known == ()
