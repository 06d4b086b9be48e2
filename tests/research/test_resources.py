from research.memory_risk import Bin, RiskRow
from research.memory_score import MemoryRow, MemoryScore
from research.power_score import PowerRow
from research.resources import memory, power

MEASURED = MemoryRow(
    mode="mps", processes=6, held_mape=0.004, held_worst=0.02, least_mape=0.011, runs=3,
    total_mape=0.003,
)  # fmt: skip
TRIED = RiskRow(
    mode="naive", trials=9, misfits=4, recall=0.75, false_alarms=None, cautious_recall=1.0,
    cautious_false_alarms=0.4, brier=0.081,
    bins=(Bin(trials=4.5, predicted=0.9, observed=1.0),),
)  # fmt: skip


def told(**parts):
    score = MemoryScore(**{"gpu": "h200-141gb", "rows": (), "risks": ()} | parts)
    return memory(score)


def test_nothing_is_said_of_memory_or_power_that_nobody_measured():
    assert told() == ""
    assert power(()) == ""


def test_memory_is_told_by_process_and_in_total():
    assert "| MPS | 6 | 0.4 % | 2.0 % | 1.1 % | 3 | 0.3 % |" in told(rows=(MEASURED,))


def test_trials_say_what_was_caught_and_a_dash_where_none_could_be():
    text = told(risks=(TRIED,))
    assert "| naive | 9 | 4 | 75.0 % | - | 100.0 % | 40.0 % | 0.081 |" in text
    assert "| naive | 4.5 | 90.0 % | 100.0 % |" in text


def test_activity_is_told_in_points_beside_its_noise():
    row = PowerRow(
        mode="mps", pace="predicted", n=3, power_mape=0.04, power_coverage90=0.9,
        gract_error=0.008, smact_error=None, power_noise=0.03, gract_noise=0.013,
        smact_noise=None,
    )  # fmt: skip
    text = power((row,))
    assert "| MPS | predicted | 3 | 4.0 % | 90.0 % | 3.0 % | 0.8 | 1.3 | - | - |" in text
