"""The views of a plan on the page, of which one is open."""

from tests.page.seen import captions, charts, choose_plan, look_at


def test_how_each_job_fares_is_drawn(page):
    page.run()
    look_at(page, "How each fares")
    assert not page.exception
    assert len(charts(page)) == 1 + 1


def test_the_notation_of_the_plan_in_view_and_of_all_others_is_explained(page):
    page.run()
    choose_plan(page, "serial")
    assert "This plan: one after another." in captions(page)
    assert "mps=: per cent of the SMs" in captions(page)


def test_a_second_plan_is_shown_beside_the_first_with_what_differs_and_both_drawn(page):
    page.run()
    look_at(page, "Beside another plan")
    assert not page.exception
    assert page.selectbox(key="second plan").value.startswith("2  ")
    serial = next(name for name in page.selectbox(key="second plan").options if "serial" in name)
    page.selectbox(key="second plan").set_value(serial).run()
    assert not page.exception
    whole, *jobs = [each.value for each in page.table if "change" in each.value]
    first = page.selectbox(key="plan").value.split()[0]
    _, *columns, change = whole.columns
    assert [name.split()[0] for name in columns] == [first, serial.split()[0]]
    assert change == "change"
    assert len(jobs) == 3
    assert len(charts(page)) == 1 + 2 * 2


def test_the_plan_that_was_second_can_become_the_first(page):
    page.run()
    look_at(page, "Beside another plan")
    choose_plan(page, "2  ")
    assert not page.exception
    assert page.selectbox(key="second plan").value.startswith("1  ")


def test_a_link_opens_the_view_and_compares_the_plans_that_it_was_made_with(page):
    page.query_params.update({"view": "Beside another plan", "plan": "naive", "beside": "serial"})
    page.run()
    assert not page.exception
    assert page.pills(key="view").value == "Beside another plan"
    assert page.selectbox(key="second plan").value.endswith("  serial")
    assert page.query_params["view"] == "Beside another plan"
    assert page.query_params["beside"] == "serial"
