import io
import json
import re
from dataclasses import replace

import pytest
from rich.console import Console

from advisor.plan.comparison import compare
from advisor.plan.forecast import Mixes, forecast
from advisor.report.comparison_text import comparison_document, comparison_report
from advisor.sharing import Mps, Naive, Serial
from tests.plan.stand_in import H200, StandIn
from tests.plan.test_comparison import LARGE, OBJECTIVES, SMALL, compared


def printed(found, columns=80):
    console = Console(file=io.StringIO(), width=columns)
    console.print(comparison_report(found))
    return console.file.getvalue()


def test_the_answer_comes_first_then_what_binds_then_each_job():
    text = printed(compared("naive", "mps", [LARGE] * 2, wide=0.01))
    order = ["mps is 25% ahead", "naive: GPU time is the limit", "in all", "resnet152", "slowdown"]
    assert sorted(order, key=text.index) == order


def test_of_each_way_to_share_it_is_said_whether_it_is_worth_it():
    jobs = [LARGE, LARGE]
    mixes = Mixes(jobs, StandIn(H200, wide=0.01))
    naive, mps, serial = (forecast(mixes, each) for each in (Naive(), Mps(), Serial()))
    found = compare(jobs, H200, (naive, mps), serial=serial)
    text = " ".join(printed(found, 400).split())
    assert re.search(
        r"One after another takes .*: naive is .* that.*; mps is .*ahead of that", text
    )
    one = compare(jobs, H200, (serial, mps), serial=serial)
    assert "One after another takes" not in printed(one, 400)
    assert comparison_document(one)["serial"] is None
    assert comparison_document(found)["serial"]["cost"]["p50"] == serial.makespan_s


def test_a_change_that_the_error_may_explain_is_shown_with_a_question_mark():
    assert "-20% ?" not in printed(compared("naive", "mps", [LARGE] * 2, wide=0.01))
    unsure = printed(compared("naive", "mps", [LARGE] * 2, wide=0.5))
    assert "-20% ?" in unsure
    assert "?: within our error" in unsure
    assert "mps looks 25% ahead of naive, within our error: they may be equal" in unsure


def test_jobs_of_which_the_same_is_said_are_one():
    text = printed(compared("naive", "mps", [SMALL, SMALL, LARGE]))
    assert "resnet26-cifar10-bs128 x2\n" in text


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("columns", [80, 100])
def test_it_fits_the_columns_there_are(columns, objective):
    text = printed(compared("naive[1];mps[2]", "mig=3g.71gb,3g.71gb", objective=objective), columns)
    assert max(map(len, text.splitlines())) <= columns


def test_a_document_has_the_keys_that_others_script_against():
    found = compared("naive", "mps", [LARGE] * 2, wide=0.01)
    document = json.loads(json.dumps(comparison_document(found), allow_nan=False))
    assert document.keys() == {
        "schema", "gpu", "compared_by", "note", "calibrated", "host", "own_paces",
        "stale", "unsteady", "estimated_from", "estimated_profiles", "estimated_batches", "text",
        "power_cap_w",
        "better", "cost", "serial", "plans", "power_w", "jobs",
    }  # fmt: skip
    assert document["better"] == "mps"
    assert document["cost"].keys() == {"first", "second", "change", "within_error"}
    for job in document["jobs"]:
        assert job.keys() == {
            "number", "job", "step_s", "ends_s", "memory_mib", "energy_step_j", "slowdown",
            "oom_probability", "limits", "reason",
        }  # fmt: skip
    for plan in document["plans"]:
        assert plan.keys() == {
            "sharing", "power_cap_w", "confirmed_on_hardware", "estimated_from", "forbidden",
            "binding",
        }  # fmt: skip


def test_equal_plans_have_no_better_one():
    assert comparison_document(compared("naive", "naive"))["better"] is None


def test_a_capped_plan_is_named_with_its_cap():
    plain = compared("mps", "mps", [LARGE] * 2).plans[0]
    capped = replace(plain, prediction=replace(plain.prediction, power_cap_w=400.0))
    text = printed(compare([LARGE] * 2, H200, (plain, capped)))
    assert "mps at 400 W" in text
    assert "Under a power cap of 400 W" in text
