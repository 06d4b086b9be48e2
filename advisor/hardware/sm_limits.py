"""How many blocks of a kernel an SM holds at once."""

from dataclasses import dataclass

from advisor.errors import InvalidInput

_WARP = 32

# Of all capabilities below: registers of an SM, in four equal parts, each warp's in steps of 256.
_REGISTERS, _PARTS, _REGISTER_STEP = 65_536, 4, 256

_SHARED_STEP = 128


@dataclass(frozen=True, slots=True)
class SmLimits:
    """What one SM can hold at once.

    Attributes:
        threads: Resident threads.
        blocks: Resident blocks.
        shared_kib: Shared memory.
        reserved_kib: Shared memory that the system reserves for each block.
    """

    threads: int
    blocks: int
    shared_kib: int
    reserved_kib: int


_LIMITS = {
    "7.0": SmLimits(2048, 32, 96, 0),
    "7.5": SmLimits(1024, 16, 64, 0),
    "8.0": SmLimits(2048, 32, 164, 1),
    "8.6": SmLimits(1536, 16, 100, 1),
    "8.9": SmLimits(1536, 24, 100, 1),
    "9.0": SmLimits(2048, 32, 228, 1),
    "10.0": SmLimits(2048, 32, 228, 1),
    "10.3": SmLimits(2048, 32, 228, 1),
    "12.0": SmLimits(1536, 24, 100, 1),
}


def sm_limits(compute_capability: str) -> SmLimits:
    """What an SM of `compute_capability`, e.g. ``"9.0"``, can hold.

    Raises:
        InvalidInput: Its limits are not in the table.
    """
    try:
        return _LIMITS[compute_capability]
    except KeyError:
        raise InvalidInput(
            f"the limits of an SM of compute capability {compute_capability} are not known. "
            f"Known: {', '.join(_LIMITS)}."
        ) from None


def resident_blocks(limits: SmLimits, *, threads: int, registers: int, shared_bytes: int) -> int:
    """Blocks of a kernel that fit on one SM at once, at least 1, since the kernel did run."""
    warps = -(-threads // _WARP)
    by_threads = limits.threads // (warps * _WARP)
    by_registers = _warps_by_registers(registers) // warps
    return max(1, min(limits.blocks, by_threads, by_registers, _by_shared(limits, shared_bytes)))


def _warps_by_registers(registers: int) -> int:
    of_warp = max(1, -(-registers * _WARP // _REGISTER_STEP)) * _REGISTER_STEP
    return _REGISTERS // _PARTS // of_warp * _PARTS


def _by_shared(limits: SmLimits, shared_bytes: int) -> int:
    steps = -(-(shared_bytes + limits.reserved_kib * 1024) // _SHARED_STEP)
    return limits.blocks if steps == 0 else limits.shared_kib * 1024 // (steps * _SHARED_STEP)
