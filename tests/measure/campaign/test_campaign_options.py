import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import InvalidInput
from advisor.measure.process.cores import split_cores


@given(cores=st.integers(1, 64), parts=st.integers(1, 8))
def test_every_device_has_as_many_cores_and_no_core_is_in_two_shares(cores, parts):
    if cores < parts:
        with pytest.raises(InvalidInput, match="cores of their own"):
            split_cores(range(cores), parts, str)
        return
    shares = split_cores(range(cores), parts, str)
    assert {len(share) for share in shares} == {cores // parts}
    assert len({core for share in shares for core in share}) == parts * (cores // parts)


def test_threads_of_one_physical_core_stay_together():
    # As on hosts that number the second threads after all the first ones.
    shares = split_cores(range(16), 4, lambda core: str(core % 8))
    assert shares == ((0, 1, 8, 9), (2, 3, 10, 11), (4, 5, 12, 13), (6, 7, 14, 15))
