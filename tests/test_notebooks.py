"""``pytest --nbmake notebooks`` runs the notebooks; they are committed with their outputs."""

import json
import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_committed_as_a_whole_run_leaves_it(path):
    cells = json.loads(path.read_text())["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    counts = [cell["execution_count"] for cell in code]
    assert counts == [*range(1, len(code) + 1)], "run `make notebooks`"
    outputs = [output for cell in code for output in cell["outputs"]]
    assert outputs
    assert not [output for output in outputs if output["output_type"] == "error"]
    shown = json.dumps([{**output, "data": {**output.get("data", {}), "image/png": ""}}
                        for output in outputs])  # fmt: skip
    assert not re.search(r"Warning|/home/|/site-packages/", shown)
    texts = "".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", texts)
    assert not [link for link in links if not (FOLDER / link).exists()]


def test_there_are_few_notebooks_and_they_are_small():
    assert len(NOTEBOOKS) <= 4
    assert sum(path.stat().st_size for path in NOTEBOOKS) < 600_000
