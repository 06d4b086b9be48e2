"""Copies of one job on the page."""

from tests.page.seen import charts


def test_trials_per_hour_are_drawn_once_a_job_is_chosen_with_the_numbers_that_fit_and_pay(page):
    page.run()
    before = len(charts(page))
    page.selectbox(key="trials").set_value("resnet26-cifar10-bs128").run()
    assert not page.exception
    assert not page.error
    assert len(charts(page)) == before + 1
    assert any("Copies that pay: " in each.value for each in page.caption)
    assert any("trials of resnet26-cifar10-bs128" in each.value for each in page.markdown)
