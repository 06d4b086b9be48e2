from hypothesis import given
from hypothesis import strategies as st

from advisor.zoo.allocator import CachingAllocator

MIB = 2**20


def after(*sizes):
    allocator = CachingAllocator()
    for key, size in enumerate(sizes):
        allocator.allocate(key, size)
    return allocator


def test_small_requests_share_a_segment_of_2_mib():
    allocator = after(1, 513, MIB // 2)
    assert allocator.allocated == 512 + 1024 + MIB // 2
    assert allocator.reserved == 2 * MIB


def test_a_request_below_10_mib_comes_out_of_20():
    assert after(3 * MIB, 9 * MIB).reserved == 20 * MIB


def test_a_large_request_gets_a_segment_of_its_own():
    assert after(33 * MIB + 1).reserved == 34 * MIB


def test_what_is_freed_serves_again():
    allocator = after(40 * MIB)
    allocator.free(0)
    allocator.allocate(1, 16 * MIB)
    allocator.allocate(2, 24 * MIB)
    assert (allocator.reserved, allocator.allocated_peak) == (40 * MIB, 40 * MIB)


def test_freed_neighbours_join():
    allocator = after(4 * MIB, 4 * MIB, 4 * MIB)
    for key in (0, 2, 1):
        allocator.free(key)
    allocator.allocate(3, 20 * MIB)
    assert allocator.reserved == 20 * MIB


@given(st.lists(st.tuples(st.integers(1, 60 * MIB), st.booleans()), max_size=60))
def test_nothing_is_allocated_that_is_not_reserved_and_all_of_it_can_be_freed(course):
    allocator, alive = CachingAllocator(), []
    for key, (size, leaves) in enumerate(course):
        allocator.allocate(key, size)
        alive.append(key)
        if leaves:
            allocator.free(alive.pop(0))
        assert allocator.allocated <= allocator.allocated_peak <= allocator.reserved
    for key in alive:
        allocator.free(key)
    assert allocator.allocated == 0
