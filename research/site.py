"""Builds the site of docs/ and of the files that its pages link to.

    python -m research.site

docs/ also reads as plain Markdown on a code host, so its links lead to files outside of it. This
program copies docs/ and each linked file into `build/docs`. Markdown files and notebooks become
pages there, and links lead from page to page. Then the builder writes the site into `build/site`.
It refuses a link to a page or a heading that does not exist.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from advisor.files.writing import write_whole
from research.files import ROOT

DOCS, BUILD, SETTINGS = ROOT / "docs", ROOT / "build", ROOT / "zensical.toml"
_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)")
_NAMED_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)#\s]+)\)")
_CODE = re.compile(r"`[^`\n]+`")
_PICTURE = re.compile(
    r'<picture>\s*<source [^>]*srcset="([^"]+)">\s*<img src="([^"]+)" alt="([^"]+)">\s*</picture>'
)
# Files whose place on the site is not their own.
_PLACES = {ROOT / "README.md": "readme.md", ROOT / "LICENSE": "LICENSE.md"}


class BrokenSite(Exception):
    """A link or the navigation names a missing file, or a page is not in the navigation."""


def copy_pages(folder: Path) -> None:
    """Write all files of the site and the builder's settings into `folder`, which is emptied.

    Raises:
        BrokenSite: A page links to a missing file, or it is not in the navigation.
    """
    shutil.rmtree(folder, ignore_errors=True)
    for uri, source in site_files(SETTINGS.read_text()).items():
        place = folder / "docs" / uri
        place.parent.mkdir(parents=True, exist_ok=True)
        if is_page(source):
            write_whole(place, page_markdown(source))
        else:
            shutil.copyfile(source, place)
    shutil.copy(SETTINGS, folder)


def build(folder: Path) -> int:
    """Build the site of a folder; return the exit code, 1 for a link to no page or no heading."""
    words = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
    return subprocess.run(words, cwd=folder, check=False).returncode


def site_files(settings: str) -> dict[str, Path]:
    """Return the files of the site by their place: docs/, the navigation, and what pages link to.

    Raises:
        BrokenSite: As for `copy_pages`.
    """
    listed = [*_pages(tomllib.loads(settings)["project"]["nav"])]
    sources = [path for path in sorted(DOCS.rglob("*")) if path.is_file()]
    unlisted = [uri for uri in map(site_uri, filter(is_page, sources)) if uri not in listed]
    if unlisted:
        raise BrokenSite(f"not in the navigation: {', '.join(unlisted)}")
    sources += map(_source, listed)
    files = {}
    for source in sources:  # which grows
        files[site_uri(source)] = source
        if is_page(source):
            sources += (each for each in targets(source) if site_uri(each) not in files)
    return files


def is_page(path: Path) -> bool:
    """Return whether a file of the project becomes a page of the site."""
    return path.suffix in (".md", ".ipynb") or path in _PLACES


def site_uri(path: Path) -> str:
    """Return the place on the site of a file of the project."""
    if path in _PLACES:
        return _PLACES[path]
    below = path.relative_to(DOCS if path.is_relative_to(DOCS) else ROOT)
    return str(below.with_suffix(".md") if below.suffix == ".ipynb" else below)


def page_markdown(source: Path) -> str:
    """Return the page of a file of the project, with links between pages of the site."""
    place = Path(site_uri(source)).parent

    def named(match: re.Match[str]) -> str:  # the site has no page for a folder
        return match[1] if _target(source, match[2]).is_dir() else match[0]

    def linked(match: re.Match[str]) -> str:
        return os.path.relpath(site_uri(_target(source, match[1])), place)

    markdown = _LINK.sub(linked, _NAMED_LINK.sub(named, _markdown(source)))
    # A code host needs each bar in a table escaped; Markdown for Python shows that escape in code.
    return _CODE.sub(lambda code: code[0].replace(r"\|", "|"), markdown)


def targets(source: Path) -> Iterator[Path]:
    """Yield the files that a page links to.

    Raises:
        BrokenSite: One of them does not exist.
    """
    for match in _LINK.finditer(_markdown(source)):
        target = _target(source, match[1])
        if target.is_file():
            yield target
        elif not target.is_dir():
            raise BrokenSite(f"{source.relative_to(ROOT)} links to {match[1]}, which is missing")


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


def _markdown(source: Path) -> str:
    """The Markdown of a page before its links lead to pages."""
    if source.suffix == ".ipynb":
        return notebook_markdown(source)
    text = source.read_text()
    if source.suffix != ".md":
        return f"# {source.name}\n\n```text\n{text}```\n"
    # A code host shows the picture of the system's theme; the site, that of its own theme.
    return _PICTURE.sub(r"![\3](\1#only-dark)\n![\3](\2#only-light)", text)


def _pages(navigation: list[Any]) -> Iterator[str]:
    for entry in navigation:
        if isinstance(entry, str):
            yield entry
        else:
            for page in entry.values():
                yield from _pages(page if isinstance(page, list) else [page])


def _source(uri: str) -> Path:
    """The file of the project at a place on the site."""
    renamed = [source for source, place in _PLACES.items() if place == uri]
    possible = [*renamed, DOCS / uri, ROOT / uri, (ROOT / uri).with_suffix(".ipynb")]
    for source in possible:
        if source.is_file():
            return source
    raise BrokenSite(f"the navigation names {uri}, which is missing")


def _target(source: Path, link: str) -> Path:
    return Path(os.path.normpath(source.parent / link))


if __name__ == "__main__":
    try:
        copy_pages(BUILD)
    except BrokenSite as error:
        sys.exit(str(error))
    sys.exit(build(BUILD))
