"""Profiles that are handed in on the page."""

from dataclasses import replace

import pytest

from advisor.workload.minimal_profile import MinimalProfile, minimal_text
from advisor.workload.writing import profile_text
from tests import shelf
from tests.page.seen import captions, choose, fill_in, jobs_of_plan, look_at, ranking

MINE = MinimalProfile(
    schema=1, workload="my-job", gpu=shelf.GPU, batch_size=64, step_s=0.12, memory_mib=5300,
    power_w=390,
    gpu_utilization=0.83, memory_utilization=0.41,
)  # fmt: skip


def hand_in(page, name, content):
    page.run()
    return page.file_uploader(key="uploads").set_value([(name, content, "application/json")]).run()


def test_a_minimal_profile_that_is_handed_in_is_a_job_among_others(page):
    hand_in(page, "mine.json", minimal_text(MINE).encode())
    assert not page.error
    choose(page, "my-job", "bert-base-finetune-bs16")
    assert not page.exception
    assert jobs_of_plan(page) == ["my-job", "bert-base-finetune-bs16"]


def test_columns_of_which_nothing_is_known_are_left_out(page):
    hand_in(page, "mine.json", minimal_text(replace(MINE, power_w=None)).encode())
    assert {"until all are done", "energy"} <= {*ranking(page)}
    choose(page, "my-job", "bert-base-finetune-bs16")
    assert not page.exception
    assert [*ranking(page)] == ["rank", "plan", "gain over serial", "memory", "stands on"]


def test_a_profile_of_another_gpu_is_estimated_and_said_to_be(page):
    known = shelf.PROFILES["resnet26-cifar10-bs128"]
    other = replace(
        known, workload=replace(known.workload, name="elsewhere-bs128"), gpu="h100-sxm-80gb"
    )
    hand_in(page, "elsewhere.json", profile_text(other).encode())
    choose(page, "elsewhere-bs128", "bert-base-finetune-bs16")
    assert not page.exception
    boxes = [*page.success, *page.info, *page.warning]
    assert any("Estimated from h100-sxm-80gb" in each.value for each in boxes)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "bad.json"),
        (b"{", "bad.json"),
        (b"[" * 100_000, "bad.json"),
        (b'{"schema": 1, "schema": 1}', "bad.json"),
        (b"\x00\xff", "bad.json"),
    ],
)
def test_what_holds_no_profile_is_refused_in_a_sentence_and_the_rest_stays(page, content, said):
    hand_in(page, "bad.json", content)
    assert not page.exception
    assert page.error[0].value.startswith(said)
    assert page.success, "the answer for the other jobs"


JOBS = b"""[[job]]
profile = "bert-base-finetune-bs16"
copies = 2
epochs = 3
user = "ada"

[[job]]
profile = "my-job"
deadline_s = 7200
protect = 0.5
"""


def hand_in_jobs(page, *files):
    page.run()
    kinds = {"toml": "application/toml", "json": "application/json"}
    given = [(name, content, kinds[name.rpartition(".")[2]]) for name, content in files]
    return page.file_uploader(key="uploads").set_value(given).run()


def test_a_job_file_fills_the_table_and_may_name_a_profile_that_is_handed_in_beside_it(page):
    hand_in_jobs(page, ("jobs.toml", JOBS), ("mine.json", minimal_text(MINE).encode()))
    assert not page.exception
    assert not page.error
    first, second = page.session_state["job table"].now
    assert first["name"].startswith("bert-base-finetune-bs16 (jobs.toml")
    assert (first["copies"], first["epochs"], first["user"]) == (2, 3, "ada")
    assert second["deadline_min"] == 120
    assert jobs_of_plan(page) == [*["bert-base-finetune-bs16"] * 2, "my-job"]


def test_nothing_that_a_handed_in_job_file_says_is_run_or_read_here(page, tmp_path):
    touched = tmp_path / "touched"
    content = f"""[[job]]
profile = "bert-base-finetune-bs16"
command = ["touch", "{touched}"]
folder = "{tmp_path}"

[[job]]
profile = "resnet26-cifar10-bs128"
command = ["python", "train.py"]
"""
    hand_in_jobs(page, ("jobs.toml", content.encode()))
    assert not page.exception
    assert not page.error
    said = captions(page)
    assert "Nothing that a job file says is run or read here" in said
    assert "its command is left out, since it does not say in which folder, /... , it runs" in said
    look_at(page, "Apply it")
    page.selectbox(key="format").set_value("commands").run()
    shown = page.code[0].value
    assert f"env -C {tmp_path} touch {touched}" in shown
    assert "./resnet26-cifar10-bs128.sh" in shown
    assert not touched.exists()


def test_a_job_of_a_file_can_be_changed_as_any_other(page):
    hand_in_jobs(page, ("jobs.toml", JOBS.partition(b"\n\n")[0]))
    fill_in(page, "bert-base-finetune-bs16 (jobs.toml, 1)", copies=3)
    assert not page.exception
    assert len(jobs_of_plan(page)) == 3


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "job"),
        (b"[[job]", "jobs.toml"),
        (b"\xff", "jobs.toml"),
        (b"a = " + b"[" * 5000, "jobs.toml"),
        (b"#" * (2**20 + 1), "1,048,576 bytes"),
        (b'[[job]]\nprofile = "nobody-knows"', "nobody-knows"),
        (b'[[job]]\nprofile = "/etc/passwd"', "hand that profile in"),
        (b'[[job]]\nprofile = "train.py"', "hand that profile in"),
        (b'[[job]]\nprofile = "<script>alert(1)</script>"', "hand that profile in"),
        (b'[[job]]\nprofile = "bert-base-finetune-bs16"\ncopies = 400', "48"),
        (b'[[job]]\nprofile = "bert-base-finetune-bs16"\nwords = 1', "words"),
    ],
)
def test_what_is_no_job_file_is_refused_in_a_sentence_and_the_rest_stays(page, content, said):
    hand_in_jobs(page, ("jobs.toml", content))
    assert not page.exception
    assert page.error[0].value.startswith("jobs.toml")
    assert said in page.error[0].value
    assert page.success, "the answer for the other jobs"


def test_a_link_made_with_files_asks_for_them_again_and_then_for_all_of_its_jobs(page):
    page.query_params["file"] = ["mine.json"]
    page.query_params["job"] = ["my-job:2:3", "bert-base-finetune-bs16"]
    page.run()
    assert "This one was made with `mine.json`: hand in again" in page.sidebar.info[0].value
    hand_in(page, "mine.json", minimal_text(MINE).encode())
    assert not page.exception
    assert not page.sidebar.info
    assert jobs_of_plan(page) == [*["my-job"] * 2, "bert-base-finetune-bs16"]
    assert page.query_params["file"] == "mine.json"
