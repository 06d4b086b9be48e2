import json

import pytest

from advisor.validate.panels import panels
from research.recommended import followed, recommended, section
from tests.validate.test_panels import PAIR, evaluation, ran

NAMES = [each.name for each in PAIR]


def said(sharing, throughput=1.5, jobs=NAMES):
    each = {"set": "panel-00", "jobs": jobs, "sharing": sharing, "throughput": throughput}
    return {"gpu": "h200-141gb", "model_sha256": "0123456789abcdef", "sets": [each]}


def written(folder, document):
    (folder / "panels-of-pairs").mkdir()
    (folder / "panels-of-pairs" / "recommended.json").write_text(json.dumps(document))


ADVICE = [ran("naive", 1.6), ran("mps", 1.2), ran("mps=50,50", 1.25)]


def test_a_recommendation_gives_away_what_the_best_measured_sharing_had_more():
    (each,) = followed(said("mps=50,50", 1.5), panels(ADVICE))
    assert each.measured == pytest.approx(2 / 1.25)
    assert each.regret == pytest.approx(1 - 1.2 / 1.25)
    (serial,) = followed(said("serial"), panels(ADVICE))
    assert serial.measured == 1


def test_a_recommendation_that_nobody_ran_or_of_other_jobs_is_not_judged():
    assert followed(said("mps=30,70"), panels(ADVICE)) == ()
    assert followed(said("mps", jobs=NAMES[::-1]), panels(ADVICE)) == ()


def test_the_report_says_whose_recommendations_they_were(tmp_path):
    found = evaluation(*ADVICE)
    assert section(recommended(found, tmp_path)) == ""
    written(tmp_path, said("mps", 1.5))
    text = section(recommended(found, tmp_path))
    assert "`0123456789ab`" in text
    assert (
        "1 recommendations written down beforehand were run, 1 time each: they gave away 0.0 %"
        in text
    )
    assert "(always MPS 0.0 %, equal limits 4.0 %, always naive 25.0 % in the mean)" in text
    assert "off by 10.0 %" in text


def test_nothing_is_said_of_another_gpus_recommendations(tmp_path):
    written(tmp_path, said("mps") | {"gpu": "a100-40gb"})
    assert recommended(evaluation(*ADVICE), tmp_path) == ()
