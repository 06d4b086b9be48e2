"""Profiles and job files that a visitor hands in."""

import pytest

from advisor.hardware.gpus import known_gpus
from advisor.prediction.find_profile import profile_finder
from advisor.prediction.handed_in import read_handed_in
from advisor.workload.minimal_profile import minimal_text
from tests import synthetic

CARD = known_gpus()["h200-141gb"]
FIND = profile_finder(CARD)


def mine(**changes):
    return minimal_text(synthetic.numbers(**changes)).encode()


def handed(*files, taken=("taken",), card=CARD):
    return read_handed_in(files, card, FIND, taken)


def test_a_profile_of_a_taken_name_gets_a_name_apart_and_it_is_said():
    read = handed(("a.json", mine(workload="taken")), ("b.json", mine(workload="free")))
    assert [row.job for row in read.rows] == ["taken-yours", "free"]
    assert [job.name for job in read.jobs.values()] == ["taken-yours", "free"]
    assert "taken-yours" in read.notes[0]


def test_a_job_file_means_the_profile_that_was_handed_in_with_it():
    text = b'[[job]]\nprofile = "taken"\ncopies = 2\nepochs = 3\n'
    read = handed(("jobs.toml", text), ("a.json", mine(workload="taken", step_s=0.5)))
    assert (read.rows[1].copies, read.rows[1].epochs) == (2, 3)
    assert read.jobs[read.rows[1].job].profile.step_s == 0.5


def test_of_two_files_with_one_name_the_second_is_refused_but_a_copy_is_the_same_job():
    read = handed(("a.json", mine()), ("b.json", mine(step_s=1)), ("a.json", mine()))
    assert len(read.rows) == len(read.errors) == 1
    assert read.errors[0].startswith("b.json")


@pytest.mark.parametrize("key", list(known_gpus()))
def test_a_profile_of_another_gpu_is_estimated(key):
    (job,) = handed(("a.json", mine()), card=known_gpus()[key]).jobs.values()
    assert job.profile.gpu == key
    assert job.profile.is_estimate == (key != CARD.key)


def test_a_bad_file_hides_no_other():
    read = handed(("a.json", b"{"), ("b.json", mine()), ("c.toml", b"["))
    assert (len(read.rows), len(read.errors)) == (1, 2)
