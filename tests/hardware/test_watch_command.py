"""``advisor watch``: a job that runs already, by what its driver and its log tell."""

import json
import os

import pynvml
import pytest

from advisor.errors import GpuUnavailable, InvalidInput
from advisor.measure.solo import watch_command
from advisor.workload.store import read_profile
from tests.hardware.nvml import MIB, FakeGpu, FakeLibrary

PID = os.getpid()


@pytest.fixture
def watched(install, monkeypatch, tmp_path):
    """Watches this process on a GPU where it and others hold so much; its profile."""

    def watch(*words, holds=None, while_waiting=lambda: None, gpm=True):
        gpu = FakeGpu(processes=holds or {PID: 3000 * MIB}, gpm=gpm)
        library = install(FakeLibrary(FakeGpu(uuid="GPU-9"), gpu))
        times = iter(range(1_000_000))
        monkeypatch.setattr(watch_command, "monotonic", lambda: float(next(times)))

        def sleep(_seconds):
            library.work(1.0, 400.0, {pynvml.NVML_GPM_METRIC_GRAPHICS_UTIL: 80.0})
            while_waiting()

        monkeypatch.setattr(watch_command, "sleep", sleep)
        watch_command.run([str(PID), "--name", "job", "--out", str(tmp_path), *words])
        return read_profile(tmp_path / "job.json")

    return watch


def test_what_a_job_holds_and_draws_is_read_from_the_driver(watched):
    profile = watched("--step-s", "0.25", "--batch-size", "64", "--examples-per-epoch", "6400")
    assert (profile.gpu, profile.step_s, profile.epoch_s) == ("h200-141gb", 0.25, 25.0)
    assert profile.memory.device_mib == 3000
    assert profile.power_w == pytest.approx(400)
    assert profile.gpu_s == pytest.approx(0.2)


def test_what_a_slice_costs_is_told_by_its_memory_utilisation(watched):
    counters = watched("--step-s", "0.25", gpm=False).counters
    assert counters.gract == pytest.approx(0.8)
    assert counters.memory_utilization is not None


def test_its_pace_is_read_from_its_log(watched, tmp_path):
    log = tmp_path / "log"
    log.write_text("9 images/s\n")  # from before anybody watched

    def printed():
        log.write_text(log.read_text() + "epoch 1: 320.0 images/s\nnan images/s\n")

    words = ("--throughput", "([0-9.]+|nan) images/s", "--log", str(log), "--batch-size", "32")
    assert watched(*words, while_waiting=printed).step_s == pytest.approx(0.1)


def test_where_others_use_the_gpu_only_memory_is_believed(watched, capsys):
    profile = watched("--step-s", "0.25", holds={PID: 3000 * MIB, 1: 100 * MIB})
    assert (profile.power_w, profile.gpu_s, profile.memory.device_mib) == (None, None, 3000)
    assert "other processes use this GPU" in capsys.readouterr().err


def test_a_job_that_no_gpu_lists_is_refused_with_what_to_do(watched):
    with pytest.raises(GpuUnavailable, match=r"no GPU here lists .* container"):
        watched("--step-s", "1", holds={1: MIB})


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--throughput", "(x)", "--log", "nowhere"), "Name its log"),
        (("--throughput", "([0-9]+)", "--log", "silent"), "Watch for longer"),
    ],
)
def test_a_pace_that_cannot_be_read_is_refused(watched, tmp_path, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "silent").touch()
    with pytest.raises(InvalidInput, match=said):
        watched(*words)
    assert not (tmp_path / "job.json").exists()


@pytest.mark.parametrize("words", [(), ("--throughput", "("), ("--throughput", "none")])
def test_words_that_say_no_pace_are_wrong_use(watched, words):
    with pytest.raises(SystemExit) as end:
        watched(*words)
    assert end.value.code == 2


def test_a_fuller_profile_is_not_replaced(watched, tmp_path):
    (tmp_path / "job.json").write_text(json.dumps({"workload": {}}))
    with pytest.raises(InvalidInput, match="says more"):
        watched("--step-s", "1")
