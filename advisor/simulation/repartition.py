"""What it costs to set a GPU up for the next group of jobs; MIG's part was not measured here."""

from collections import Counter

from advisor.sharing import Group, Hybrid, Instance, Mps

# Seconds to make and to destroy a MIG instance: an A30 took 0.13 to 0.16 and 0.10 to 0.11, as the
# README of FAR reports.
_MAKE_S, _DESTROY_S = 0.16, 0.11
# Assumed: MIG mode on or off, without a reset, as Hopper does it.
MIG_MODE_S = 5.0
# An MPS daemon up or down: the median of 11 times on an H200 (profiles/REPORT.md, whole jobs).
_MPS_DAEMON_S = 0.16


def repartition_s(before: Group | Hybrid, after: Group | Hybrid) -> float:
    """Seconds between the last job of `before` and the first of `after`, when nothing runs.

    Instances and MPS daemons that both need stay. That jobs start up is not counted, for they do so
    under any plan.
    """
    old, new = _instances(before), _instances(after)
    seconds = (new - old).total() * _MAKE_S + (old - new).total() * _DESTROY_S
    seconds += MIG_MODE_S * (bool(old) != bool(new))
    up, down = _daemons(after) - _daemons(before), _daemons(before) - _daemons(after)
    return seconds + _MPS_DAEMON_S * (up + down).total()


def _instances(group: Group | Hybrid) -> Counter[Instance]:
    return Counter(group.instances) if isinstance(group, Hybrid) else Counter()


def _daemons(group: Group | Hybrid) -> Counter[str]:
    """Where MPS daemons run."""
    if isinstance(group, Group):
        return Counter(["gpu"] if isinstance(group.sharing, Mps) else [])
    return Counter(
        f"{place.instance} {part}"
        for place in group.places
        for part, room in enumerate(place.rooms)
        if isinstance(room.sharing, Mps)
    )
