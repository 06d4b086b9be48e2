import json

import pytest

from advisor.errors import InvalidInput
from advisor.measure.campaign.campaign_command import refuse_profiles
from advisor.measure.campaign.steadiness import Steadiness


def profile(folder, name, step_s):
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps({"windows": windows(step_s)}))


def windows(step_s):
    return [{"seconds": 1.0, "steps": 1.0 / step_s}] * 3


def run(name, *steps_s, purpose="solo", repeats=None, outcome="ok"):
    tenants = [
        {"workload": {"name": f"w{n}"}, "outcome": outcome, "windows": windows(step_s)}
        for n, step_s in enumerate(steps_s)
    ]
    return {"id": name, "purpose": purpose, "repeats": repeats, "tenants": tenants}


@pytest.fixture
def steadiness(tmp_path):
    profile(tmp_path, "w0", 0.010)
    return Steadiness([tmp_path])


def test_solo_runs_are_held_against_their_profiles(steadiness):
    for number, step_s in enumerate((0.0101, 0.0104, 0.012)):
        steadiness.note(run(f"solo-{number}", step_s))
    steadiness.note(run("pair", 0.02, 0.02, purpose="drawn"))
    steadiness.note(run("lost", 0.02, outcome="died"))
    assert steadiness.short() == "2/3 solo runs within 5%"
    assert "so is 1/1 workload" in steadiness.summary()


def test_repeats_and_controls_are_held_against_their_twins(steadiness):
    steadiness.note(run("a", 0.010, 0.020, purpose="drawn"))
    steadiness.note(run("repeat-of-a", 0.011, 0.022, purpose="repeat", repeats="a"))
    steadiness.note(run("c-busy", 0.0102, purpose="control"))
    steadiness.note(run("c-idle", 0.0100, purpose="control"))
    said = steadiness.summary()
    assert "repeats: median difference 10.0% of 2 steps" in said
    assert "busy against idle neighbours: median difference 2.0% of 1 step" in said


def test_the_first_folder_of_profiles_counts(tmp_path):
    profile(tmp_path / "mine", "w0", 0.010)
    profile(tmp_path / "known", "w0", 0.020)
    steadiness = Steadiness([tmp_path / "mine", tmp_path / "known"])
    steadiness.note(run("solo", 0.010))
    assert steadiness.short() == "1/1 solo run within 5%"


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"windows": [{"seconds": 0}]}', '"w1"'])
def test_a_file_that_is_no_profile_stops_only_a_campaign_that_needs_it(tmp_path, capsys, text):
    profile(tmp_path, "w0", 0.010)
    (tmp_path / "w1.json").write_text(text)
    steadiness = Steadiness([tmp_path])
    assert steadiness.profiled == {"w0"}
    refuse_profiles(steadiness, {"w0"})
    assert f"warning: {tmp_path / 'w1.json'}: no" in capsys.readouterr().err
    with pytest.raises(InvalidInput, match=r"w1\.json: no.* move it out of this folder"):
        refuse_profiles(steadiness, {"w0", "w1"})


@pytest.mark.parametrize("tenants", [[{}], [None], "no", [{"outcome": "ok", "windows": [1]}]])
def test_a_run_that_is_not_whole_is_refused_by_its_id(steadiness, tenants):
    with pytest.raises(InvalidInput, match="run r1 is incomplete"):
        steadiness.note({"id": "r1", "tenants": tenants})
