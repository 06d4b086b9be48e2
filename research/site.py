"""Hooks of mkdocs: links from docs/ to other files of the project work on the site too.

docs/ also reads as plain Markdown on a code host, so its links lead to files outside of it. The
site gets a page of each such Markdown file and notebook, and a copy of each other file.
"""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from research.files import ROOT

DOCS = ROOT / "docs"
_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)")
_CODE = re.compile(r"`[^`\n]+`")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files outside of docs/ that pages link to."""
    sources = [DOCS / file.src_uri for file in files.documentation_pages()]
    for source in sources:
        for target in _targets(source):
            uri = site_uri(target)
            if not target.is_relative_to(DOCS) and files.get_file_from_path(uri) is None:
                files.append(_file(target, uri, config))
                sources.append(target)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links between files of the project into links between pages of the site."""
    del config, files
    uri = page.file.src_uri
    source = next(path for path in _sources(uri) if path.is_file())

    def linked(match: re.Match[str]) -> str:
        target = _target(source, match[1])
        return os.path.relpath(site_uri(target), Path(uri).parent) if target.is_file() else match[0]

    # A code host needs each bar in a table escaped; Markdown for Python shows that escape in code.
    return _CODE.sub(lambda code: code[0].replace(r"\|", "|"), _LINK.sub(linked, markdown))


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Name the search for screen readers, which the theme leaves out."""
    del page, config
    search = 'data-md-component="search" role="dialog"'
    return output.replace(search, f'{search} aria-label="Search"')


def site_uri(path: Path) -> str:
    """Return the place on the site of a file of the project; the start page is that of README."""
    if path == ROOT / "README.md":
        return "index.md"
    below = path.relative_to(DOCS if path.is_relative_to(DOCS) else ROOT)
    return str(below.with_suffix(".md") if below.suffix == ".ipynb" else below)


def notebook_markdown(path: Path) -> str:
    """Return a notebook as Markdown, with its outputs."""
    parts = []
    for cell in json.loads(path.read_text())["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
        else:
            parts += [f"```python\n{source}\n```", *map(_output_markdown, cell["outputs"])]
    return "\n\n".join(parts) + "\n"


def _output_markdown(output: dict[str, Any]) -> str:
    data = output.get("data", {})
    if "text/markdown" in data:
        return "".join(data["text/markdown"])
    if "image/png" in data:
        return f"![The chart of this cell](data:image/png;base64,{data['image/png'].strip()})"
    if "text/html" in data:
        return re.sub(r"<style.*?</style>|\n", "", "".join(data["text/html"]), flags=re.DOTALL)
    text = "".join(output.get("text") or data["text/plain"])
    return f"```text\n{text.rstrip()}\n```"


def _sources(uri: str) -> Iterator[Path]:
    yield DOCS / uri
    yield ROOT / uri
    yield (ROOT / uri).with_suffix(".ipynb")


def _targets(source: Path) -> Iterator[Path]:
    if source.suffix in (".md", ".ipynb"):
        text = notebook_markdown(source) if source.suffix == ".ipynb" else source.read_text()
        for match in _LINK.finditer(text):
            if (target := _target(source, match[1])).is_file():
                yield target


def _target(source: Path, link: str) -> Path:
    return Path(os.path.normpath(source.parent / link))


def _file(path: Path, uri: str, config: MkDocsConfig) -> File:
    if path.suffix == ".ipynb":
        return File.generated(config, uri, content=notebook_markdown(path))
    return File.generated(config, uri, abs_src_path=str(path))
