"""README, ARCHITECTURE and CONTRIBUTING name what is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "research").glob("*.md")])
LINK = re.compile(r"\]\((?!https?:)([^)#]+)\)")
# Of this tree; what a user's machine or a placeholder holds is none of it.
NAMED = re.compile(
    r"`((?:advisor|research|tests|benchmarks|profiles|models|[a-z]+)/[\w./-]*|\w+\.py)`"
)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_of_a_document_leads_somewhere(path):
    missing = [link for link in LINK.findall(path.read_text()) if not (path.parent / link).exists()]
    assert not missing


@pytest.mark.parametrize("name", ["ARCHITECTURE.md", "CONTRIBUTING.md", "research/README.md"])
def test_every_file_that_a_guide_names_is_there(name):
    path = ROOT / name
    named = NAMED.findall(path.read_text())
    places = (ROOT, ROOT / "advisor", ROOT / "advisor" / "measure", path.parent)
    assert len(named) > 5
    assert not [
        each for each in named
        if not any((place / f"{each}{end}").exists() for place in places for end in ("", ".py"))
    ]  # fmt: skip
