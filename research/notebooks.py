"""The notebooks as readers find them: run from the first cell to the last, with what that shows.

    python -m research.notebooks

runs each on the shipped data alone, in a folder of its own for what a user would have measured.
"""

from base64 import b64decode, b64encode
from io import BytesIO
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
from nbclient import NotebookClient
from PIL import Image

from research.files import ROOT
from research.terminal_output import newcomers_environment

FOLDER = ROOT / "notebooks"
LONGEST_CELL_S = 300


def run_whole(path: Path) -> None:
    """Run the notebook and write its outputs into it.

    Raises:
        CellExecutionError: A cell fails; nothing is written.
    """
    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    with TemporaryDirectory() as nobody:
        # The times of cells, recorded, would change in each whenever anybody runs this.
        NotebookClient(
            notebook,
            timeout=LONGEST_CELL_S,
            record_timing=False,
            coalesce_streams=True,
            resources={"metadata": {"path": str(FOLDER)}},
        ).execute(env=newcomers_environment(nobody))
    for output in chain.from_iterable(cell.get("outputs", ()) for cell in notebook.cells):
        if chart := output.get("data", {}).get("image/png"):
            output["data"]["image/png"] = _smaller(chart)
    nbformat.write(notebook, path)  # type: ignore[no-untyped-call]


def _smaller(chart: str) -> str:
    """Return the same picture, which altair compresses little, in a fifth of its bytes."""
    with Image.open(BytesIO(b64decode(chart))) as picture:
        picture.save(packed := BytesIO(), "PNG", optimize=True)
    return b64encode(packed.getvalue()).decode()


if __name__ == "__main__":
    for each in sorted(FOLDER.glob("*.ipynb")):
        run_whole(each)
