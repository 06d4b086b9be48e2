"""What MLflow and radT tracked, read without them."""

import sqlite3
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import InvalidInput
from advisor.workload.tracked_numbers import Reading, numbers_of
from advisor.workload.tracked_runs import Point, TrackedRun, tracked_runs
from advisor.workload.tracked_sharing import together_on_gpus
from tests.workload.tracked_stores import (
    put_run,
    radt,
    recorded_database,
    recorded_folder,
    smi,
)


def test_a_recorded_store_says_the_same_as_folder_and_as_database(tmp_path):
    (one,) = tracked_runs(recorded_folder(tmp_path / "mlruns"))
    (other,) = tracked_runs(recorded_database(tmp_path / "mlflow.db"))
    assert (one.name, one.experiment) == (other.name, other.experiment) == ("resnet", "cifar")
    assert one.params == other.params == {"batch_size": "128", "lr": "0.1"}
    assert one.metrics == other.metrics
    assert one.tags["note"] == "two\nlines"
    assert (one.start_s, one.end_s) == (other.start_s, other.end_s)
    assert len(one.metrics["train/step_time"]) == 5  # the sixth is no number


def test_a_recorded_run_is_a_job_in_bare_numbers(tmp_path):
    (run,) = tracked_runs(recorded_folder(tmp_path / "mlruns"))
    found = numbers_of(run, Reading())
    assert found.batch_size == 128
    assert found.step_s == pytest.approx(0.105)  # of 0.1, 0.11, 0.1, 0.12: the first was warm-up
    assert found.memory_mib == pytest.approx(5e9 / 2**20)
    assert (found.power_w, found.gpu_utilization) == (300.0, pytest.approx(0.8))
    assert found.paced_by == "train/step_time"


def run_of(metrics, **params):
    points = {
        name: tuple(Point(at_s, value, step) for at_s, value, step in each)
        for name, each in metrics.items()
    }
    return TrackedRun(
        id="a", name="a", experiment="e", params=params, tags={}, metrics=points, start_s=0.0,
        end_s=60.0,
    )  # fmt: skip


LOSS = {"loss": [(0.5 * each, 1.0, 10 * each) for each in range(20)]}


@pytest.mark.parametrize(
    ("metrics", "how", "step_s"),
    [
        ({"samples_per_second": [(0, 640.0, 0)]}, Reading(), 0.1),
        ({"epoch_time": [(0, 20.0, 0)]}, Reading(examples_per_epoch=6400), 0.2),
        (LOSS, Reading(step_metric="loss"), 0.05),
        (
            {"accuracy": [(30.0 * each, 0.5, each) for each in range(5)]},
            Reading(epoch_metric="accuracy", examples_per_epoch=6400), 0.3,
        ),
    ],
)  # fmt: skip
def test_the_pace_is_found_in_any_of_the_usual_metrics(metrics, how, step_s):
    assert numbers_of(run_of(metrics, batch_size="64"), how).step_s == pytest.approx(step_s)


@given(st.floats(0.001, 10), st.integers(1, 500), st.integers(4, 40))
def test_the_clock_of_a_metric_says_the_pace_however_often_it_was_logged(step_s, every, points):
    logged = [(step_s * every * each, 1.0, every * each) for each in range(points)]
    found = numbers_of(run_of({"loss": logged}, bs="8"), Reading(step_metric="loss"))
    assert found.step_s == pytest.approx(step_s, rel=1e-6)


@pytest.mark.parametrize(
    ("metrics", "params", "how", "said"),
    [
        (LOSS, {"batch_size": "64"}, Reading(), "no metric of it is known to say the pace"),
        (LOSS, {}, Reading(step_metric="loss"), "Say --batch-size"),
        (LOSS, {"batch_size": "64", "bs": "32"}, Reading(step_metric="loss"), "one batch size"),
        (LOSS, {"bs": "8"}, Reading(step_metric="accuracy"), "says no pace"),
        ({"epoch_time": [(0, 20.0, 0)]}, {"bs": "8"}, Reading(), "Say --examples-per-epoch"),
        (
            {"step_s": [(0, 0.1, 0)], "system/gpu_0_power_usage_watts": [(0, 1.0, 0)],
             "system/gpu_1_power_usage_watts": [(0, 1.0, 0)]},
            {"bs": "8"}, Reading(), "several GPUs",
        ),
    ],
)  # fmt: skip
def test_a_run_that_does_not_say_enough_is_refused_with_what_to_say(metrics, params, how, said):
    with pytest.raises(InvalidInput, match=said):
        numbers_of(run_of(metrics, **params), how)


