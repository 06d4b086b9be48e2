"""What somebody does on the page, and what they see there."""

import json


def jobs(page):
    """The table of jobs as it stands, a row each."""
    table = page.session_state["job table"]
    return {row["name"]: row for row in table.now}


def choose(page, *names, **cells):
    """The jobs `names` alone, each with these `cells`."""
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


def legend(chart):
    """What the colours of a drawing of plans stand for."""
    *_, points = json.loads(chart.proto.spec)["layer"]
    return points["encoding"]["color"]["scale"]["domain"]


def in_the_ring(page):
    """The rank of the plan that is marked among all plans."""
    ring = json.loads(charts(page)[0].proto.spec)["layer"][2]
    (row,) = ring["data"]["values"]
    return row["plan"].split()[0]


def choose_plan(page, words):
    """The first plan that is called `words`, or else has them in it."""
    names = page.selectbox(key="plan").options
    called = [name for name in names if name.partition("  ")[2] == words]
    plan = next(iter(called or [name for name in names if words in name]))
    return page.selectbox(key="plan").set_value(plan).run()


def look_at(page, view):
    """Open one of the views of the plan that is chosen."""
    return page.pills(key="view").set_value(view).run()


def jobs_of_plan(page):
    """The job of each row under the plan in view, as often as there are copies of it."""
    rows = [name.partition(" x") for name in of_each_job(page)["job"]]
    return [name for name, _, copies in rows for _ in range(int(copies or 1))]


def ranking(page):
    return page.main.dataframe[-1].value


def ends(page):
    """What the simulation comes down to, by the names of its figures."""
    return dict(rows_with(page, "over time").itertuples(index=False))


def outdated(page):
    """Whether the answer that is shown is marked as one to what was asked before."""
    return any("this is the last one" in each.value for each in page.warning) and page.success


def of_each_job(page):
    """What becomes of each job of the plan in view."""
    return rows_with(page, "slower than alone")


def rows_with(page, head):
    """The table to read that has a column of that head."""
    return next(each.value for each in page.table if head in each.value)
