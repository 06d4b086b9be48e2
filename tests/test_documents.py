"""README, ARCHITECTURE, CONTRIBUTING and docs/ name what is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted(
    path for folder in (ROOT, ROOT / "research", ROOT / "docs") for path in folder.glob("*.md")
)
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


def test_readme_leads_to_every_page():
    text = (ROOT / "README.md").read_text()
    pages = sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))
    assert [page for page in pages if f"]({page})" not in text] == []


def test_readme_can_be_read_in_five_minutes():
    """At 250 words a minute; code and tables, which are looked up, are not counted."""
    text = re.sub(r"^```.*?^```$", "", (ROOT / "README.md").read_text(), flags=re.M | re.S)
    read = [line for line in text.splitlines() if not line.startswith(("    ", "|"))]
    assert len(" ".join(read).split()) < 5 * 250


def test_the_programs_on_the_page_of_the_library_run(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    page = (ROOT / "docs" / "python.md").read_text()
    programs = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    exec(compile("\n".join(programs), "python.md", "exec"), {})
    said = capsys.readouterr().out.splitlines()
    assert said[0].endswith(" min")
    assert "mps=50,50" in said[-1]
