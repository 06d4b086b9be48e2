"""Device memory of a tenant: what torch told and what the driver saw, as one record."""

from collections.abc import Mapping

from advisor.workload.measured import Memory


def memory_record(told: Mapping[str, float], on_device_mib: float | None) -> Memory:
    """The record of what a tenant told of its memory.

    Args:
        told: As `advisor.measure.process.tenant_verbs.memory` gives it.
        on_device_mib: What the driver saw of its process; None where it would not say.
    """
    # A driver that sees less than torch holds counts something else (seen of MPS clients before
    # Volta): then it has not told.
    trusted = on_device_mib is not None and on_device_mib >= told["reserved_mib"]
    return Memory(
        allocated_mib=told["allocated_mib"],
        reserved_mib=told["reserved_mib"],
        device_mib=on_device_mib if trusted else None,
    )
