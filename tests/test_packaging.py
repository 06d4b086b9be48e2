import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

from tests.waiting import PATIENCE_S

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def lines_of(command, *, folder=ROOT, **environment):
    done = subprocess.run(
        command, cwd=folder, env=os.environ | environment, capture_output=True, text=True,
        timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    lines_of([*build, "--wheel-dir", str(folder), str(ROOT)])
    (built,) = folder.glob("advisor-*.whl")
    return built


def test_the_wheel_carries_everything_that_advice_needs(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    data = [path for folder in ("profiles", "models") for path in (ROOT / folder).rglob("*.json*")]
    assert data
    assert wheel.stat().st_size < 5 * 2**20
    assert {f"advisor/_shipped/{path.relative_to(ROOT)}" for path in data} <= names
    assert {"advisor/_shipped/app.py", "advisor/hardware/catalogue.json"} <= names
    assert not [name for name in names if name.startswith("research") or name.endswith(".md")]


def test_the_wheel_alone_ranks_as_the_checkout_does(wheel, tmp_path):
    (home := tmp_path / "empty").mkdir()
    venv.create(tmp_path / "venv")
    # The environment's libraries, but not what their own .pth files add: not this checkout.
    (site,) = (tmp_path / "venv/lib").glob("python*/site-packages")
    (site / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    zipfile.ZipFile(wheel).extractall(site)
    command = "from advisor.cli import main; main()"
    isolated = {"HOME": str(home), "XDG_DATA_HOME": str(home / "data"), "PYTHONPATH": ""}
    here = lines_of([sys.executable, "-c", command, "recommend", "--json"], **isolated)
    # Its loops would be compiled for the same processor again, for as long as all the rest takes.
    for compiled in (ROOT / "advisor/prediction/__pycache__").glob("engine-*.o"):
        (site / "advisor/prediction/__pycache__").mkdir(exist_ok=True)
        shutil.copy2(compiled, site / "advisor/prediction/__pycache__")
    python = str(tmp_path / "venv/bin/python")
    ranked = lines_of([python, "-c", command, "recommend", "--json"], folder=home, **isolated)
    assert json.loads(ranked)["plans"]
    assert json.loads(ranked) == json.loads(here)


def test_continuous_integration_runs_the_readmes_test_command_and_nothing_else():
    lines = (ROOT / ".ci/run").read_text().splitlines()
    assert lines[0] == "#!/usr/bin/env bash"
    assert lines[1:] == ["set -euo pipefail", 'cd "$(dirname "$0")/.."', "make check"]
    assert re.search(r"^ {4}make check ", README, re.MULTILINE)
    assert os.access(ROOT / ".ci/run", os.X_OK)


def test_the_readmes_library_example_runs(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    (example,) = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    exec(compile(example, "README.md", "exec"), {})
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("1 ")
    assert said[-1].startswith("resnet50-imagenet64-bs128 ")


def test_the_version_has_a_section_in_the_changelog():
    from advisor import __version__

    assert re.search(rf"^## {re.escape(__version__)}\b", (ROOT / "CHANGELOG.md").read_text(), re.M)


def test_nothing_that_advice_needs_brings_torch():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    base = {re.split(r"[<>=~ ]", each)[0] for each in project["dependencies"]}
    assert not base & {"torch", "torchvision", "timm"}


def test_no_committed_text_names_a_machine_path_or_a_registry():
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode != 0:
        pytest.skip("not a git checkout: there is no list of committed files")
    # A bar in each stands for nothing, so that this file does not match itself.
    spelt = (
        "/wo|rk/", "/ro|ot/", "/opt/wh|eels", "pyp|i[.]org", "python|hosted",
        "down|load[.]pytorch", "file:/|//", "[.]lib|rary/",
    )  # fmt: skip
    forbidden = re.compile("|".join(each.replace("|", "") for each in spelt))
    found = [
        f"{name}:{number}: {line.strip()[:80]}"
        for name in listed.stdout.split("\0")
        if name and (ROOT / name).is_file()
        for number, line in enumerate(
            (ROOT / name).read_text(errors="replace").splitlines(), start=1
        )
        if forbidden.search(line)
    ]
    assert found == []
