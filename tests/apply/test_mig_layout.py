"""A GPU cut up as a plan asks, and put back: whatever fails, and wherever the run is killed."""

import os
import signal
from contextlib import suppress
from functools import partial

import pynvml
import pytest

from advisor.apply.mig_layout import cut_up, give_back, make
from advisor.apply.mig_request import MigPart
from advisor.apply.restore import restore
from advisor.errors import AdvisorError, GpuUnavailable, NothingFits
from advisor.hardware import mig_switch
from advisor.hardware.catalogue import gpu
from advisor.hardware.gpu_instances import ComputeInstance, GpuInstance
from advisor.launch.journal import journal, taken_over
from advisor.measure.process.journal_files import journal_files
from advisor.sharing import Instance
from tests.hardware.conftest import install
from tests.hardware.mig_machine import CHANGES, MIG, MigMachine

__all__ = ["install"]

A100 = gpu("a100-40gb")
# Both have an instance that stays, one that goes, and one whose parts change.
BEFORE = (
    GpuInstance(0, 4, 5, (ComputeInstance(0, 2, 1), ComputeInstance(2, 2, 1))),
    GpuInstance(4, 2, 14, (ComputeInstance(0, 2, 1),)),
    GpuInstance(6, 1, 19, (ComputeInstance(0, 1, 0),)),
)
PARTS = (
    MigPart(1, Instance("4g.20gb", 0), 2),
    MigPart(2, Instance("4g.20gb", 0), 1),
    MigPart(3, Instance("1g.5gb", 4)),
)
CODES = {
    name: getattr(pynvml, f"NVML_ERROR_{name}")
    for name in ("IN_USE", "INSUFFICIENT_RESOURCES", "NO_PERMISSION", "GPU_IS_LOST", "UNKNOWN")
}


@pytest.fixture(autouse=True)
def calm(monkeypatch, tmp_path):
    monkeypatch.setattr(mig_switch, "_PAUSE_S", 0)
    monkeypatch.setattr(mig_switch, "_TRIES", 3)
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)  # thousands of them
    # What runs beside the tests is none of theirs, and there is much to look through.
    monkeypatch.setattr("advisor.hardware.live_gpu.mps_processes", lambda: ())
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


@pytest.fixture
def machine(install):
    return install(MigMachine())


def run(parts=PARTS, *, replacing=True):
    """A whole run; the UUIDs that its jobs got."""
    with (
        journal("GPU-0", "advisor run") as log,
        cut_up(log, A100, parts, replacing=replacing) as uuids,
    ):
        return uuids


def restored():
    return [(each.said, each.why_not) for each in restore()]


def test_jobs_get_devices_of_their_own_and_the_layout_is_as_before(machine):
    machine.put(*BEFORE)
    uuids = run()
    assert list(uuids) == [1, 2, 3]
    assert len(set(uuids.values())) == 3
    assert machine.layout() == BEFORE
    assert machine.misused == []
    assert journal_files() == []


def test_an_empty_gpu_is_empty_again(machine):
    run([MigPart(1, Instance("3g.20gb")), MigPart(2, Instance("4g.20gb"))])
    assert machine.layout() == ()


def test_the_devices_are_where_they_were_asked_for(machine):
    with journal("GPU-0", "advisor run") as log, cut_up(log, A100, PARTS) as uuids:
        ((_, start, parts),) = [each for each in machine.held.values() if len(each[2]) == 2]
        assert start == 0
        sizes = {machine.uuid(number): size for number, (size, _) in parts.items()}
        assert (sizes[uuids[1]], sizes[uuids[2]]) == (2, 1)


