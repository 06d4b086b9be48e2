"""Whole jobs: each does its steps and leaves, the others go on."""

import os
import signal
from tempfile import TemporaryDirectory

import pytest

from advisor.errors import InvalidInput
from advisor.measure.shared.planned_run import PlannedRun, mixes_of
from advisor.measure.shared.run_list_file import refuse_of_cpu
from advisor.measure.shared.strict_record import record
from advisor.sharing import Mps, Naive
from advisor.workload.stored_runs import read_runs
from tests.measure.shared.real_command import Command
from tests.waiting import PATIENCE_S

TOYS = ["mlp-toy-bs32", "mlp-toy-bs64", "mlp-toy-bs128"]
SHORT = ("--settle", "0.1")


def whole(name, sharing, steps, **other):
    plan = {"id": name, "sharing": sharing, "purpose": "completion", "steps": steps}
    return plan | {"workloads": TOYS[: len(steps)]} | other


def of_gpu(sharing, steps):
    (full,) = mixes_of(record(PlannedRun, whole("whole", sharing, steps)))
    return [(run_group.jobs, run_group.mix.sharing) for run_group in full.run_groups]


@pytest.fixture
def command():
    """Makes the command; whatever a failed test leaves is ended."""
    made = []
    with TemporaryDirectory(dir="/tmp") as folder:

        def make(*plans):
            made.append(Command(folder, *plans))
            return made[-1]

        yield make
        for each in made:
            each.clear()


def test_each_job_does_its_steps_and_the_others_go_on_until_the_last_has_ended(command):
    shared = command(whole("together", "naive", [40, 900]))
    code, said = shared.finish(*SHORT)
    assert code == 0, said
    (run,) = read_runs(shared.out)
    done = run.completion
    assert (run.ok, run.purpose, run.shows_pace) == (True, "completion", False)
    assert (done.steps, done.began_s, done.pauses_s) == ((40, 900), (0.0, 0.0), ())
    first, last = done.ended_s
    assert 0 < first < last == done.makespan_s
    assert [len(tenant.windows) for tenant in run.tenants] == [1, 2]
    for tenant, steps, ended_s in zip(run.tenants, done.steps, done.ended_s, strict=True):
        assert sum(window.steps for window in tenant.windows) == pytest.approx(steps)
        assert sum(window.seconds for window in tenant.windows) == pytest.approx(ended_s)
        assert tenant.host_check_s > 0
        assert tenant.memory.allocated_mib > 0
    assert (done.energy_j, run.power_w, run.mps_clients) == (None, None, 0)
    shared.assert_nothing_is_left()


@pytest.mark.exhaustive
def test_serially_and_in_phases_jobs_come_one_after_another_and_pauses_count(command):
    phases = whole("phases", "naive[2,1];serial[3]", [40, 60, 50])
    shared = command(whole("serial", "serial", [40, 60, 50]), phases)
    code, said = shared.finish(*SHORT)
    assert code == 0, said
    serial, phased = (run.completion for run in read_runs(shared.out))
    assert serial.began_s[0] == 0
    assert len(serial.pauses_s) == 2
    assert len(phased.pauses_s) == 1
    for before, after, pause_s in zip((0, 1), (1, 2), serial.pauses_s, strict=True):
        assert serial.began_s[after] == pytest.approx(serial.ended_s[before] + pause_s)
    assert phased.began_s[:2] == (0, 0)
    assert phased.began_s[2] == pytest.approx(max(phased.ended_s[:2]) + phased.pauses_s[0])
    assert [tenant.workload.name for tenant in read_runs(shared.out)[1].tenants] == TOYS


@pytest.mark.exhaustive
def test_a_tenant_killed_before_its_last_step_is_an_outcome_and_the_other_ends(command):
    shared = command(whole("pair", "naive", [5000, 5000]))
    process = shared.start("--settle", "2")
    os.kill(shared.wait_for_tenants(2)[0], signal.SIGKILL)
    assert process.wait(PATIENCE_S) == 0
    (run,) = read_runs(shared.out)
    outcomes = sorted((tenant.outcome, tenant.detail) for tenant in run.tenants)
    assert outcomes == [("died", "killed by SIGKILL"), ("ok", None)]
    ended = dict(
        zip([tenant.outcome for tenant in run.tenants], run.completion.ended_s, strict=True)
    )
    assert ended["died"] is None
    assert ended["ok"] == run.completion.makespan_s
    shared.assert_nothing_is_left()


@pytest.mark.exhaustive
def test_an_interrupt_ends_jobs_in_the_middle_and_nothing_of_them_stays(command):
    shared = command(whole("pair", "naive", [10**9, 10**9]))
    process = shared.start(*SHORT)
    shared.wait_for_tenants(2)
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE_S) == 130
    assert shared.runs() == []
    shared.assert_nothing_is_left()


@pytest.mark.exhaustive
def test_what_is_done_is_not_done_again(command):
    shared = command(whole("alone", "serial", [20]))
    assert shared.finish(*SHORT)[0] == 0
    assert shared.finish(*SHORT)[0] == 2
    assert shared.finish("--resume", *SHORT)[0] == 0
    assert len(shared.runs()) == 1


def test_each_job_of_a_group_keeps_its_limit():
    assert of_gpu("mps=30,60,90", [1, 1, 1]) == [((0, 1, 2), Mps((30, 60, 90)))]
    assert of_gpu("mps=90,30[3,1];serial[2]", [1, 1, 1]) == [
        ((0, 2), Mps((30, 90))), ((1,), Naive())
    ]  # fmt: skip
    assert of_gpu("serial", [1, 1]) == [((0,), Naive()), ((1,), Naive())]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"steps": [1]}, "1 numbers of steps for 2 workloads"),
        ({"steps": [1, 0]}, "steps are whole numbers from 1"),
        ({"steps": [1, 2.5]}, r"steps\[1\] must be a whole number"),
        ({"steps": 3}, "steps must be an array, got 3"),
        ({"steps": None}, 'if and only if purpose is "completion"'),
        ({"purpose": "chosen"}, 'if and only if purpose is "completion"'),
        ({"sharing": "naive[1];naive[3]"}, "Name each of them once"),
        ({"sharing": "naive[1];3g.71gb[2]"}, "instances are not created"),
        ({"sharing": "naive[1];mps[2]"}, "a CPU is not shared by MPS"),
    ],
)
def test_whole_jobs_that_cannot_be_meant_are_refused(change, said):
    with pytest.raises(InvalidInput, match=said):
        refuse_of_cpu(
            "cpu", [record(PlannedRun, whole("whole", "naive", [3, 4]) | change)], "plans"
        )
