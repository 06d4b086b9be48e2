"""Factors of a model are the same from a file as worked out, and worked out where it fails."""

import numpy as np
import pytest

from advisor.prediction.cholesky import cholesky, factor, keep_factors

POINTS = tuple((float(each), 1.0) for each in range(150))


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """The folder of a user's caches; what is kept of models ends with the test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("advisor.prediction.cholesky._kept", {})
    return tmp_path / "cache"


def made(points=POINTS, told=b"as before"):
    """How often the factor of `points` had to be worked out, and what it whitens to."""
    worked_out = []

    def make():
        worked_out.append(1)
        rows = np.array(points)
        apart = ((rows[:, None] - rows[None]) ** 2).sum(axis=2)
        return cholesky((np.exp(-apart / 50) + np.eye(len(rows))).astype(np.float32))

    found = factor(points, told, make).whitened(np.ones((len(points), 2)))
    return len(worked_out), found.tobytes()


@pytest.mark.usefixtures("cache")
def test_the_factor_of_a_model_is_worked_out_once_and_the_same_from_its_file(tmp_path):
    keep_factors(tmp_path / "sharing.json", {"mps": POINTS})
    assert made()[0] == 1
    assert made() == (0, made(tuple(POINTS))[1])


def test_the_factor_of_another_model_is_not_kept(cache):
    assert made()[0] == made()[0] == 1
    assert not cache.exists()


def cut_short(path):
    path.write_bytes(path.read_bytes()[:1000])


def damaged(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("spoil", [cut_short, damaged])
def test_a_damaged_file_is_made_anew(cache, tmp_path, spoil):
    keep_factors(tmp_path / "sharing.json", {"mps": POINTS})
    _, first = made()
    spoil(*cache.rglob("*.bin"))
    assert [made(), made()] == [(1, first), (0, first)]


def test_a_model_that_changed_gets_a_factor_of_its_own(cache, tmp_path):
    keep_factors(tmp_path / "sharing.json", {"mps": POINTS})
    made()
    assert [made(told=b"anew")[0], made(told=b"anew")[0]] == [1, 0]
    assert len(list(cache.rglob("*.bin"))) == 1


def test_without_a_folder_to_write_to_it_is_worked_out_each_time(cache, tmp_path):
    cache.touch()
    keep_factors(tmp_path / "sharing.json", {"mps": POINTS})
    assert made()[0] == made()[0] == 1
