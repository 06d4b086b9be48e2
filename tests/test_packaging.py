"""The wheel, its requirements and their versions in constraints.txt, and the committed texts."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from importlib.metadata import PackageNotFoundError, distribution, files, requires, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from advisor.files.reading import cache_folder
from advisor.workload.store import read_profile
from tests.test_document_commands import FILES
from tests.waiting import PATIENCE_S

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def lines_of(command, *, folder=ROOT, **environment):
    done = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    lines_of([*build, "--wheel-dir", str(folder), str(ROOT)])
    (built,) = folder.glob("gpu_advisor-*.whl")
    return built


def test_the_wheel_carries_everything_that_advice_needs(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    data = [path for folder in ("profiles", "models") for path in (ROOT / folder).rglob("*.json*")]
    assert data
    assert wheel.stat().st_size < 5 * 2**20
    assert {f"advisor/_shipped/{path.relative_to(ROOT)}" for path in data} <= names
    shipped = {
        "advisor/_shipped/app.py",
        "advisor/_shipped/.streamlit/config.toml",
        "advisor/hardware/catalogue.json",
        "advisor/py.typed",
    }
    assert shipped <= names
    assert not [name for name in names if name.startswith("research") or name.endswith(".md")]


def link_core(folder):
    """Link what the core needs of this environment's packages, and nothing else, into `folder`."""
    names, left = set(), ["gpu-advisor"]
    while left:
        wanted = [Requirement(text) for text in requires(left.pop()) or ()]
        new = {
            each.name
            for each in wanted
            if each.marker is None or each.marker.evaluate({"extra": ""})
        } - names
        left += new
        names |= new
    for name in names:
        for top in {path.parts[0] for path in files(name) or ()} - {"..", "__pycache__"}:
            (folder / top).symlink_to(distribution(name).locate_file(top))


@pytest.fixture(scope="module")
def core(wheel, tmp_path_factory):
    """The folder of the commands of an environment with the wheel and what its core needs."""
    folder = tmp_path_factory.mktemp("core")
    venv.create(folder / "venv")
    (site,) = (folder / "venv/lib").glob("python*/site-packages")
    link_core(site)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "venv/bin/python")]
    lines_of([*pip, "install", "--quiet", "--no-index", str(wheel)])
    return folder / "venv/bin"


@pytest.fixture
def isolated(tmp_path):
    """The variables of a user without files of the advisor."""
    return {
        "HOME": str(tmp_path),
        "XDG_DATA_HOME": str(tmp_path / "data"),
        "PYTHONPATH": "",
        "XDG_CACHE_HOME": str(cache_folder("engine").parents[1]),  # compiling takes seconds
    }


def test_the_wheel_alone_ranks_as_the_checkout_does(core, isolated, tmp_path):
    question = ["recommend", "mlp-toy-bs128:2", "--gpu", "h200-141gb", "--json"]
    here = lines_of([sys.executable, "-m", "advisor", *question], **isolated)
    ranked = lines_of([str(core / "advisor"), *question], folder=tmp_path, **isolated)
    assert json.loads(ranked)["plans"]
    assert json.loads(ranked) == json.loads(here)


def test_the_installed_core_profiles_a_script_by_the_python_of_the_script(core, isolated, tmp_path):
    absent = subprocess.run(
        [core / "python", "-c", "import torch"], capture_output=True, check=False
    )
    assert b"No module named 'torch'" in absent.stderr
    (tmp_path / "train.py").write_text(FILES["train.py"])
    profile = [str(core / "advisor"), "profile", "--device", "cpu", "--out", "own"]
    lines_of([*profile, "--", sys.executable, "train.py"], folder=tmp_path, **isolated)
    assert read_profile(tmp_path / "own/train.json").provenance.torch == version("torch")


INSTALLS = re.findall(r"(?:uv tool|pipx|pip) install [^\s:]+", README)


def test_readme_installs_the_core_into_an_environment_of_its_own():
    assert INSTALLS == ["uv tool install .", "pipx install .", "pip install ."]


