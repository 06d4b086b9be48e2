"""Scripts that were measured, and what docs/your-own-train-py.md says of them."""

from statistics import mean

import pytest

from advisor.sharing import SHARED_MODES
from research.files import BENCHMARKS
from research.script_score import COMMANDS, score
from research.script_table import (
    alone,
    another_host,
    by_commands,
    committed,
    mixes,
    script_tables,
)
from research.script_twins import ALIKE


def test_the_committed_score_follows_from_the_committed_runs():
    found, said = score(BENCHMARKS / "scripts"), committed("scripts")
    for part in ("alone", "twins", "turns", "by_plan"):
        assert found[part] == said[part]
    parts = [(found["together"], said["together"])]
    for now, then in zip(found["by_commands"].values(), said["by_commands"].values(), strict=True):
        for part in ("by_plan", "unsteady", "gpu_bound"):
            assert now[part] == then[part]
        parts += [(steps, then["by_runs_before"][name])
                  for name, steps in now["by_runs_before"].items()]  # fmt: skip
    for now, then in (each for part in parts for each in zip(*part, strict=True)):
        assert now["run"] == then["run"]
        assert now["p50_s"] == pytest.approx(then["p50_s"], rel=0.02)


@pytest.mark.parametrize("where", COMMANDS)
def test_runs_of_a_job_teach_what_its_profile_did_not_show(where):
    off = errors_on(where)
    # Where hardly anything is left to learn, it may cost a little.
    assert off["runs before"] < max(off["profiles alone"], 0.05)


def test_that_scripts_wait_for_the_gpu_makes_predictions_nearer():
    for where in ("commands-h100-quieter", "commands-h100-waiting"):
        off = errors_on(where)
        assert off["profiles alone"] < off["no waits"]


def errors_on(where):
    """Mean error by what was known beforehand."""
    found = committed("scripts")["by_commands"][where]["by_runs_before"]
    return {name: mean(abs(each["error"]) for each in steps) for name, steps in found.items()}


def test_a_script_does_on_the_gpu_what_the_same_work_of_the_zoo_does():
    for each in committed("scripts")["alone"]:
        if each["script"] in ALIKE:
            assert abs(each["on_gpu"]) < 0.02
            assert abs(each["memory"]) < 0.02
        assert 0 < each["hook_share"] < 0.01


def test_profiled_by_turns_a_script_takes_the_memory_and_the_gpu_as_the_zoo_does():
    for each in committed("scripts")["twins"]:
        assert abs(each["on_gpu"]) < 0.01
        assert abs(each["memory"]) < 0.02


def test_by_turns_of_a_second_a_script_differs_no_more_than_two_processes_of_one_job_can():
    found = committed("scripts")["turns"]
    apart = max(each[kind] for each in found for kind in ("scripts", "zoos"))
    assert [each["script"] for each in found if abs(each["step"]) > apart / 2] == []


def test_on_cores_that_nobody_disturbs_a_script_takes_the_steps_of_the_zoo():
    found = [each["undisturbed"] for each in committed("scripts")["turns"]]
    assert max(map(abs, found)) < 0.03
    assert abs(sum(found) / len(found)) < 0.02


def test_each_way_of_sharing_is_a_line_and_what_was_not_compared_a_dash():
    step = {"run": "scripts-a", "sharing": "naive", "error": -0.1, "inside": True}
    zoo = step | {"run": "scripts-z-mps", "sharing": "mps"}
    line, other = mixes([step, step | {"error": 0.3, "inside": False}, zoo], "mixes")
    assert line == ("mixes, naive", "2", "20.0 %", "20.0 %", "50.0 %", "-")
    assert other[1:] == ("1", "10.0 %", "10.0 %", "100.0 %", "-")
    names = ("own_clock", "step", "on_gpu", "memory")
    nothing = dict.fromkeys(names) | {"script": "own", "hook_us": 99.6, "hook_share": 0.004}
    assert alone([nothing]).splitlines()[-1] == "| own | 100 | 0.40 % | - | - | - | - |"


def test_mixes_with_an_unsteady_profile_are_left_out_of_a_line_of_their_own():
    step = {"run": "plan-m1-mps", "sharing": "mps", "script": "a", "error": -0.1, "inside": True}
    noisy = step | {"run": "plan-m2-mps", "error": 0.3, "inside": False}
    spoiled = [noisy, noisy | {"script": "b"}]
    learnt = {"profiles alone": spoiled, "runs before": [step]}
    found = {"by_plan": [step, *spoiled], "unsteady": ["b"], "by_runs_before": learnt,
             "gpu_bound": ["b"]}  # fmt: skip
    ours = {("mps", "gpu"): 0.04, ("mps", "host"): 0.07}
    every, steady, before, after = by_commands(found, "an H100", ours)
    assert every[-1] == "6.0 %"
    assert (every[1], steady[1], before[1], after[1]) == ("3", "1", "2", "1")
    assert steady[2:] == ("10.0 %", "10.0 %", "100.0 %", "-")
    assert len([*by_commands(found | {"by_plan": spoiled}, "an H100", ours)]) == 3
    assert len([*by_commands(found | {"unsteady": []}, "an H100", ours)]) == 3


def test_a_real_run_on_another_host_is_compared_as_if_it_were_a_prediction():
    step = {"run": "plan-m1-mps", "sharing": "mps", "script": "a", "measured_s": 0.02}
    other = step | {"script": "b", "measured_s": 9.0}
    (line,) = another_host([[step, other], [step | {"measured_s": 0.03}]])
    assert line[1:] == ("2", "41.7 %", "41.7 %", "-", "-")  # half more, and a third less
    assert line[0].endswith("another host instead of a prediction, MPS")


def test_the_document_has_all_tables():
    ours = {(mode, bound): 0.05 for mode in SHARED_MODES for bound in ("gpu", "host")}
    text = script_tables(ours)
    for part in ("plain_loop", "% apart", "other batch sizes", "| 5.0 % |"):
        assert part in text
