"""constraints.txt: one version of everything that `make` and `make check` install."""

import re
import tomllib
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import pytest
from hatchling.build import get_requires_for_build_editable
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LINES = (ROOT / "constraints.txt").read_text().splitlines()
PINNED = [line for line in LINES if line and not line.startswith("#")]
PINS = {
    canonicalize_name(name): version for name, _, version in (x.partition("==") for x in PINNED)
}

# A CUDA build of torch says itself which versions of these it needs.
_OF_CUDA = re.compile(r"triton|cuda-.*|nvidia-(?!ml-py).*")


def asked_for():
    """Every requirement of the project, whoever needs it."""
    project = PROJECT["project"]
    extras = project["optional-dependencies"].values()
    every = [project["dependencies"], PROJECT["build-system"]["requires"], *extras]
    return [Requirement(text) for texts in every for text in texts]


def installed_for(requirements):
    """The names of what `requirements` bring with them here, and their own."""
    found, left = set(), list(requirements)
    while left:
        requirement = left.pop()
        key = (canonicalize_name(requirement.name), *sorted(requirement.extras))
        if key in found:
            continue
        found.add(key)
        try:
            brought = [Requirement(text) for text in requires(requirement.name) or ()]
        except PackageNotFoundError:
            continue
        extras = requirement.extras or {""}
        left += [
            each for each in brought
            if each.marker is None or any(each.marker.evaluate({"extra": x}) for x in extras)
        ]  # fmt: skip
    return {name for name, *_ in found}


@pytest.mark.parametrize("requirement", asked_for(), ids=str)
def test_every_requirement_is_pinned_above_its_lower_bound(requirement):
    assert requirement.specifier.contains(PINS[canonicalize_name(requirement.name)])


def test_what_requirements_bring_with_them_is_pinned_too():
    found = installed_for(asked_for())
    assert len(found) > 100
    assert {name for name in found - PINS.keys() if not _OF_CUDA.fullmatch(name)} == set()


def test_what_builds_the_editable_install_is_pinned(monkeypatch):
    monkeypatch.chdir(ROOT)
    for text in get_requires_for_build_editable():
        requirement = Requirement(text)
        assert requirement.specifier.contains(PINS[canonicalize_name(requirement.name)])


def test_torch_and_what_is_bound_to_it_are_chosen_by_hand_and_kept_when_pins_are_renewed():
    (below,) = (number for number, line in enumerate(LINES) if line.startswith("# Below"))
    chosen = [line.partition("==")[0] for line in LINES[:below] if not line.startswith("#")]
    assert chosen == ["torch", "torchvision", "timm"]
    assert "sed '/^# Below/q'" in (ROOT / "Makefile").read_text()


def test_a_pin_is_a_name_and_a_version_that_any_index_knows_and_stands_once():
    assert len(PINS) == len(PINNED)
    for line in PINNED:
        assert re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", line), line
        assert Version(line.partition("==")[2]).local is None
