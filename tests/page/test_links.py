"""Links: what they hold, and what is wrong in them, on both pages."""

import pytest

from tests import shelf
from tests.page.seen import fill_in, jobs, line, wrong

RESNET, SMALL, BERT = list(shelf.PROFILES)[:3]
BAD = {
    "gpu": "rtx-9090",
    "goal": "fame",
    "jobs": f"{BERT}:many",
    "plan": "magic",
    "root": "maybe",
    "shared": "perhaps",
    "caps": "1",
    "upper": "high",
    "free": "much",
    "cap": "-3",
    "ask": "<script>",
    "job": "no-such-job",
    "by": "force",
    "running": "9 · no-such-job",
    "max_slowdown": "-1",
    "gpus": "0",
    "view": "sea",
    "speed": "9",
}


@pytest.mark.parametrize("which", ["page", "more_page"])
@pytest.mark.parametrize("key", list(BAD))
def test_whatever_does_not_fit_in_a_link_is_named_on_both_pages(request, which, key):
    page = request.getfixturevalue(which)
    page.query_params[key] = BAD[key]
    page.run()
    assert f"{key}: " in wrong(page)
    assert BAD[key].partition(":")[0] in wrong(page)


@pytest.mark.parametrize("key", ["cap", "free", "root"])
def test_a_field_that_i_change_is_no_longer_wrong(page, key):
    page.query_params[key] = BAD[key]
    page.run()
    assert f"{key}: " in wrong(page)
    if key == "root":
        page.checkbox(key=key).uncheck().run()
    else:
        page.number_input(key=key).set_value(300.0 if key == "cap" else 50.0).run()
    assert f"{key}: " not in wrong(page)
    assert line(page)


def test_the_address_always_holds_gpu_goal_and_jobs(page):
    page.run()
    first = dict(page.query_params)
    assert first.keys() == {"gpu", "goal", "jobs"}
    fill_in(page, SMALL, copies=2)
    fill_in(page, SMALL, copies=1)
    page.selectbox(key="goal").select_index(1).run()
    page.selectbox(key="goal").select_index(0).run()
    assert dict(page.query_params) == first


@pytest.mark.parametrize("link", [{"gpu": shelf.GPU}, {"jobs": ""}, {"gpu": "", "goal": ""}])
def test_a_link_without_jobs_has_the_examples(page, link):
    page.query_params |= link
    page.run()
    assert [*jobs(page)] == [RESNET, SMALL, BERT]
    assert not wrong(page)
