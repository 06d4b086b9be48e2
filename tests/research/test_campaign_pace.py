from dataclasses import replace

from research.campaign_pace import section, sittings
from tests import synthetic

FOUR = "python -m advisor.campaign plan.toml --devices 0-3 --out runs"
ONE = "python -m advisor.campaign plan.toml --devices=2 --out runs"


def ran(command, *seconds):
    """Runs of a campaign, so many seconds after noon."""
    run = synthetic.run([synthetic.profile()])
    dates = (f"2026-11-21T12:{at // 60:02}:{at % 60:02}+00:00" for at in seconds)
    origin = replace(run.provenance, command=command)
    return [replace(run, provenance=replace(origin, date=date)) for date in dates]


def test_records_a_minute_are_told_by_how_many_gpus_made_them():
    several, single = sittings([
        *ran(FOUR, *range(0, 121, 10), *(0, 0, 0)), *ran(ONE, *range(300, 421, 20))
    ])  # fmt: skip
    assert (several.gpus, several.records, several.minutes, several.a_minute) == (4, 16, 2.0, 6.0)
    assert (single.gpus, single.records, single.a_minute) == (1, 7, 3.0)


def test_a_campaign_that_was_started_again_later_did_not_work_in_between():
    first, later = sittings(ran(ONE, 0, 30, 60, 900, 930, 960))
    assert first.a_minute == later.a_minute == 2.0


def test_what_is_no_campaign_or_too_short_has_no_pace():
    others = "python -m advisor.collocation plans.json --device 0"
    assert sittings([*ran(others, 0, 60), *ran(ONE, 0), *ran(FOUR, 0, 10, 20)]) == ()
    assert section(sittings(ran(others, 0, 60))) == ""


def test_the_report_names_the_command():
    text = section(sittings(ran(ONE, 0, 30, 60)))
    assert f"| `{ONE}` | 1 | 3 | 1.0 | 2.0 | 2.0 |" in text
