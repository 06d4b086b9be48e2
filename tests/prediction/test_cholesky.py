"""The blocked factor against numpy's in double precision."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.prediction.cholesky import cholesky


def covariance(points, seed):
    rows = np.random.default_rng(seed).normal(size=(points, 3))
    apart = ((rows[:, None] - rows[None]) ** 2).sum(axis=2)
    return np.exp(-apart / 2) + 0.1 * np.eye(points)


@given(st.integers(1, 200), st.integers(0, 9))
def test_it_whitens_as_the_plain_factor_does(points, seed):
    exact = covariance(points, seed)
    columns = np.random.default_rng(seed).normal(size=(points, 2))
    found = cholesky(exact.astype(np.float32)).whitened(columns)
    assert found == pytest.approx(np.linalg.solve(np.linalg.cholesky(exact), columns), abs=1e-3)


def test_what_is_no_covariance_is_refused():
    with pytest.raises(np.linalg.LinAlgError):
        cholesky(-np.eye(70, dtype=np.float32))
