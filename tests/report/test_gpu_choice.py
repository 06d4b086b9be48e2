"""Which GPUs can be asked about, and what is said to stand behind answers about each."""

import pytest

from advisor.hardware.catalogue import known_gpus
from advisor.report.gpu_choice import gpu_choices


@pytest.fixture
def profiled(monkeypatch, tmp_path):
    """So many profiles lie there of these GPUs."""

    def put(**counts):
        for gpu, count in counts.items():
            folder = tmp_path / gpu.replace("_", "-")
            folder.mkdir()
            for number in range(count):
                (folder / f"job-{number}.json").touch()

    monkeypatch.setenv("ADVISOR_PROFILES", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "own"))
    return put


def test_the_gpu_of_this_machine_comes_first_then_those_that_were_measured(profiled):
    profiled(h200_141gb=3, h100_sxm_80gb=2)
    choices = gpu_choices("l4-24gb")
    assert next(iter(choices)) == "l4-24gb"
    assert {*list(choices)[1:3]} == {"h200-141gb", "h100-sxm-80gb"}
    assert choices.keys() == known_gpus().keys()
    assert choices["l4-24gb"].label == "l4-24gb: in this machine"
    assert choices["l4-24gb"].standing.startswith("This GPU is in this machine. Nothing was meas")
    assert choices["h200-141gb"].label == "h200-141gb: measured"
    assert gpu_choices(None)["l4-24gb"].standing.startswith("Nothing was measured on it")


def test_other_jobs_of_a_gpu_that_was_measured_are_estimated_from_the_others(profiled):
    profiled(h200_141gb=3, h100_sxm_80gb=2)
    said = gpu_choices("h200-141gb")["h200-141gb"].standing
    assert said.startswith("This GPU is in this machine. Jobs measured on it alone: 3;")
    assert said.endswith("estimated from h100-sxm-80gb.")


def test_where_only_one_gpu_was_measured_nothing_is_estimated_for_it(profiled):
    profiled(h200_141gb=1)
    choices = gpu_choices(None)
    assert choices["h200-141gb"].standing == "Jobs measured on it alone: 1."
    assert choices["a30-24gb"].label == "a30-24gb: estimated"
    assert choices["a30-24gb"].standing.endswith("all answers are estimated from h200-141gb.")
