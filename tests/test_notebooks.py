"""Notebooks are run by ``pytest --nbmake notebooks``, and are committed with what they show."""

import json
import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
REMEDY = "run `make notebooks`"


def cells_of(notebook, kind):
    return [c for c in json.loads(notebook.read_text())["cells"] if c["cell_type"] == kind]


def shown_by(notebook):
    """What each code cell shows: the text of its outputs, pictures by the names of their forms."""
    for cell in cells_of(notebook, "code"):
        for output in cell["outputs"]:
            data = output.get("data", {})
            text = [*output.get("text", []), *data.get("text/plain", [])]
            yield "".join(["".join(text), *data])


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_committed_as_a_run_from_its_first_cell_to_its_last_leaves_it(notebook):
    cells = cells_of(notebook, "code")
    assert [cell["execution_count"] for cell in cells] == [*range(1, len(cells) + 1)], REMEDY
    kinds = {output["output_type"] for cell in cells for output in cell["outputs"]}
    assert "error" not in kinds
    assert kinds & {"stream", "execute_result", "display_data"}, REMEDY


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_shows_no_warning_and_no_place_on_the_machine_where_it_ran(notebook):
    unwanted = re.compile(r"Warning|/home/|/site-packages/")
    assert not [text for text in shown_by(notebook) if unwanted.search(text)]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_draws_its_charts_as_pictures_which_need_no_browser(notebook):
    drawn = [text for text in shown_by(notebook) if "alt." in text]
    assert drawn or "alt." not in notebook.read_text()
    assert all("image/png" in text for text in drawn), REMEDY


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_a_notebook_links_to_is_there(notebook):
    texts = "".join("".join(cell["source"]) for cell in cells_of(notebook, "markdown"))
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", texts)
    assert not [link for link in links if not (FOLDER / link).exists()]


def test_the_scoreboard_that_a_notebook_draws_is_the_committed_one():
    file = FOLDER.parent / "profiles" / "h200-141gb" / "evaluation.json"
    scores = json.loads(file.read_text())["scores"]
    (pooled, *_) = (row for row in scores["rows"] if row["mode"] == "naive")
    shown = "".join(shown_by(FOLDER / "how_good_are_the_predictions.ipynb"))
    assert f"{scores['runs']} runs are scored" in shown, REMEDY
    assert re.search(rf"time-sliced +{100 * pooled['mape']:.1f}%", shown), REMEDY
