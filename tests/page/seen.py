"""A user's actions on the page, and what the page then shows."""

import json


def words(elements):
    """The texts of `elements` as a reader sees them, without the marks that keep them literal."""
    return [each.value.replace("\\", "").replace("\u2060", "") for each in elements]


def line(page):
    """The one line of the answer."""
    return next(text for text in words(page.markdown) if text.startswith("## "))


def badge(page):
    """The verdict on the best plan, and its colour."""
    text = next(text for text in words(page.markdown) if "-badge[" in text)
    return f"{text.partition(']')[0]}]"


def ways(page):
    """The table that is the chart: its rows, and the plan that it marks as looked at."""
    parts = page.get("bidi_component")
    table = next(each for each in parts if each.proto.component_name == "advisor_ways")
    return json.loads(table.proto.json)


def click(page, way):
    """Click the row of a plan."""
    page.query_params["plan"] = way
    return page.run()


def wrong(page):
    """Every sentence about what is wrong."""
    assert not page.exception
    return " ".join(words([*page.error, *page.warning, *page.info]))


def editor(page):
    (table,) = page.data_editor
    return table


def jobs(page):
    """The rows of the table of jobs, by name, from which the page starts."""
    return {row["job"]: row for row in editor(page).value.to_dict("records")}


def edit(page, edited=None, added=(), deleted=()):
    """Type into the table: cells by the row's place, rows at its end, or rows to remove."""
    changes = {"edited_rows": edited or {}, "added_rows": list(added), "deleted_rows": [*deleted]}
    page.session_state[editor(page).key] = changes
    return page.run()


def fill_in(page, name, **cells):
    return edit(page, {[*editor(page).value["job"]].index(name): cells})


def choose(page, *names):
    return edit(page, added=[{"job": name} for name in names], deleted=range(len(jobs(page))))


def hand_in(page, *files):
    content = [(name, text, "application/octet-stream") for name, text in files]
    return page.file_uploader(key="files").set_value(content).run()


def look_at(page, view):
    page.session_state["view"] = view
    return page.run()


def get_commands(page):
    next(each for each in page.button if each.label == "Get the commands").click()
    return page.run()


def charts(page):
    return [*page.get("vega_lite_chart"), *page.get("arrow_vega_lite_chart")]


def rows_with(page, head):
    tables = [each.value for each in [*page.dataframe, *page.table]]
    return next(each for each in tables if head in each)
