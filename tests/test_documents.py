"""Documents: links resolve, files exist, programs run, words are plain; notebooks."""

import json
import re
from dataclasses import fields
from importlib import import_module
from pathlib import Path

import pytest

import advisor
from advisor.cli import COMMANDS, main
from advisor.documents import SCHEMA
from advisor.prediction.model import Model
from advisor.workload.profile import Profile
from research.terminal_output import terminal_output

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "docs" / "reference"
FOLDERS = (
    ROOT,
    REFERENCE,
    *(ROOT / name for name in ("docs", "research", "benchmarks", "profiles")),
)
DOCUMENTS = sorted(path for folder in FOLDERS for path in folder.glob("*.md"))
README = ROOT / "README.md"
USER_DOCUMENTS = [README, *sorted((ROOT / "docs").glob("*.md"))]
LINK = re.compile(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)")
ANCHOR = re.compile(r"\]\((?!https?:)([^)#]*)#([\w-]+)\)")  # mkdocstrings makes those with dots
FILE = re.compile(r"`((?:advisor|research|tests|benchmarks|profiles|models|docs)/[\w./-]+)`")
PLAIN_DOCUMENTS = [*USER_DOCUMENTS, ROOT / "CONTRIBUTING.md", *sorted(REFERENCE.glob("*.md"))]
# Words that are not plain English, or not the field's.
BANNED = re.compile(
    r"(?<![-\w])(foretold|told|mates?|beside|besides|anew|mend|meanwhile|alike|tells of|says of|"
    r"at hand|the way of|to come|nobody|whoever|somebody|whether what|err|hurts?|pays?|treats?)\b",
    re.IGNORECASE,
)
HELPED = [
    [],
    *([name] for name in COMMANDS),
    ["profile", "--from-numbers"],
    ["profile", "--from-history"],
]
# Options whose value is a folder or a file, one or several GPUs, or a number of watts or `auto`.
SEVERAL_KINDS = {"--out", "--device", "--power-cap"}
LONGEST = 30  # words of a sentence; most have at most 25
INVERTED = re.compile(r"\W*(?:What|Where|Of|Whether|Scored|Had) ")
PYTHON_TYPE = re.compile(r"<(?:str|int|float|path|list\[.*?\]|\w+ range)>|\bTEXT\b|\bINTEGER\b")


def of(path):
    return str(path.relative_to(ROOT))


def headings(path):
    """The anchors of a document's headings."""
    lines = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", line).lower().replace(" ", "-") for line in lines}


@pytest.mark.parametrize("path", DOCUMENTS, ids=of)
def test_links_and_files_of_a_document_exist(path):
    text = path.read_text()
    links = [link for link in LINK.findall(text) if not (path.parent / link).exists()]
    assert not links
    anchors = [(path.parent / file if file else path, name) for file, name in ANCHOR.findall(text)]
    assert [name for file, name in anchors if name not in headings(file)] == []
    if path.name != "CHANGELOG.md":
        named = FILE.findall(text)
        assert [name for name in named if not any(ROOT.glob(name.rstrip("/")))] == []


def test_the_start_page_links_to_every_page():
    text = (ROOT / "docs" / "index.md").read_text()
    pages = [path.name for path in (ROOT / "docs").glob("*.md") if path.stem != "index"]
    assert [page for page in pages if f"]({page})" not in text] == []


STABLE = ROOT / "docs" / "stability.md"
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def imports_in(path):
    """The names that the programs of a document import from the advisor, with their modules."""
    text = path.read_text()
    if path.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        text = "\n".join("".join(each["source"]) for each in cells if each["cell_type"] == "code")
    for module, names in re.findall(r"^\s*from (advisor[.\w]*) import ([\w, ]+)$", text, re.M):
        for name in names.split(","):
            yield module, name.strip()


@pytest.mark.parametrize("path", [*USER_DOCUMENTS, *NOTEBOOKS], ids=of)
def test_programs_import_only_names_that_are_stable(path):
    stable = STABLE.read_text()
    for module, name in imports_in(path):
        assert name in advisor.__all__ if module == "advisor" else f"`{module}.{name}`" in stable
        assert hasattr(import_module(module), name)


def test_the_page_on_what_is_stable_has_the_schema_numbers_that_are_written():
    of_files = [
        next(each.default for each in fields(record) if each.name == "schema")
        for record in (Profile, Model)
    ]
    numbers = re.findall(r"^\| .* \| (\d+) \|$", STABLE.read_text(), re.MULTILINE)
    assert [*map(int, numbers)] == [SCHEMA, *of_files]


