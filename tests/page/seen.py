"""What somebody does on the page, and what they see there."""

from tests import shelf


def choose(page, *names):
    return page.multiselect(key=f"jobs {shelf.GPU}").set_value(list(names)).run()


def cap(page, watts):
    return page.number_input(key="power cap").set_value(watts).run()


def charts(page):
    return [element for element in page.get("vega_lite_chart") + page.get("arrow_vega_lite_chart")]


def choose_plan(page, words):
    """The first plan that has `words` in it."""
    plan = next(name for name in page.selectbox(key="plan").options if words in name)
    return page.selectbox(key="plan").set_value(plan).run()


def ranking(page):
    return page.table[-1].value


def ends(page):
    """What the simulation comes down to, by the names of its figures."""
    return dict(page.table[0].value.itertuples(index=False))
