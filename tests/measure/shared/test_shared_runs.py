"""Shared runs: the list of plans as a file, and the command that runs it on the CPU."""

import json
import os
import signal
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
import pytest

from advisor.errors import InvalidInput
from advisor.files.writing import append_record
from advisor.measure.one_loader import with_loader
from advisor.measure.planned_runs import PlannedRun, read_plans, single_runs
from advisor.measure.shared_run import planned_processes
from advisor.measure.tenant import setup_of
from advisor.sharing import Mps, Naive
from advisor.workload.catalogue import workload
from advisor.workload.spec import Script, Workload
from advisor.workload.store import read_runs
from tests import synthetic
from tests.measure.process import scripts
from tests.measure.shared.real_command import Command
from tests.refusals import refused
from tests.waiting import PATIENCE_S, until

PAIR = (workload("mlp-toy-bs32"), workload("cnn-cifar10-bs32-loader2"))


def plan(sharing, workloads=PAIR):
    return PlannedRun(id="p", sharing=sharing, purpose="validation", workloads=workloads)


def test_under_mps_the_daemon_and_its_clients_meet_at_the_same_pipes():
    _, daemon, first, second = planned_processes(plan("mps=43,57"), "GPU-0")
    assert daemon.command == ("nvidia-cuda-mps-control", "-f")
    pipes = daemon.environment["CUDA_MPS_PIPE_DIRECTORY"]
    assert first.environment["CUDA_MPS_PIPE_DIRECTORY"] == pipes
    assert first.environment["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "43"
    assert PAIR[1].name in second.role


SHARER = replace(workload("cnn-cifar10-bs32-loader1"), shared_loader=True)


def test_the_loader_of_several_jobs_is_printed_and_meets_its_jobs_under_the_mps_of_all():
    _, daemon, loader, *jobs = planned_processes(plan("mps", [SHARER] * 3), "GPU-0")
    assert loader.environment["ADVISOR_LOADER_JOBS"] == "3"
    assert len(jobs) == 3
    for each in jobs:
        assert each.environment["ADVISOR_LOADER"] == loader.environment["ADVISOR_LOADER"]
    for each in (loader, *jobs):
        pipes = each.environment["CUDA_MPS_PIPE_DIRECTORY"]
        assert pipes == daemon.environment["CUDA_MPS_PIPE_DIRECTORY"]
    assert len([*planned_processes(plan("mps", [SHARER, PAIR[0]]), "GPU-0")]) == 4


def started_in(place):
    """Return the processes of this one that have the shared loader of `place`."""
    found = []
    for each in psutil.Process().children():
        with suppress(psutil.Error):
            found += [each] * (each.environ().get("ADVISOR_LOADER") == place)
    return found


def test_a_loader_and_its_jobs_keep_the_variables_by_which_they_see_the_gpu():
    pipes = {"CUDA_MPS_PIPE_DIRECTORY": "/pipes"}
    with TemporaryDirectory(dir="/tmp") as folder:
        setups = [setup_of(SHARER, "cpu", pipes)] * 2
        with with_loader(setups, [SHARER] * 2, Path(folder)) as own:
            place = json.loads(own[0].line)["environment"]["ADVISOR_LOADER"]
            until(lambda: started_in(place))
            (loader,) = started_in(place)
            assert loader.environ()["CUDA_MPS_PIPE_DIRECTORY"] == "/pipes"
            assert loader.environ()["ADVISOR_LOADER_JOBS"] == "2"
            for each in own:
                given = json.loads(each.line)["environment"]
                assert given.items() >= pipes.items()
                assert given["ADVISOR_LOADER"] == place
        assert not loader.is_running()


SHORT = ("--settle", "0.1", "--window", "0.1")
LONG = ("--settle", "0.1", "--window", "60")


def mix(plan_id, sharing="naive", **other):
    plan = {"id": plan_id, "sharing": sharing, "purpose": "drawn", "repeats": None}
    return plan | {"workloads": ["mlp-toy-bs32", "mlp-toy-bs64"]} | other


@pytest.fixture
def command():
    """Makes the command; whatever a failed test leaves is ended."""
    made = []
    with TemporaryDirectory(dir="/tmp") as folder:

        def make(*plans, **other):
            made.append(Command(folder, *plans, **other))
            return made[-1]

        yield make
        for each in made:
            each.clear()


def test_runs_that_the_file_has_are_done_again_only_if_it_is_another(command, capsys):
    shared = command(mix("pair"))
    append_record(shared.out, replace(synthetic.run([synthetic.profile()] * 2), id="pair"))
    words = (shared.plans, "--out", shared.out, "--device", "cpu", *SHORT)
    code, said = refused("runs", words, capsys)
    assert (code, "--skip-existing" in said) == (2, True)
    assert refused("runs", (*words, "--skip-existing"), capsys) == (0, "")
    assert len(read_runs(shared.out)) == 1


@pytest.mark.exhaustive
def test_a_tenant_killed_in_the_middle_is_an_outcome_and_the_other_is_recorded(command):
    shared = command(mix("pair"))
    process = shared.start("--settle", "1", "--window", "0.3")
    victim = shared.wait_for_tenants(2)[0]
    os.kill(victim, signal.SIGKILL)
    assert process.wait(PATIENCE_S) == 0
    (run,) = read_runs(shared.out)
    (died, lived) = sorted(run.tenants, key=lambda tenant: tenant.outcome)
    assert (died.outcome, lived.outcome, lived.detail) == ("failed", "ok", None)
    assert "SIGKILL" in died.detail
    assert not run.ok
    shared.assert_nothing_is_left()


@pytest.mark.exhaustive
def test_jobs_of_one_loader_are_measured_while_it_feeds_both(command):
    shared = command(mix("one", workloads=[asdict(SHARER)] * 2))
    code, said = shared.finish("--settle", "0.2", "--window", "2", "--windows", "2")
    assert code == 0, said
    (run,) = read_runs(shared.out)
    assert run.ok
    assert all(tenant.workload.shared_loader for tenant in run.tenants)
    # At one pace, but for the batches that wait in each.
    first, second = (sum(window.steps for window in each.windows) for each in run.tenants)
    assert abs(first - second) <= 8
    shared.assert_nothing_is_left()


TOYS = ["mlp-toy-bs32", "mlp-toy-bs64", "mlp-toy-bs128"]


def of_gpu(sharing, steps):
    workloads = tuple(map(workload, TOYS[: len(steps)]))
    whole = PlannedRun(
        id="whole", sharing=sharing, purpose="completion", steps=steps, workloads=workloads
    )
    (full,) = single_runs(whole)
    return list(full.groups)


def test_each_job_of_a_group_keeps_its_limit():
    assert of_gpu("mps=30,60,90", (1, 1, 1)) == [((0, 1, 2), Mps((30, 60, 90)))]
    assert of_gpu("mps=90,30[3,1];serial[2]", (1, 1, 1)) == [
        ((0, 2), Mps((30, 90))),
        ((1,), Naive()),
    ]
    assert of_gpu("serial", (1, 1)) == [((0,), Naive()), ((1,), Naive())]


@pytest.mark.exhaustive
def test_two_scripts_and_a_program_share_a_device_and_each_is_measured(command, tmp_path):
    folder = scripts.write(tmp_path / "scripts")
    printer = "import time\nwhile True: time.sleep(0.01); print('rate 400 examples/s')"
    commands = (["by_itself.py"], ["two_networks.py"], ["-c", printer])
    workloads = [
        Workload(
            name=f"job{n}",
            source="script",
            model="it",
            family="it",
            batch=4,
            script=Script(
                command=("python", *words),
                folder=str(folder),
                environment={"COUNT": os.devnull},
                throughput="rate ([0-9]+)" if words[0] == "-c" else None,
            ),
        )
        for n, words in enumerate(commands)
    ]
    shared = command(mix("scripts", workloads=[asdict(each) for each in workloads]))
    code, said = shared.finish("--settle", "0.2", "--window", "0.3", "--windows", "2")
    assert code == 0, said
    (run,) = read_runs(shared.out)
    assert run.ok
    assert all(window.steps > 0 for tenant in run.tenants for window in tenant.windows)
    assert [round(window.step_s, 6) for window in run.tenants[2].windows] == [0.01, 0.01]
    assert not shared.processes()


PLAN = {
    "id": "p1",
    "sharing": "mps=43,57",
    "purpose": "drawn",
    "repeats": None,
    "workloads": ["mlp-toy-bs32", asdict(workload("cnn-cifar10-bs32"))],
}


@pytest.fixture
def read(tmp_path):
    """Reads a file with these plans."""

    def written(*plans, **other):
        file = tmp_path / "plans.json"
        file.write_text(json.dumps({"schema": 1, "gpu": "h200-141gb", "plans": plans} | other))
        return read_plans(file, "h200-141gb")

    return written


def test_a_serial_plan_runs_each_workload_alone_and_copies_once(read):
    (shared, serial, copies) = read(
        PLAN,
        PLAN | {"id": "p2", "sharing": "serial", "purpose": "repeat", "repeats": "p0"},
        PLAN | {"id": "p3", "sharing": "serial", "workloads": ["mlp-toy-bs32"] * 3},
    )
    assert shared.workloads == (workload("mlp-toy-bs32"), workload("cnn-cifar10-bs32"))
    assert single_runs(shared) == (shared,)
    assert shared.groups == (((0, 1), Mps((43, 57))),)
    first, second = single_runs(serial)
    assert (first.id, first.repeats, second.id, second.repeats) == ("p2.1", "p0.1", "p2.2", "p0.2")
    assert first.groups == second.groups == (((0,), Naive()),)
    assert [each.id for each in single_runs(copies)] == ["p3"]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"sharing": "mps=43"}, "1 limit"),
        ({"sharing": "mig=3g.71gb,4g.71gb"}, "MIG"),
        ({"sharing": "shared"}, "sharing"),
        ({"id": ""}, "id"),
        ({"purpose": "fun"}, "purpose"),
        ({"repeats": "p0"}, "repeat"),
        ({"capacity_mib": 24576}, "memory"),
        ({"purpose": "memory", "capacity_mib": 24.5}, "mib"),
        ({"colour": "red"}, "colour"),
        ({"workloads": []}, "workloads"),
        ({"workloads": ["mlp-toy-bs32"] * 49}, "49"),
        ({"workloads": [asdict(workload("mlp-toy-bs32")) | {"batches": 3}]}, "batches"),
        ({"steps": [1, 2]}, "completion"),
        ({"purpose": "completion", "steps": [1]}, "steps"),
        ({"purpose": "completion", "steps": [1, 0]}, "steps"),
        ({"purpose": "completion", "steps": [1, 2], "sharing": "naive[1];naive[3]"}, "once"),
        ({"sharing": "mps/2", "workloads": ["mlp-toy-bs32"] * 3}, "cannot measure a queue"),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused_with_its_place(read, change, named):
    with pytest.raises(InvalidInput, match=named) as refusal:
        read(PLAN | {"id": "p0"}, PLAN | change)
    places = ("plans 2", "run '", "mlp-")
    assert str(refusal.value).partition("plans.json: ")[2].startswith(places)


