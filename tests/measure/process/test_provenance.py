from advisor.measure.process.claimed_device import Device, host_cpu
from advisor.measure.process.provenance import Origin, command_line, recipes


def test_a_command_is_recorded_without_its_paths():
    words = ["/home/ann/secret/plans.json", "--out", "../runs.jsonl", "--cores", "0-15"]
    assert command_line("advisor.collocation", words) == (
        "python -m advisor.collocation plans.json --out runs.jsonl --cores 0-15"
    )


def test_values_of_variables_are_not_recorded_since_they_may_be_secrets():
    words = ["--env", "TOKEN=hush", "--env=KEY=hush", "--batch=64", "--", "python", "a.py", "x=3"]
    assert command_line("advisor.profiling", words) == (
        "python -m advisor.profiling --env TOKEN=... --env=KEY=... --batch=64 -- python a.py x=3"
    )


def test_what_nobody_measured_is_none():
    origin = Origin(Device("cpu", None, "cpu", host_cpu(), None), "python -m x", 2)
    provenance = origin.provenance({"torch": "2.13.0", "cuda": None, "timm": None}, (None, None))
    assert provenance.device == host_cpu()
    assert provenance.driver is None
    assert provenance.cuda is None
    assert provenance.sm_clock_mhz is None
    assert provenance.host_cores == 2


def test_what_is_measured_says_with_which_code_workloads_were_trained():
    origin = Origin(Device("cpu", None, "cpu", host_cpu(), None), "python -m x", 2)
    provenance = origin.provenance({"torch": "2.13.0"}, (None, None))
    assert provenance.recipes == recipes()
    assert len(recipes()) == 12


def test_a_comment_does_not_change_what_is_trained_and_a_statement_does(tmp_path, monkeypatch):
    monkeypatch.setattr("advisor.measure.process.provenance._ZOO", tmp_path)
    found = set()
    for text in (
        '"""A net."""\nx = 1\n',
        '"""The net."""\n# said\nx = 1\n',
        '"""A net."""\nx = 2\n',
    ):
        (tmp_path / "recipe.py").write_text(text)
        recipes.cache_clear()
        found.add(recipes())
    recipes.cache_clear()
    assert len(found) == 2