def test_an_error_of_a_job_puts_the_layout_back(machine):
    machine.put(*BEFORE)
    seen = []

    def job():
        with journal("GPU-0", "advisor run") as log, cut_up(log, A100, PARTS, replacing=True):
            seen.append(machine.layout())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        job()
    assert seen != [BEFORE]
    assert machine.layout() == BEFORE


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "error", "said"),
    [
        (None, NothingFits, "has no MIG"),
        ((0, 0), GpuUnavailable, "is off, and is never switched here.*nvidia-smi -i 0 -mig 1"),
        ((0, 1), GpuUnavailable, "changes when it is reset next"),
        ((1, 0), GpuUnavailable, "changes when it is reset next"),
    ],
)
def test_mig_mode_is_never_switched(machine, mode, error, said):
    machine.gpus[0].mig = mode
    with pytest.raises(error, match=said):
        run()
    assert not (CHANGES | {"nvmlDeviceSetMigMode"}) & set(machine.calls)


def refused(machine, error, said, parts=PARTS, **how):
    before = machine.layout()
    with pytest.raises(error, match=said):
        run(parts, **how)
    assert not CHANGES & set(machine.calls)
    assert machine.layout() == before
    assert journal_files() == []


def test_a_gpu_on_which_something_runs_is_let_be(machine):
    machine.gpus[0].processes[4711] = None
    refused(machine, GpuUnavailable, "process 4711 runs on GPU 0")


def test_who_may_not_see_instances_may_not_make_them(machine):
    denied = {"nvmlDeviceGetGpuInstances": CODES["NO_PERMISSION"]}
    machine.fault = lambda _number, name: denied.get(name)
    refused(machine, GpuUnavailable, "Run it as root, or ask for the right to read")


def test_instances_of_others_are_replaced_only_where_that_is_allowed(machine):
    machine.put(*BEFORE)
    refused(machine, GpuUnavailable, "--replace-instances", replacing=False)
    # The same as asked for, or beside it, stands in nobody's way.
    machine.held = {}
    machine.put(BEFORE[2])
    run(replacing=False)
    assert machine.layout() == BEFORE[2:]


@pytest.mark.parametrize(
    ("number", "key", "value"),
    [(4, "sliceCount", 4), (4, "id", 77), (4, "memorySizeMB", 17_000), (4, "places", [(0, 4)])],
)
def test_a_driver_that_cuts_otherwise_than_planned_is_refused(machine, number, key, value):
    machine.gpus[0].profiles[number][key] = value
    refused(machine, NothingFits, "Plan again on this machine", [MigPart(1, Instance("3g.20gb"))])


def test_a_driver_that_only_names_it_otherwise_is_not(machine):
    machine.gpus[0].profiles[4] |= {"name": b"MIG 3g.19gb", "memorySizeMB": 19_900}
    run([MigPart(1, Instance("3g.20gb"))])


def test_an_old_driver_is_refused(machine, monkeypatch):
    monkeypatch.delitem(MIG, "nvmlDeviceGetGpuInstances")
    refused(machine, GpuUnavailable, "the driver is too old")


def test_what_does_not_fit_is_refused(machine):
    refused(machine, NothingFits, "cannot hold", [MigPart(n, Instance("4g.20gb", 0)) for n in (1,)]
            + [MigPart(2, Instance("3g.20gb", 0))])  # fmt: skip


