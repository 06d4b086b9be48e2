"""What checks of hosts beforehand are worth, by the runs that followed."""

import pytest

from advisor.prediction.host_transfer import _TRUST, _TRUST_IN_PASSING
from research.host_checks import hosts, left_out, main, share


def test_the_part_of_a_check_that_is_believed_is_what_came_true():
    assert share([*hosts().values()]) == pytest.approx(_TRUST_IN_PASSING / _TRUST, abs=0.05)


def test_believing_a_part_is_nearer_than_all_or_nothing_also_on_a_host_left_out():
    found = hosts()
    steps = sum(len(each.came) for each in found.values())
    for extreme in (0.0, 1.0):
        errors = sum(each.error(extreme).sum() for each in found.values())
        assert left_out(found).mean() < errors / steps


def test_what_it_is_worth_is_said(capsys):
    main()
    assert "433 steps on 10 hosts" in capsys.readouterr().out
