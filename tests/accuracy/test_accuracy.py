"""Predictions stay as good as they were, for families that the model never saw.

`python -m tests.accuracy` writes the figures again.
"""

import pytest

from tests.accuracy.scoring import MODES, figures_of, read

SAME = 0.002  # 0.2 points, of mean errors and coverage
SAME_REGRET = 0.003


def assert_as_good(figures, stored):
    lines = []
    for mode in MODES:
        old, new = stored[mode], figures[mode]
        assert new["n"] == old["n"]
        # One job more or less in its interval is no change.
        bounds = {"mape": SAME, "coverage90": max(SAME, 1.01 / old["n"])}
        lines += [
            f"{mode}, {name}: {old[name]:.2%} stored, {new[name]:.2%} now"
            for name, bound in bounds.items()
            if abs(new[name] - old[name]) > bound
        ]
    old, new = stored["regret"], figures["regret"]
    assert new["n"] == old["n"]
    if abs(new["mean"] - old["mean"]) > SAME_REGRET:
        lines.append(f"regret: {old['mean']:.2%} stored, {new['mean']:.2%} now")
    assert not lines, "\n".join(lines)


def test_three_families_are_predicted_as_well_as_before(tmp_path):
    assert_as_good(figures_of(tmp_path), read()["three families"])


@pytest.mark.exhaustive
def test_all_families_are_predicted_as_well_as_before(tmp_path):
    assert_as_good(figures_of(tmp_path, whole=True), read()["all families"])