def test_a_place_that_is_taken_meanwhile_is_said_and_nothing_is_left(machine):
    stranger = GpuInstance(4, 1, 19)
    real = dict(MIG)

    def taken(self, *arguments):
        if self.layout() == ():
            self.put(stranger)
        return real["nvmlDeviceCreateGpuInstanceWithPlacement"](self, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(MIG, "nvmlDeviceCreateGpuInstanceWithPlacement", taken)
        with pytest.raises(GpuUnavailable, match="Somebody else makes instances too"):
            run([MigPart(1, Instance("3g.20gb", 4))])
    assert machine.layout() == (stranger,)
    assert journal_files() == []


# --- several stages, several processes ------------------------------------------------------------


def test_the_next_group_has_its_own_instances_and_the_first_layout_comes_back(machine):
    machine.put(*BEFORE)
    with journal("GPU-0", "advisor run") as log:
        make(log, A100, PARTS, replacing=True)
        make(log, A100, [MigPart(4, Instance("7g.40gb"))], replacing=True)
        assert len(machine.layout()) == 1
        said = give_back(log)
        assert said.startswith("MIG of GPU 0: 5:0,14:4,19:6, as before (this has not run on MIG")
        assert give_back(log) is None
    assert machine.layout() == BEFORE


def test_who_takes_a_run_over_finds_its_devices_with_the_jobs_on_them(machine):
    with journal("GPU-0", "advisor run") as log:
        uuids = make(log, A100, PARTS)
    machine.gpus[0].processes[4711] = None
    changes = [name for name in machine.calls if name in CHANGES]
    with taken_over(log.path) as again:
        assert make(again, A100, PARTS) == uuids
        assert [name for name in machine.calls if name in CHANGES] == changes
        machine.gpus[0].processes.clear()
        give_back(again)
    assert machine.layout() == ()


def test_restore_waits_for_a_job_that_still_runs_on_an_instance(machine):
    machine.put(*BEFORE)
    with journal("GPU-0", "advisor run") as log:
        make(log, A100, PARTS, replacing=True)
    machine.busy = set(machine.held)
    ((_, why_not),) = restored()
    assert "in use still" in str(why_not)
    machine.busy = set()
    ((said, why_not),) = restored()
    assert "MIG of GPU 0: 5:0,14:4,19:6, as before" in said
    assert why_not is None
    assert machine.layout() == BEFORE
    assert restored() == []


def test_restore_asks_for_mig_mode_where_somebody_switched_it_off(machine):
    machine.put(*BEFORE)
    with journal("GPU-0", "advisor run") as log:
        make(log, A100, PARTS, replacing=True)
    machine.gpus[0].mig, machine.held = (0, 0), {}
    ((_, why_not),) = restored()
    assert "sudo nvidia-smi -i 0 -mig 1" in str(why_not)
    machine.gpus[0].mig = (1, 1)
    assert restored()[0][1] is None
    assert machine.layout() == BEFORE


# --- a fault at every call ------------------------------------------------------------------------


def all_calls(install):
    """The calls of a whole run, in order."""
    machine = install(MigMachine())
    machine.put(*BEFORE)
    run()
    return machine.calls


def unlike(calls):
    """Where calls differ: of those alike between two changes, the first."""
    found, since = [], set()
    for at, name in enumerate(calls):
        if name in CHANGES or name not in since:
            found.append(at)
        since = set() if name in CHANGES else since | {name}
    return found


def after_fault(install, fault):
    machine = install(MigMachine())
    machine.put(*BEFORE)
    machine.fault = partial(fault, machine)
    with suppress(AdvisorError, KeyboardInterrupt):
        run()
    # A driver that was lost works again once somebody saw to it.
    machine.fault = lambda _number, _name: None
    if machine.layout() != BEFORE:
        assert journal_files(), "neither restored nor in the journal"
        assert all(why_not is None for _, why_not in restored())
    assert machine.layout() == BEFORE
    assert machine.misused == []
    for path in journal_files():
        path.unlink()


@pytest.mark.parametrize(
    "chosen", [unlike, pytest.param(lambda calls: range(len(calls)), marks=pytest.mark.exhaustive)]
)
@pytest.mark.parametrize("name", CODES)
@pytest.mark.parametrize("lasting", [False, True])
def test_a_fault_at_any_call_leaves_the_layout_or_a_journal_that_restores_it(
    install, name, lasting, chosen
):
    def fault(_machine, number, _name, *, at):
        return CODES[name] if number == at or (lasting and number > at) else None

    for at in chosen(all_calls(install)):
        after_fault(install, partial(fault, at=at))


@pytest.mark.parametrize("name", CODES)
def test_a_call_that_fails_after_it_worked_does_no_harm_either(install, name):
    calls = all_calls(install)
    for at in (number for number, call in enumerate(calls) if call in CHANGES):
        with pytest.MonkeyPatch.context() as patch:
            real = MIG[calls[at]]

            def worked(machine, *arguments, real=real, at=at):
                code = real(machine, *arguments)
                return CODES[name] if len(machine.calls) - 1 == at else code

            patch.setitem(MIG, calls[at], worked)
            after_fault(install, lambda _machine, _number, _name: None)


def test_an_interrupt_at_any_call_leaves_no_more_than_a_fault(install):
    def interrupt(_machine, number, _name, *, at):
        if number == at:
            raise KeyboardInterrupt

    for at in unlike(all_calls(install)):
        after_fault(install, partial(interrupt, at=at))


def in_a_child(act):
    """What `act` does in a process of its own, which it may kill; its status."""
    pid = os.fork()
    if pid == 0:
        try:
            act()
        finally:
            os._exit(0)
    return os.waitpid(pid, 0)[1]


def killed_runs(install, tmp_path, calls):
    """The machine after a run that was killed at each of `calls`, with all that it had done."""
    for at in calls:
        state = tmp_path / f"state-{at}"
        first = MigMachine(state=state)
        first.put(*BEFORE)
        first.saved()

        def killed(at=at, state=state):
            machine = install(MigMachine(state=state))
            machine.fault = lambda number, _name: (
                os.kill(os.getpid(), signal.SIGKILL) if number == at else None
            )
            run()

        assert os.WTERMSIG(in_a_child(killed)) == signal.SIGKILL
        yield state


def test_a_run_killed_between_any_two_calls_is_restored_from_its_journal(install, tmp_path):
    calls = all_calls(install)
    # Between two calls that change nothing it is the same as before the next that does.
    near = {at + n for at, name in enumerate(calls[:-1]) if name in CHANGES for n in (0, 1)}
    changed = 0
    for state in killed_runs(install, tmp_path, sorted(near)):
        machine = install(MigMachine(state=state))
        changed += machine.layout() != BEFORE
        if machine.layout() != BEFORE:
            assert journal_files()
        assert all(why_not is None for _, why_not in restored())
        assert machine.layout() == BEFORE
        assert journal_files() == []
    assert changed > len(near) // 2


@pytest.mark.parametrize("moment", range(4))
def test_a_run_killed_while_it_writes_its_journal_is_restored_too(install, tmp_path, moment):
    # Of its name, of the folder, of what is intended, of what is undone.
    state = tmp_path / "state"
    machine = install(MigMachine(state=state))
    machine.put(*BEFORE)
    machine.saved()
    written = []

    def killed():
        def sync(_descriptor):
            written.append(1)
            if len(written) > moment:
                os.kill(os.getpid(), signal.SIGKILL)

        os.fsync = sync
        run()

    assert os.WTERMSIG(in_a_child(killed)) == signal.SIGKILL
    machine = install(MigMachine(state=state))
    assert all(why_not is None for _, why_not in restored())
    assert machine.layout() == BEFORE
    assert journal_files() == []


def test_a_restore_that_is_killed_itself_is_done_by_the_next(install, tmp_path):
    calls = all_calls(install)
    last = max(at for at, name in enumerate(calls) if "CreateCompute" in name)
    (state,) = killed_runs(install, tmp_path, [last])
    (path,) = journal_files()
    text, layout = path.read_text(), state.read_text()
    machine = install(MigMachine(state=state))
    list(restore())
    for at in (n for n, name in enumerate(machine.calls) if name in CHANGES):
        path.write_text(text)
        state.write_text(layout)

        def killed(at=at):
            again = install(MigMachine(state=state))
            again.fault = lambda number, _name: (
                os.kill(os.getpid(), signal.SIGKILL) if number == at else None
            )
            list(restore())

        assert os.WTERMSIG(in_a_child(killed)) == signal.SIGKILL
        found = install(MigMachine(state=state))
        assert all(why_not is None for _, why_not in restored())
        assert found.layout() == BEFORE
