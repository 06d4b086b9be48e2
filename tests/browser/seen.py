"""What somebody does on the page in a browser, and what stands on the screen then."""

_PATIENCE_MS = 120_000  # the first answer of a fresh checkout compiles
_AT_REST = """() => {
    const app = document.querySelector('[data-testid=stApp]');
    return app.dataset.testScriptState === 'notRunning'
        && !document.querySelector('[data-testid=stSkeleton], [data-stale=true]');
}"""
_ROW_PX = 35


def stands(page):
    """Wait until an answer is there and all is drawn."""
    page.get_by_test_id("stAlert").first.wait_for(timeout=_PATIENCE_MS)
    page.wait_for_function(_AT_REST, timeout=_PATIENCE_MS)


def answer(page):
    """The large line."""
    return page.get_by_test_id("stMain").locator("h3").first.inner_text()


def chosen(page):
    """The plan in view."""
    return page.get_by_role("combobox", name="Plan", exact=True).input_value()


def errors(page):
    """What is wrong, as the page says it at a field."""
    return page.get_by_test_id("stAlertContentError").all_inner_texts()


def jobs(page):
    """The names in the table of jobs."""
    cells = _jobs(page).locator("[id^=glide-cell-1-]")
    cells.first.wait_for(state="attached")
    return [name for name in cells.all_text_contents() if name]


def becomes(what, page, act):
    """What `what` shows of `page` once it is another than before `act`."""
    before = what(page)
    act()
    for _ in range(300):
        stands(page)
        if (now := what(page)) != before:
            return now
        page.wait_for_timeout(50)
    raise AssertionError(f"it shows {before!r} as before")


def type_in(page, row, column, text):
    """Type `text` into a cell of the table of jobs, counted from 0; errors as of `fill_cell`."""
    fill_cell(page, row, column, text)
    page.keyboard.press("Enter")


def fill_cell(page, row, column, text):
    """Type `text` into a cell as `type_in` does, all but the last Enter.

    Raises:
        AssertionError: It takes no words, however often they are typed.
    """
    field = page.locator("#portal input")
    for _ in range(10):  # a table that is being drawn again forgets what was clicked
        if not _select_cell(page, row, column):
            continue
        page.keyboard.press("Enter")
        page.wait_for_timeout(100)
        if not field.count():
            continue
        page.keyboard.type(text)
        page.wait_for_timeout(100)
        if field.count() == 1 and field.input_value() == text:
            return
        page.keyboard.press("Escape")
    raise AssertionError(f"{text!r} cannot be typed")


def _select_cell(page, row, column):
    """Whether that cell is selected, once a click and the arrows were answered as people wait."""
    _jobs(page).click(position={"x": 60, "y": _ROW_PX * (row + 1.5)})
    for at in range(column + 1):
        if at:
            page.keyboard.press("ArrowRight")
        for _ in range(40):  # a key before it goes to the cell of before
            if _jobs(page).locator(f"#glide-cell-{at + 1}-{row}[aria-selected=true]").count():
                break
            page.wait_for_timeout(25)
        else:
            return False
    return True


def hand_in(page, *files):
    """Files from the disk, or ``(name, content)``."""
    given = [
        {"name": file[0], "mimeType": "application/octet-stream", "buffer": file[1]}
        if isinstance(file, tuple) else file
        for file in files
    ]  # fmt: skip
    page.locator("input[type=file]").first.set_input_files(given)


def table(page, head):
    """The table with a column of that head."""
    return page.locator(f"//*[@data-testid='stDataFrame'][.//th[text()='{head}']]").first


def _jobs(page):
    return table(page, "copies")


def view(page, name):
    """Open that view of the plan."""
    page.get_by_test_id("stButtonGroup").get_by_text(name, exact=True).click()
    stands(page)
