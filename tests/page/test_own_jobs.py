"""Jobs of the visitor's own: typed, pasted or handed in."""

from pathlib import Path

import pytest

from advisor.hardware.gpus import known_gpus
from advisor.workload.minimal_profile import minimal_text
from tests import shelf, synthetic
from tests.page.seen import badge, hand_in, jobs, line, words, wrong

RESNET, SMALL, BERT = list(shelf.PROFILES)[:3]
SMI = Path(__file__).parents[1] / "workload" / "nvidia_smi" / "580.txt"
NUMBERS = {"step_s": 120, "memory_mib": 8.5, "gpu_utilization": 83, "batch_size": 64}
DESCRIPTIONS = {
    "counters": NUMBERS | {"sm_active": 70, "dram_active": 40, "tensor_active": 20},
    "bare numbers": NUMBERS | {"gpu_utilization": None},
    "a probe": NUMBERS | {"step_s_under_50": 150, "steps_per_epoch": 500},
    "duration": {"duration_s": 30, "memory_mib": 8},
}


def press(page, label):
    return next(each for each in page.button if each.label == label).click().run()


def typed(page, numbers, name="mine"):
    page.text_input(key="own name").set_value(name)
    for key, number in numbers.items():
        page.number_input(key=f"own {key}").set_value(number)
    return press(page, "Add this job")


def downloads(page):
    return [each.label for each in page.get("download_button")]


def test_i_type_a_job_and_it_has_a_row_an_answer_and_a_file(page):
    typed(page.run(), NUMBERS | {"steps_per_epoch": 300})
    assert wrong(page) == ""
    assert [*jobs(page)] == [RESNET, SMALL, BERT, "mine"]
    assert line(page)
    assert any("mine.json" in each for each in downloads(page))
    assert page.number_input(key="own step_s").value is None, "the form is empty again"


def test_what_i_paste_of_nvidia_smi_fills_the_form(page):
    page.run()
    page.text_area(key="own nvidia-smi").set_value(SMI.read_text()).run()
    assert page.number_input(key="own memory_mib").value == pytest.approx(8.51)
    assert page.number_input(key="own gpu_utilization").value == 98
    page.text_area(key="own nvidia-smi").set_value("no table").run()
    assert "No GPU found" in wrong(page)


def test_a_number_that_is_missing_is_named_and_the_rest_stays(page):
    typed(page.run(), NUMBERS | {"memory_mib": None})
    assert "Memory is missing" in wrong(page)
    assert page.number_input(key="own step_s").value == 120
    assert [*jobs(page)] == [RESNET, SMALL, BERT]


def test_my_job_replaces_the_examples_by_one_click(page):
    typed(page.run(), NUMBERS | {"steps_per_epoch": 300})
    press(page, "Replace the examples")
    assert [*jobs(page)] == ["mine"]
    assert page.query_params["jobs"] == "mine"
    assert badge(page) == ":gray-badge[Nothing to share]"


@pytest.mark.parametrize("typing", [True, False], ids=["typed", "handed in"])
def test_my_profile_never_replaces_a_bundled_one_of_its_name(page, typing):
    if typing:
        typed(page.run(), NUMBERS | {"steps_per_epoch": 300}, BERT)
    else:
        own = synthetic.numbers(workload=BERT, examples_per_epoch=6400)
        hand_in(page.run(), ("bert.json", minimal_text(own).encode()))
    assert [*jobs(page)] == [RESNET, SMALL, BERT, f"{BERT}-yours"]
    assert f"{BERT}-yours" in wrong(page)


@pytest.mark.parametrize("numbers", DESCRIPTIONS.values(), ids=list(DESCRIPTIONS))
def test_a_job_of_any_description_has_an_answer_with_its_basis(page, numbers):
    page.query_params["jobs"] = RESNET
    typed(page.run(), numbers)
    assert not page.error
    assert line(page)
    assert not any("--" in text for text in words([*page.markdown, *page.info, *page.caption]))


@pytest.mark.exhaustive
@pytest.mark.parametrize("key", list(known_gpus()))
def test_every_gpu_has_answers_for_jobs_of_every_description(page, key):
    page.query_params["jobs"] = SMALL
    page.run()
    for number, numbers in enumerate(DESCRIPTIONS.values()):
        typed(page, numbers, f"mine{number}")
    page.selectbox(key="gpu").set_value(key).run()
    assert not [*page.exception, *page.error]
    assert line(page)
