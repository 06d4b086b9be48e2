"""What somebody does on the page, and what they see there."""


def jobs(page):
    table = page.session_state["job table"]
    return {row["name"]: row for row in table.now}


def choose(page, *names, **cells):
    (editor,) = page.data_editor
    edits = {
        "edited_rows": {},
        "added_rows": [{"name": name} | cells for name in names],
        "deleted_rows": list(range(len(editor.value))),
    }
    page.session_state[editor.key] = edits
    return page.run()


def fill_in(page, name, **cells):
    """Type `cells` into the row of the job `name`, and leave all that was typed before."""
    (editor,) = page.data_editor
    known = page.session_state[editor.key]
    for row in known["added_rows"]:
        if row["name"] == name:
            row.update(cells)
            page.session_state[editor.key] = dict(known)
            return page.run()
    edited = {int(row): dict(typed) for row, typed in known["edited_rows"].items()}
    row = list(editor.value["name"]).index(name)
    edited[row] = edited.get(row, {}) | cells
    page.session_state[editor.key] = {**known, "edited_rows": edited}
    return page.run()


def cap(page, watts):
    return page.number_input(key="power cap").set_value(watts).run()


def captions(page):
    return " ".join(each.value for each in page.caption)


def charts(page):
    return [element for element in page.get("vega_lite_chart") + page.get("arrow_vega_lite_chart")]


def choose_plan(page, words):
    """The first plan that is called `words`, or else has them in it."""
    names = page.selectbox(key="plan").options
    called = [name for name in names if name.partition("  ")[2] == words]
    plan = next(iter(called or [name for name in names if words in name]))
    return page.selectbox(key="plan").set_value(plan).run()


def look_at(page, view):
    return page.pills(key="view").set_value(view).run()


def jobs_of_plan(page):
    """The job of each row under the plan in view, as often as there are copies of it."""
    rows = [name.partition(" x") for name in of_each_job(page)["job"]]
    return [name for name, _, copies in rows for _ in range(int(copies or 1))]


def ranking(page):
    return page.main.dataframe[-1].value


def outdated(page):
    return any("this is the last one" in each.value for each in page.warning) and page.success


def of_each_job(page):
    return rows_with(page, "slower than alone")


def rows_with(page, head):
    return next(each.value for each in page.table if head in each.value)
