"""What the GPU of this machine does now, on the page; its driver is the one of `tests.hardware`."""

import pynvml
import pytest
from streamlit.testing.v1 import AppTest

from tests import shelf
from tests.hardware.conftest import install  # noqa: F401 - a fixture
from tests.hardware.nvml import MIB, FakeGpu, FakeLibrary
from tests.page.seen import rows_with
from tests.waiting import PATIENCE_S


def script():
    from advisor.page.live_view import live_view
    from advisor.workload.job import Job
    from tests import shelf

    live_view([Job(each) for each in shelf.PROFILES.values()])


@pytest.fixture
def view():
    return AppTest.from_function(script, default_timeout=PATIENCE_S)


def facts(view):
    """What is said of each GPU, by the names of the facts."""
    return [dict(each.value.itertuples(index=False)) for each in view.table if "now" in each.value]


def test_without_a_driver_one_quiet_sentence_says_so(view, monkeypatch):
    def no_library(_name):
        raise OSError

    monkeypatch.setattr(pynvml, "nvmlLib", None)
    monkeypatch.setattr(pynvml, "CDLL", no_library)
    view.run()
    assert not view.exception
    assert len(view.main) == 1
    assert "no NVIDIA driver is installed here" in view.caption[0].value


def test_memory_power_utilisation_and_modes_are_read_from_the_driver(view, install):  # noqa: F811
    install(FakeLibrary(FakeGpu(), FakeGpu("NVIDIA L4", uuid="GPU-1", mig=None)))
    view.run()
    assert not view.exception
    first, second = facts(view)
    assert first["memory"] == "612 of 143,771 MiB in use"
    assert first["busy"] == "a kernel runs 37% of the time"
    assert first["power"] == "76 W of 700 W"
    assert first["modes"].startswith("MIG off")
    assert second["modes"].startswith("no MIG")
    assert sum(each.value == "No process uses it." for each in view.caption) == 2


def test_processes_are_listed_with_the_jobs_that_hold_as_much(view, install):  # noqa: F811
    held = int(shelf.PROFILES["bert-base-finetune-bs16"].memory.device_mib * MIB)
    install(FakeLibrary(FakeGpu(processes={11: held, 12: 90_000 * MIB, 13: None})))
    view.run()
    assert not view.exception
    rows = rows_with(view, "process")
    assert list(rows["process"]) == ["11", "12", "13"]
    assert list(rows["as much as"]) == [
        "bert-base-finetune-bs16", "none of the jobs", "none of the jobs",
    ]  # fmt: skip
    assert rows["holds"][2] == "unknown"


def test_a_gpu_that_does_not_answer_does_not_hide_the_others(view, install):  # noqa: F811
    lost = FakeGpu(uuid="GPU-1", refuses={"nvmlDeviceGetName": pynvml.NVML_ERROR_GPU_IS_LOST})
    install(FakeLibrary(FakeGpu(), lost))
    view.run()
    assert not view.exception
    assert len(facts(view)) == 1
    assert "GPU 1 does not answer" in view.warning[0].value


def test_a_driver_that_fails_is_told_in_words_and_is_asked_again(view, install):  # noqa: F811
    library = install(FakeLibrary(FakeGpu()))
    view.run()
    library.refuses["nvmlDeviceGetCount_v2"] = pynvml.NVML_ERROR_TIMEOUT
    view.run()
    assert not view.exception
    assert "'Timeout'" in view.caption[0].value
    library.refuses.clear()
    assert len(facts(view.run())) == 1


def test_the_page_watches_where_that_is_asked(page, install):  # noqa: F811
    install(FakeLibrary(FakeGpu()))
    page.session_state["question"] = "What runs here now?"
    page.run()
    assert not page.exception
    assert len(facts(page)) == 1