@pytest.mark.exhaustive
@pytest.mark.parametrize("line", INSTALLS)
def test_a_line_of_readme_installs_advisor_from_the_registry_without_torch(line, tmp_path):
    if shutil.which(line.split()[0]) is None:
        pytest.skip(f"{line.split()[0]} is not installed here")
    project, bin_folder = tmp_path / "project", tmp_path / "venv/bin"
    hidden = shutil.ignore_patterns(".git", ".venv", "shared", "__pycache__", ".*_cache")
    shutil.copytree(ROOT, project, ignore=hidden)
    venv.create(tmp_path / "venv", with_pip=True)
    places = {
        "UV_TOOL_DIR": "uv",
        "UV_TOOL_BIN_DIR": "venv/bin",
        "PIPX_HOME": "pipx",
        "PIPX_BIN_DIR": "venv/bin",
    }
    variables = {name: str(tmp_path / place) for name, place in places.items()}
    variables["PATH"] = f"{bin_folder}:{os.environ['PATH']}"
    lines_of(shlex.split(line), folder=project, **variables)
    assert "h200-141gb" in lines_of([str(bin_folder / "advisor"), "gpus"], folder=tmp_path)
    assert list(tmp_path.rglob("site-packages/numba"))
    assert not list(tmp_path.rglob("site-packages/torch"))


def test_continuous_integration_runs_the_readmes_test_command_and_nothing_else():
    lines = (ROOT / ".ci/run").read_text().splitlines()
    assert lines[0] == "#!/usr/bin/env bash"
    assert lines[1:] == ["set -euo pipefail", 'cd "$(dirname "$0")/.."', "make check"]
    assert re.search(r"^ {4}make check ", README, re.MULTILINE)
    assert os.access(ROOT / ".ci/run", os.X_OK)


def test_changelog_and_citation_name_the_version():
    from advisor import __version__

    assert re.search(rf"^## {re.escape(__version__)}\b", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_no_committed_text_names_a_machine_path_or_a_registry():
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode != 0:
        pytest.skip("not a git checkout: there is no list of committed files")
    # A bar in each stands for nothing, so that this file does not match itself.
    patterns = (
        "/wo|rk/",
        "/ro|ot/",
        "/opt/wh|eels",
        "pyp|i[.]org",
        "python|hosted",
        "down|load[.]pytorch",
        "file:/|//",
        "[.]lib|rary/",
    )
    forbidden = re.compile("|".join(each.replace("|", "") for each in patterns))
    matches = [
        f"{name}:{number}: {line.strip()[:80]}"
        for name in listed.stdout.split("\0")
        if name and (ROOT / name).is_file()
        for number, line in enumerate(
            (ROOT / name).read_text(errors="replace").splitlines(), start=1
        )
        if forbidden.search(line)
    ]
    assert matches == []


LINES = (ROOT / "constraints.txt").read_text().splitlines()
PINS = {
    canonicalize_name(name): version
    for name, _, version in (line.partition("==") for line in LINES if line[:1] not in ("", "#"))
}
# A CUDA build of torch chooses the versions of these.
OF_CUDA = re.compile(r"triton|cuda-.*|nvidia-(?!ml-py).*")


def requirements():
    """Return every requirement of the project."""
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = pyproject["project"]
    extras = project["optional-dependencies"].values()
    lists = [project["dependencies"], pyproject["build-system"]["requires"], *extras]
    every = [Requirement(text) for texts in lists for text in texts]
    return [each for each in every if each.name != project["name"]]  # extras made of extras


@pytest.mark.parametrize("requirement", requirements(), ids=str)
def test_every_requirement_is_pinned_above_its_lower_bound(requirement):
    assert requirement.specifier.contains(PINS[canonicalize_name(requirement.name)])


def test_what_requirements_bring_with_them_is_pinned_too():
    names, left = set(), requirements()
    while left:
        requirement = left.pop()
        key = (canonicalize_name(requirement.name), *sorted(requirement.extras))
        if key in names:
            continue
        names.add(key)
        try:
            brought = [Requirement(text) for text in requires(requirement.name) or ()]
        except PackageNotFoundError:
            continue
        extras = requirement.extras or {""}
        left += [
            other
            for other in brought
            if other.marker is None or any(other.marker.evaluate({"extra": x}) for x in extras)
        ]
    unpinned = {name for name, *_ in names} - PINS.keys()
    assert {name for name in unpinned if not OF_CUDA.fullmatch(name)} == set()
