"""Files to start from: each works as it is, and says every field that its reader knows."""

import dataclasses

import pytest

from advisor.measure.campaign.campaign_file import MODES, Campaign, read_campaign
from advisor.workload.job_file import _Entry


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("here")
def test_a_file_of_jobs_is_ranked_as_it_is(advisor):
    said = advisor("init", "jobs")
    assert said.code == 0
    assert "advisor recommend --jobs jobs.toml" in said.out
    assert advisor("recommend", "--jobs", "jobs.toml").code == 0


def test_a_file_of_jobs_says_every_field(advisor, here):
    advisor("init", "jobs", "--out", "mine.toml")
    text = (here / "mine.toml").read_text()
    assert all(f"{field.name} = " in text for field in dataclasses.fields(_Entry))


def test_jobs_with_every_field_taken_in_are_still_a_job_file(advisor, here):
    advisor("init", "jobs")
    text = (here / "jobs.toml").read_text()
    fields = [line[2:] for line in text.splitlines() if line.startswith("# ") and " = " in line]
    said = [line for line in fields if not line.startswith("deadline_s")]
    (here / "jobs.toml").write_text("\n".join([text, *said]))
    assert advisor("recommend", "--jobs", "jobs.toml").code == 0


def test_a_campaign_can_be_drawn_as_it_is(advisor, here):
    advisor("init", "campaign")
    plan = read_campaign(here / "campaign.toml")
    assert {mode for counts in plan.degrees.values() for mode in counts} == set(MODES)
    text = (here / "campaign.toml").read_text()
    fields = {field.name for field in dataclasses.fields(Campaign)} - {"name"}
    assert all(field in text for field in fields)


@pytest.mark.usefixtures("here")
def test_a_trace_is_simulated_as_it_is(advisor):
    advisor("init", "trace")
    assert advisor("simulate", "--trace-in", "trace.csv").code == 0


def test_what_is_there_is_not_overwritten(advisor, here):
    (here / "jobs.toml").write_text("mine")
    said = advisor("init", "jobs")
    assert said.code == 2
    assert "jobs.toml exists already" in said.err
    assert (here / "jobs.toml").read_text() == "mine"


@pytest.mark.usefixtures("here")
def test_there_are_three_kinds(advisor):
    said = advisor("init", "banana")
    assert said.code == 2
    assert "campaign" in said.err