def test_radts_readings_that_failed_do_not_count(tmp_path):
    store = put_run(tmp_path, "a", {"bs": 8}, {"step_s": [(0, 0.1, 0)]} | smi(power_w=250.0))
    (run,) = tracked_runs(store)
    found = numbers_of(run, Reading())
    assert (found.power_w, found.memory_mib) == (250.0, 4000.0)
    assert (found.gpu_utilization, found.memory_utilization) == (0.5, 0.25)


@pytest.mark.parametrize(
    ("letters", "sharing"),
    [
        (["0_A", "0_B"], "naive"),
        (["0_A_mps", "0_B_mps", "0_C_MPS"], "mps"),
        (["0_A_3g.20gb", "0_B_4g.20gb"], "mig=3g.20gb,4g.20gb"),
        (["0_A_mps", "0_B"], None),
    ],
)
def test_what_radt_started_together_shared_as_it_was_told(tmp_path, letters, sharing):
    for letter in letters:
        put_run(tmp_path, f"run-{letter}", radt(letter), {"step_s": [(0, 0.1, 0)]})
    (found,) = together_on_gpus(tracked_runs(tmp_path))
    assert len(found.runs) == len(letters)
    assert found.sharing == sharing


def test_runs_on_other_devices_or_at_other_times_were_alone(tmp_path):
    put_run(tmp_path, "a", radt("0"), {"step_s": [(0, 0.1, 0)]})
    put_run(tmp_path, "b", radt("1"), {"step_s": [(0, 0.1, 0)]})
    put_run(tmp_path, "c", radt("0", workload="2"), {"step_s": [(0, 0.1, 0)]})
    put_run(tmp_path, "d", {"bs": 8}, {"step_s": [(0, 0.1, 0)]}, after_s=100)
    found = together_on_gpus(tracked_runs(tmp_path))
    assert [len(each.runs) for each in found] == [1, 1, 1, 1]


def test_runs_at_the_same_time_are_not_taken_to_be_alone(tmp_path):
    put_run(tmp_path, "a", {"bs": 8}, {"step_s": [(0, 0.1, 0)]})
    put_run(tmp_path, "b", {"bs": 8}, {"step_s": [(0, 0.1, 0)]}, after_s=30)
    (found,) = together_on_gpus(tracked_runs(tmp_path))
    assert (len(found.runs), found.sharing) == (2, None)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("7/a-id/metrics/step_s", "not a number at all\n"),
        ("7/a-id/metrics/step_s", "123\n"),
        ("7/a-id/metrics/step_s", "1 2 x\n"),
        ("7/a-id/meta.yaml", "run_name: a\nstart_time: yesterday\n"),
        ("7/a-id/meta.yaml", "run_name: a\nstart_time: 1e30\n"),
        ("7/a-id/params/bs", b"\xff\xfe"),
    ],
)
def test_a_malformed_store_gets_a_sentence(tmp_path, file, text):
    put_run(tmp_path, "a", {"bs": 8}, {"step_s": [(0, 0.1, 0)]})
    (tmp_path / file).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InvalidInput):
        tracked_runs(tmp_path)


def test_what_is_no_store_gets_a_sentence(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.db").write_text("hello")
    with sqlite3.connect(tmp_path / "other.db") as database:
        database.execute("CREATE TABLE something (x)")
    database.close()
    for name in ("empty", "text.db", "other.db", "missing"):
        with pytest.raises(InvalidInput, match=r"not as MLflow writes it|Check the path"):
            tracked_runs(tmp_path / name)


PARTS = ("7/a-id/metrics/step_s", "7/a-id/meta.yaml", "7/meta.yaml", "7/a-id/params/bs")


@given(
    st.sampled_from(PARTS),
    st.binary(max_size=200) | st.text(":-0123456789 \n'_aestx").map(str.encode),
)
def test_any_bytes_in_a_store_are_read_or_refused(tmp_path_factory, part, text):
    store = tmp_path_factory.mktemp("store")
    put_run(store, "a", {"bs": 8}, {"step_s": [(0, 0.1, 0)]})
    (store / part).write_bytes(text)
    with suppress(InvalidInput):
        for each in tracked_runs(store):
            numbers_of(each, Reading(batch_size=8))


@given(st.binary(max_size=400), st.integers(0, 8000))
def test_a_damaged_database_is_read_or_refused(tmp_path_factory, damage, at):
    path = recorded_database(tmp_path_factory.mktemp("store") / "mlflow.db")
    whole = path.read_bytes()
    path.write_bytes(whole[:at] + damage + whole[at + len(damage) :])
    with suppress(InvalidInput):
        tracked_runs(path)


def test_a_server_is_not_read():
    with pytest.raises(InvalidInput, match="behind the server"):
        tracked_runs(Path("http://127.0.0.1:5000"))