def test_a_workload_that_is_misspelt_is_refused_with_the_near_ones(read):
    with pytest.raises(InvalidInput, match=r"plans\.json: .*mlp-tou-bs32.*mlp-toy-bs32"):
        read(PLAN | {"workloads": ["mlp-tou-bs32"]})


def test_a_file_that_holds_no_plans_for_this_device_is_refused(read, tmp_path):
    for wrong in ({"schema": 2}, {"schema": None}, {"gpu": "a100-40gb"}):
        with pytest.raises(InvalidInput, match=r"plans\.json: .*(schema|a100-40gb)"):
            read(PLAN, **wrong)
    with pytest.raises(InvalidInput, match="'p1'"):
        read(PLAN, PLAN)
    for text in ("", "[]", "{", "null", '{"schema": 1}', "\xff"):
        (tmp_path / "plans.json").write_bytes(text.encode("latin-1"))
        with pytest.raises(InvalidInput, match=r"plans\.json"):
            read_plans(tmp_path / "plans.json", "cpu")


def test_what_a_cpu_cannot_do_is_wrong_use(command, capsys):
    for one in (command(mix("a"), gpu="h200-141gb"), command(mix("a", "mps"))):
        words = [one.plans, "--out", one.out, "--device", "cpu"]
        code, said = refused("runs", words, capsys)
        assert (code, "CPU" in said or "cpu" in said) == (2, True)