def sentences(path):
    """The sentences of a document, without code, tables, headings and generated blocks."""
    text = re.sub(
        r"<!-- begin: .*?<!-- end: .*?-->|^```.*?^```|<picture>.*?</picture>",
        "",
        path.read_text(),
        flags=re.DOTALL | re.MULTILINE,
    )
    text = re.sub(r"^(?: {4,}(?![-*]).*|\|.*|#.*)$", "", text, flags=re.MULTILINE)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", re.sub(r"`[^`]*`", "X", text))
    for part in re.split(r"\n\s*\n|^\s*(?:[-*]|\d+\.) ", text, flags=re.MULTILINE):
        yield from re.split(r"(?<=[.?!])[*)]*\s+", " ".join(part.split()))


@pytest.mark.parametrize("path", PLAIN_DOCUMENTS, ids=of)
def test_a_document_has_no_banned_word_and_no_long_or_inverted_sentence(path):
    every = [*sentences(path)]
    assert [each for each in every if BANNED.search(each)] == []
    assert [each for each in every if len(each.split()) > LONGEST] == []
    assert [each for each in every if INVERTED.match(each) and not each.endswith("?")] == []


def test_the_prose_of_the_readme_is_read_aloud_in_three_minutes():
    text = re.sub(
        r"^```.*?^```|<picture>.*?</picture>|<!--.*?-->", "", README.read_text(), flags=re.M | re.S
    )
    text = re.sub(r"^(?: {4}\S.*|\|.*|#.*)$", "", text, flags=re.MULTILINE)
    words = re.sub(r"\]\([^)]*\)", "]", text).split()
    assert 100 < len(words) <= 450


HELPS = {}


def help_of(words, capfd):
    """What the help of a command prints, on lines of any length; each is printed once."""
    if (key := tuple(words)) not in HELPS:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("COLUMNS", "1000")
            code, HELPS[key] = run([*words, "--help"], capfd)
        assert code == 0
    return HELPS[key]


@pytest.mark.parametrize("words", HELPED)
def test_help_has_no_banned_word_no_python_type_and_options_in_lower_case(words, capfd):
    text = help_of(words, capfd)
    assert BANNED.findall(text) == []
    assert PYTHON_TYPE.findall(text) == []
    options = re.findall(r"(?<![\w-])--?[A-Za-z][\w-]*", text)
    assert "--help" in options
    assert [option for option in options if option != option.lower()] == []


def test_an_option_has_one_kind_of_value_in_all_commands(capfd):
    kinds: dict[str, set[str]] = {}
    for words in HELPED:
        for option, kind in re.findall(r"^ +(--[a-z-]+)(?: +(\S+))?", help_of(words, capfd), re.M):
            value = kind.removeprefix("[JOB=]")
            kinds.setdefault(option, set()).add(value if value.isupper() else "")
    assert {"--slices", "--timeline", "--max-slowdown"} <= kinds.keys()
    assert {option for option, values in kinds.items() if len(values) > 1} <= SEVERAL_KINDS


def run(words, capfd):
    """Run a command in this process; return its exit code and its output."""
    try:
        main(words)
    except SystemExit as ended:
        return ended.code or 0, capfd.readouterr().out
    return 0, capfd.readouterr().out


def test_the_output_in_the_readme_is_what_the_command_prints_now():
    (shown,) = re.findall(r"begin: recommend -->\n```\n(.*?)```", README.read_text(), re.DOTALL)
    printed = "\n".join(terminal_output(["recommend"], 100))
    plain = [re.sub(r"[\d.]+", "0", " ".join(text.split())) for text in (shown, printed)]
    assert plain[0] == plain[1], "run `python -m research.report --render`"


# `test_search_page` runs the programs of the page on searches as processes.
PROGRAMS = {
    path: programs
    for path in USER_DOCUMENTS
    if path.name != "hyperparameter-search.md"
    and (programs := re.findall(r"^```python\n(.*?)^```", path.read_text(), re.M | re.S))
}


@pytest.mark.parametrize("path", PROGRAMS, ids=of)
def test_the_programs_on_a_page_run_one_after_another(path, capfd, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    text = "\n".join(PROGRAMS[path])
    exec(compile(text, path.name, "exec"), {})
    assert bool(capfd.readouterr().out) == ("print(" in text)


# ``pytest --nbmake notebooks`` runs them; they are committed with their outputs.
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_committed_as_a_whole_run_leaves_it(path):
    cells = json.loads(path.read_text())["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    counts = [cell["execution_count"] for cell in code]
    assert counts == [*range(1, len(code) + 1)], "run `make notebooks`"
    outputs = [output for cell in code for output in cell["outputs"]]
    assert outputs
    assert not [output for output in outputs if output["output_type"] == "error"]
    shown = json.dumps(
        [{**output, "data": {**output.get("data", {}), "image/png": ""}} for output in outputs]
    )
    assert not re.search(r"Warning|/home/|/site-packages/", shown)
    texts = "".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", texts)
    assert not [link for link in links if not (path.parent / link).exists()]


def test_there_are_few_notebooks_and_they_are_small():
    assert len(NOTEBOOKS) <= 7
    assert sum(path.stat().st_size for path in NOTEBOOKS) < 600_000
    for path in NOTEBOOKS:
        cells = json.loads(path.read_text())["cells"]
        assert len(cells) < 10
        assert max(len(cell["source"]) for cell in cells) <= 20
