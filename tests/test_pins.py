"""constraints.txt has one version of every package that `make` and `make check` install."""

import re
import tomllib
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
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
    return [Requirement(text) for texts in lists for text in texts]


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
            other for other in brought
            if other.marker is None or any(other.marker.evaluate({"extra": x}) for x in extras)
        ]  # fmt: skip
    unpinned = {name for name, *_ in names} - PINS.keys()
    assert {name for name in unpinned if not OF_CUDA.fullmatch(name)} == set()
