import pytest

from advisor.workload.writing import append_run, profile_text, write_whole
from research.completion import compared_completions
from research.set_aside import said, set_aside
from tests import synthetic
from tests.plan.stand_in import StandIn
from tests.validate.whole_jobs import LONG, SHORT, whole

PROFILES = {each.name: each for each in (SHORT, LONG)}
# As the stand-in simulates them.
AGAIN = compared_completions([whole("now", "naive", (3.0, 5.0))], PROFILES, StandIn())


@pytest.fixture
def folder(tmp_path):
    there = tmp_path / "set-aside"
    write_whole(there / f"{SHORT.name}.json", profile_text(SHORT))
    append_run(there / "third-before-change.jsonl", synthetic.run([SHORT] * 2, "mps", 1.5))
    append_run(there / "panels-slow-host.jsonl", synthetic.run([SHORT] * 2, "mps", 1.5))
    append_run(there / "slow-host-completion-0.jsonl", whole("slow", "naive", (6.0, 10.0)))
    append_run(there / "cut-short-completion.jsonl", whole("cut", "naive", (6.0, 10.0)))
    return tmp_path


def test_what_was_set_aside_is_counted_and_what_it_said_stands_beside_what_is_said_now(folder):
    found = set_aside(folder, AGAIN, PROFILES, StandIn())
    assert (found.profiles, found.runs, found.panels, found.whole, found.cut_short) == (1,) * 5
    assert found.makespan == pytest.approx({"naive": 0.5})
    assert found.makespan_again == pytest.approx({"naive": 0.0})
    (text,) = said(found)
    assert "1 profile and 1 run of workloads whose code changed" in text
    assert "makespans by 50.0 % under naive (now 0.0 %)" in text


def test_of_a_gpu_of_which_nothing_was_set_aside_nothing_is_said(tmp_path):
    assert said(set_aside(tmp_path, AGAIN, PROFILES, StandIn())) == []
