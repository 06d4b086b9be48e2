"""Files that are handed in: what they become, and what becomes of those that are no profile."""

import json
from pathlib import Path

import pytest

from tests.browser.seen import answer, becomes, errors, hand_in, jobs, stands, type_in

pytestmark = pytest.mark.browser

ROOT = Path(__file__).parents[2]
MEASURED = ROOT / "profiles" / "h200-141gb" / "cnn-cifar10-bs128.json"
NUMBERS = {
    "schema": 1, "workload": "my-job", "gpu": "h200-141gb", "batch_size": 64, "step_s": 0.12,
    "memory_mib": 5300, "power_w": 390, "gpu_utilization": 0.83, "memory_utilization": 0.41,
}  # fmt: skip
MARKUP = "<img src=x onerror=alert(1)>"
PICTURE = "![](http://example.com/seen.png)"


def numbers(**other):
    return json.dumps(NUMBERS | other).encode()


def job_file(profile):
    return f"[[job]]\nprofile = {json.dumps(profile)}\ncopies = 2\nepochs = 1\n".encode()


HOSTILE = {
    "empty.json": b"",
    "torn.json": b'{"schema": 1, ',
    "deep.json": b"[" * 100_000,
    "deep.toml": b"a = " + b"[" * 5000,
    "bytes.json": bytes(range(256)),
    "markup.json": numbers(workload=MARKUP),
    f"{MARKUP}.json": b"{}",
    "picture.json": numbers(workload=PICTURE),
    f"{PICTURE}.json": b"{}",
    "picture.toml": job_file(PICTURE),
    "nowhere.json": numbers(gpu="../../etc/passwd"),
    "passwd.toml": job_file("/etc/passwd"),
}


def test_profiles_and_job_files_become_jobs_of_the_answer(opened):
    page = opened()
    other = json.loads(MEASURED.read_bytes())
    other["workload"]["name"] = "mine-bs128"
    hand_in(page, ("mine.json", json.dumps(other).encode()), ("numbers.json", numbers()))
    stands(page)
    becomes(answer, page, lambda: hand_in(page, ("jobs.toml", job_file("my-job"))))
    assert errors(page) == []
    assert jobs(page) == ["my-job (jobs.toml, 1)"]
    becomes(answer, page, lambda: type_in(page, 1, 0, "mine-bs128"))


def test_files_that_are_none_of_ours_get_a_sentence_each_and_the_answer_stays(opened):
    page = opened()
    before = answer(page)
    hand_in(page, *HOSTILE.items())
    page.get_by_test_id("stAlertContentError").nth(len(HOSTILE) - 1).wait_for()
    said = errors(page)
    assert len(said) == len(HOSTILE)
    assert all(1 < len(each.split()) < 60 for each in said)
    assert answer(page) == before
    assert page.locator("[data-testid=stAlert] img").count() == 0


def test_a_file_of_200_mb_is_refused_before_it_is_sent(opened, tmp_path):
    huge = tmp_path / "huge.json"
    with huge.open("wb") as file:
        file.truncate(200 * 2**20)
    page = opened()
    hand_in(page, huge)
    page.get_by_text("must be 8").wait_for()
    assert "all done in" in answer(page)


def test_a_profile_of_another_gpu_is_said_to_be_estimated(opened):
    page = opened()
    other = numbers(gpu="a100-40gb", workload="elsewhere")
    becomes(
        answer, page, lambda: hand_in(page, ("a.json", other), ("j.toml", job_file("elsewhere")))
    )
    page.get_by_text("Estimated from a100-40gb").first.wait_for()


def test_files_that_are_handed_in_are_written_nowhere(opened, folder):
    page = opened()
    before = _files(folder, ROOT)
    hand_in(page, ("mine.json", numbers()), ("torn.json", b"{"), ("jobs.toml", job_file("my-job")))
    page.get_by_text("torn.json").first.wait_for()
    stands(page)
    assert _files(folder, ROOT) == before


def _files(*folders):
    """All files but compiled ones, with the times at which they were written."""
    return {
        path: path.stat().st_mtime_ns
        for folder in folders
        for path in folder.rglob("*")
        if path.is_file() and not {".git", ".venv", "__pycache__"} & set(path.parts)
    }
