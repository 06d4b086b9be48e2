"""Cuts a GPU up into the MIG instances that a plan asks for, and puts back those of before.

What is about to be changed is in the journal first, with all that was there: whatever interrupts
it, `give_back` makes it as it was. MIG mode is never switched here. Not yet run on MIG hardware.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from advisor.apply.mig_request import MigPart, beside, refuse_jobs, refuse_mode, request_of
from advisor.errors import AdvisorError, GpuUnavailable
from advisor.hardware.catalogue import Gpu
from advisor.hardware.gpu_instances import GpuInstance, described
from advisor.hardware.live_gpu import live_gpu
from advisor.hardware.mig_switch import mig_devices, mig_instances, reach
from advisor.launch.journal import Journal
from advisor.launch.machine_changes import ChangedMig


@contextmanager
def cut_up(
    log: Journal, gpu: Gpu, parts: Sequence[MigPart], *, replacing: bool = False
) -> Iterator[dict[int, str]]:
    """A GPU with the instances of `parts` while the block runs, then as it was.

    Args:
        log: Of that GPU; tells how to undo it where this process cannot.
        gpu: As it was planned for.
        parts: All that are to be there at once.
        replacing: Take away idle instances that stand in the way, and make them again afterwards;
            they then have other UUIDs.

    Yields:
        The UUID of each part's MIG device, by its number.

    Raises:
        NothingFits: The driver's instances are not those planned for, or do not fit.
        GpuUnavailable: MIG mode is off, a job runs, rights lack, a place is taken, or the driver
            is too old.
        AdvisorError: The driver fails otherwise. Whatever is raised, the instances are as before,
            or the message says that they are not.
    """
    devices = make(log, gpu, parts, replacing=replacing)
    try:
        yield devices
    finally:
        give_back(log)


def make(
    log: Journal, gpu: Gpu, parts: Sequence[MigPart], *, replacing: bool = False
) -> dict[int, str]:
    """As `cut_up`, until `give_back`: also instead of what an earlier call made.

    Where an earlier call, of any process with this journal, made just that, it is left alone with
    the jobs on it.
    """
    uuid = log.owner.gpu
    live = live_gpu(uuid)
    refuse_mode(live)
    request = request_of(gpu, live, parts)
    found = mig_instances(uuid)
    earlier = _earlier(log)
    before = earlier.before if earlier else found
    known = (*before, *(earlier.ours if earlier else ()), *request.instances)
    wanted = (*request.instances, *beside(request, before, replacing=replacing))
    if not (there := _is_reached(found, wanted, known)) or earlier is None:
        refuse_jobs(live)
    if not there:
        entries = list(log.left)
        log.intend(ChangedMig(before=before, ours=known[len(before) :]))
        for entry in entries:
            log.undone(entry)
    try:
        reach(uuid, wanted, known)
        return _uuids(uuid, request.seats)
    except BaseException as failed:
        _back_after(failed, log)
        raise


def give_back(log: Journal) -> str | None:
    """Remove what was made since the journal began, and make again what was there before.

    What others have made since is left alone.

    Returns:
        What was done, in words; None if nothing was to do.

    Raises:
        GpuUnavailable: MIG mode is off, rights lack, an instance is in use, or others stand where
            one was before; the journal keeps how to do it.
        AdvisorError: The driver fails otherwise.
    """
    if (change := _earlier(log)) is None:
        return None
    done = _put_back(log.owner.gpu, change)
    for entry in list(log.left):
        log.undone(entry)
    return done


def _put_back(uuid: str, change: ChangedMig) -> str:
    live = live_gpu(uuid)
    if live.mig_enabled or change.before:
        refuse_mode(live)
        reach(uuid, change.before, (*change.before, *change.ours))
    return (
        f"MIG of GPU {live.index}: {described(change.before)}, as before (this has not run on MIG "
        f"hardware yet: see `nvidia-smi mig -i {live.index} -lgi`)"
    )


def _earlier(log: Journal) -> ChangedMig | None:
    """What is not undone: of several the last, which knows all of it."""
    return next(reversed(log.left.values()), None)


def _is_reached(
    found: Sequence[GpuInstance], wanted: Sequence[GpuInstance], known: Sequence[GpuInstance]
) -> bool:
    """Whether `reach` would do nothing."""
    places = {each.place for each in known} - {each.place for each in wanted}
    return not any(each.place in places for each in found) and all(
        any(each.is_like(other) for other in found) for each in wanted
    )


def _uuids(uuid: str, seats: dict[int, tuple[int, int]]) -> dict[int, str]:
    found = {(each.instance.start, each.compute.start): each.uuid for each in mig_devices(uuid)}
    if not found.keys() >= set(seats.values()):
        raise AdvisorError("MIG instances that were made are gone. Somebody else removes some.")
    return {number: found[seat] for number, seat in seats.items()}


def _back_after(failed: BaseException, log: Journal) -> None:
    try:
        give_back(log)
    except AdvisorError as left:
        raise GpuUnavailable(
            f"{failed or type(failed).__name__} And the instances are not yet as before: {left} "
            f"Then: advisor restore"
        ) from failed
