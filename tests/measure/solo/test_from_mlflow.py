"""``advisor profile --from-mlflow``: tracked runs become profiles, and runs to compare with."""

import json

import pytest

from advisor.errors import InvalidInput
from advisor.measure.solo.from_mlflow import RUNS, run
from advisor.workload.store import read_profile
from advisor.workload.stored_runs import read_runs
from tests.workload.tracked_stores import put_run, radt, recorded_folder, smi

GPU = "a100-40gb"
PACE = {"step_s": [(0, 0.1, 0)]}


@pytest.fixture
def read(tmp_path):
    """Reads a store into a folder, which is returned."""

    def into(store, *words):
        out = tmp_path / "profiles"
        assert run(["--from-mlflow", str(store), "--gpu", GPU, "--out", str(out), *words]) == 0
        return out / GPU

    return into


def test_a_recorded_run_becomes_a_profile_that_says_where_it_is_from(tmp_path, read):
    folder = read(recorded_folder(tmp_path / "mlruns"))
    profile = read_profile(folder / "resnet.json")
    assert (profile.name, profile.gpu, profile.workload.source) == ("resnet", GPU, "numbers")
    assert profile.step_s == pytest.approx(0.105)
    written = json.loads((folder / "resnet.json").read_text())
    assert written["read_from"].startswith("MLflow run ")
    assert written["read_from"].endswith("of experiment cifar; pace by train/step_time")


def test_radts_runs_are_called_by_what_they_ran_and_shared_ones_are_runs(tmp_path, read):
    store = tmp_path / "mlruns"
    put_run(store, "alone", radt("0", workload="1"), PACE | smi(used_mib=5300.0))
    for letter in ("0_A_mps", "0_B_mps"):
        slow = {"step_s": [(0, 0.15, 0)]}
        put_run(store, letter, radt(letter, workload="2"), slow | smi(), after_s=500)
    folder = read(store)
    profile = read_profile(folder / "cifar10-model-resnet-bs64.json")
    assert profile.memory.device_mib == 5300.0
    (shared,) = read_runs(folder / "runs" / RUNS)
    assert (shared.sharing, shared.gpu, shared.mps_clients) == ("mps", GPU, 2)
    assert {each.workload for each in shared.tenants} == {profile.workload}
    assert [each.step_s for each in shared.tenants] == [0.15, 0.15]
    assert shared.provenance.command.startswith("read from radT run 0_A_mps-id of experiment cifar")


def test_what_cannot_be_read_is_left_out_with_the_reason(tmp_path, read, capsys):
    store = tmp_path / "mlruns"
    put_run(store, "good", {"bs": 8}, PACE | smi())
    put_run(store, "blind", {"bs": 8}, PACE, after_s=100)
    put_run(store, "sliced", radt("0_3g.20gb"), PACE | smi(), after_s=200)
    put_run(store, "one", {"bs": 8}, PACE | smi(), after_s=300)
    put_run(store, "two", {"bs": 8}, PACE | smi(), after_s=310)
    folder = read(store)
    assert [path.name for path in folder.iterdir()] == ["good.json"]
    said = capsys.readouterr().err
    assert "left out: blind: its memory was not tracked" in said
    assert "left out: sliced: it was on an instance" in said
    assert "left out: one, two: they ran at the same time" in said


def test_a_person_can_say_what_the_store_does_not(tmp_path, read):
    store = tmp_path / "mlruns"
    logged = {"loss": [(2.0 * each, 1.0, 20 * each) for each in range(9)]}
    put_run(store, "one", {}, logged)
    put_run(store, "two", {}, logged, after_s=5)
    folder = read(
        store, "--run", "one", "--run", "two-id", "--alone", "--batch-size", "16",
        "--step-metric", "loss", "--memory-mib", "2000",
    )  # fmt: skip
    assert read_profile(folder / "two.json").step_s == pytest.approx(0.1)
    assert read_profile(folder / "one.json").workload.batch == 16


def test_a_store_without_a_run_to_read_is_refused(tmp_path, read):
    store = tmp_path / "mlruns"
    put_run(store, "blind", {"bs": 8}, PACE)
    with pytest.raises(InvalidInput, match="no run of it can be read"):
        read(store)
    with pytest.raises(InvalidInput, match="--run other: the store has none"):
        read(store, "--run", "other")
    assert not (tmp_path / "profiles").exists()


def test_a_fuller_profile_is_not_replaced_by_bare_numbers(tmp_path, read):
    store = put_run(tmp_path / "mlruns", "job", {"bs": 8}, PACE | smi())
    fuller = tmp_path / "profiles" / GPU / "job.json"
    fuller.parent.mkdir(parents=True)
    fuller.write_text('{"workload": {"name": "job"}}')
    with pytest.raises(InvalidInput, match="says more than these numbers"):
        read(store)
    assert fuller.read_text() == '{"workload": {"name": "job"}}'
