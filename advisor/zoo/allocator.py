"""Torch's caching allocator of GPU memory, in numbers alone: what it reserves for which requests.

The rules are those of c10/cuda/CUDACachingAllocator.cpp with its default settings: requests are
rounded to 512 bytes; small ones come out of segments of 2 MiB, those below 10 MiB out of segments
of 20 MiB, larger ones get a segment of their own in multiples of 2 MiB; the best fitting free
block serves, split where enough is left; freed neighbours join; segments are never given back.
"""

from bisect import bisect_left, insort
from dataclasses import dataclass, field

_ROUND = 512
_SMALL_REQUEST, _SMALL_SEGMENT = 2**20, 2 * 2**20
_MEDIUM_REQUEST, _MEDIUM_SEGMENT = 10 * 2**20, 20 * 2**20
_LARGE_ROUND = 2 * 2**20


@dataclass(eq=False, slots=True)
class _MemoryBlock:
    """Bytes of a segment that lie together: all in use, or all free."""

    at: int
    size: int
    small: bool
    before: "_MemoryBlock | None" = None
    after: "_MemoryBlock | None" = None
    free: bool = False


@dataclass(slots=True)
class CachingAllocator:
    """Takes requests and what ends them; tells the most that was allocated and reserved.

    Attributes:
        allocated: Bytes in use now.
        reserved: Bytes of all segments; never less than before.
        allocated_peak: Most bytes in use at once.
    """

    allocated: int = 0
    reserved: int = 0
    allocated_peak: int = 0
    _used: dict[int, _MemoryBlock] = field(default_factory=dict)
    # Free blocks in the order in which they are looked through: by size, then by address.
    _free: dict[bool, list[tuple[int, int, int]]] = field(
        default_factory=lambda: {True: [], False: []}
    )
    _blocks: dict[int, _MemoryBlock] = field(default_factory=dict)
    _end: int = 0

    def allocate(self, key: int, size: int) -> None:
        """Serve a request of `size` bytes, to be freed as `key`."""
        rounded = max(_ROUND, -(-size // _ROUND) * _ROUND)
        small = rounded <= _SMALL_REQUEST
        block = self._best_fit(rounded, small) or self._segment(rounded, small)
        self._split(block, rounded)
        self._used[key] = block
        self.allocated += block.size
        self.allocated_peak = max(self.allocated_peak, self.allocated)

    def free(self, key: int) -> None:
        """Take back what was served as `key`."""
        block = self._used.pop(key)
        self.allocated -= block.size
        for neighbour in (block.before, block.after):
            if neighbour is not None and neighbour.free:
                self._forget(neighbour)
                block = _joined(*sorted((block, neighbour), key=lambda each: each.at))
        self._remember(block)

    def _best_fit(self, size: int, small: bool) -> _MemoryBlock | None:
        pool = self._free[small]
        index = bisect_left(pool, (size, -1, -1))
        if index == len(pool):
            return None
        block = self._blocks[pool[index][2]]
        self._forget(block)
        return block

    def _segment(self, size: int, small: bool) -> _MemoryBlock:
        if small:
            whole = _SMALL_SEGMENT
        elif size < _MEDIUM_REQUEST:
            whole = _MEDIUM_SEGMENT
        else:
            whole = -(-size // _LARGE_ROUND) * _LARGE_ROUND
        block = _MemoryBlock(self._end, whole, small)
        self._end += whole + _LARGE_ROUND  # segments are no neighbours
        self.reserved += whole
        return block

    def _split(self, block: _MemoryBlock, size: int) -> None:
        left = block.size - size
        if left < _ROUND if block.small else left <= _SMALL_REQUEST:
            return
        rest = _MemoryBlock(block.at + size, left, block.small, before=block, after=block.after)
        if block.after is not None:
            block.after.before = rest
        block.after, block.size = rest, size
        self._remember(rest)

    def _remember(self, block: _MemoryBlock) -> None:
        block.free = True
        self._blocks[block.at] = block
        insort(self._free[block.small], (block.size, block.at, block.at))

    def _forget(self, block: _MemoryBlock) -> None:
        block.free = False
        pool = self._free[block.small]
        pool.pop(bisect_left(pool, (block.size, block.at, block.at)))


def _joined(first: _MemoryBlock, second: _MemoryBlock) -> _MemoryBlock:
    first.size += second.size
    first.after = second.after
    if second.after is not None:
        second.after.before = first
    return first
