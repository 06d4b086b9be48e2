"""Scripts of users as tenants: real ones, started as they are, on the CPU."""

import os
from contextlib import contextmanager
from errno import ENOSPC
from pathlib import Path
from shutil import copytree
from tempfile import TemporaryDirectory
from time import time

import pytest

from advisor.errors import AdvisorError, InvalidInput
from advisor.measure.process import started_script
from advisor.measure.process.script_processes import scripts_within, session_members
from advisor.measure.process.tenant_handle import Ended
from advisor.measure.process.tenants import ask_all, tenants_on
from advisor.measure.process.worker import TenantSetup
from advisor.measure.solo.profiling_verbs import profiling_verbs
from advisor.workload.spec import Script, Workload
from tests.waiting import PATIENCE_S, until

SCRIPTS = Path(__file__).parent / "scripts"
CORES = tuple(sorted(os.sched_getaffinity(0)))


@pytest.fixture
def home(tmp_path):
    """A user's folder with scripts, what they read, and what they must not change."""
    folder = tmp_path / "home"
    copytree(SCRIPTS, folder)
    (tmp_path / "around.txt").write_text("near\n")
    (folder / "settings.txt").write_text("as it was\n")
    (folder / "big.bin").write_bytes(b"0" * 2_000_000)
    (folder / "sitecustomize.py").write_text(
        "import os, pathlib\npathlib.Path(os.environ['COUNT'] + '.own').touch()\n"
    )
    return folder


def scripted(home, *command, **environment):
    environment |= {"COUNT": str(home / "steps.txt"), "PYTHONPATH": str(home)}
    script = Script(command=tuple(map(str, command)), folder=str(home), environment=environment)
    return Workload(name="it", source="script", model="it", family="it", batch=1, script=script)


@contextmanager
def started(*workloads):
    """Tenants that were asked to load these workloads, and what they answered."""
    setups = [TenantSetup("cpu", CORES, {}, each.script) for each in workloads]
    with TemporaryDirectory() as folder, tenants_on(setups, Path(folder), profiling_verbs) as found:
        loads = [{"workload": each, "warm_steps": 2} for each in workloads]
        yield found, ask_all(found, "load", loads, timeout_s=PATIENCE_S)


def took(tenant, home, steps):
    """How many steps the script counted while it was asked for so many."""
    before = int((home / "steps.txt").read_text())
    answer = tenant.ask("run_steps", start_at=time(), steps=steps)
    assert len(answer["completed_at"]) == steps
    return int((home / "steps.txt").read_text()) - before


def test_a_plain_script_is_trained_as_asked_and_finds_and_leaves_its_files_as_they_were(home):
    (workload,) = [scripted(home, "python", "plain.py", 30, SEED="7")]
    with started(workload) as ((tenant,), (loaded,)):
        assert loaded["found"] == {
            "batch": 30, "steps_per_epoch": 4, "loader_workers": 1,
            "precision": "default", "execution": "eager",
        }  # fmt: skip
        assert tenant.versions["torch"]
        assert took(tenant, home, 9) == 9  # beyond the end of two passes
        assert (home / "steps.txt.own").exists(), "the user's own sitecustomize ran"
        answer = tenant.ask("train", start_at=time(), stop_at=time() + 0.1)
        assert answer["completed_at"] == sorted(answer["completed_at"])
        assert answer["cpu_s"] > 0
        issued = tenant.ask("issue", seconds=0.05)
        assert len(issued["phases_s"]) == 3  # to the loss, backward, update
        assert all(seconds > 0 for seconds in issued["phases_s"])
        assert tenant.ask("check_host")["check_s"] > 0
        pid = tenant.pid
    assert not session_members(pid)
    assert (home / "settings.txt").read_text() == "as it was\n"
    assert (home / "big.bin").read_bytes() == b"0" * 2_000_000
    assert not (home / "model.pt").exists()


@pytest.mark.parametrize(
    ("name", "precision"),
    [
        ("scaled.py", "amp"),
        pytest.param("by_itself.py", "default", marks=pytest.mark.exhaustive),
        pytest.param("two_networks.py", "default", marks=pytest.mark.exhaustive),
        pytest.param("in_backward.py", "default", marks=pytest.mark.exhaustive),
    ],
)
def test_a_step_is_what_the_script_itself_would_call_one(home, name, precision):
    with started(scripted(home, "python", name)) as ((tenant,), (loaded,)):
        assert isinstance(loaded, dict), loaded
        assert loaded["found"]["precision"] == precision
        assert loaded["found"]["steps_per_epoch"] is None  # there is no loader
        assert abs(took(tenant, home, 7) - 7) <= 1  # it counts before or after we do


@pytest.mark.exhaustive
def test_a_compiled_optimizer_step_is_found_too(home):
    with started(scripted(home, "python", "compiled.py")) as ((tenant,), (loaded,)):
        assert loaded["found"]["execution"] == "compiled"
        assert abs(took(tenant, home, 7) - 7) <= 1


@pytest.mark.exhaustive
def test_several_ranks_are_refused_with_what_to_do(home):
    with (
        pytest.raises(InvalidInput, match=r"several processes .* Start a single rank"),
        started(scripted(home, "python", "ranks.py")) as ((tenant,), _),
    ):
        tenant.ask("run", start_at=0.0, stop_at=time() + 60)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("python", "-c", "import nothing_like_it"), "No module named 'nothing_like_it'"),
        (("python", "-c", "pass"), "printed nothing. No Python of it imported torch"),
        pytest.param(
            ("python", "-c", "import torch"),
            "nothing. Steps are found where an optimizer of torch steps",
            marks=pytest.mark.exhaustive,
        ),
        (("sh", "-c", "echo so; kill -9 $$"), "was killed by SIGKILL; it said: so"),
        (("python", "-c", "raise SystemExit('CUDA out of memory')"), "CUDA out of memory"),
    ],
)
def test_a_script_that_never_steps_ends_with_a_sentence(home, words, said):
    with started(scripted(home, *words)) as ((tenant,), (loaded,)):
        assert isinstance(loaded, Ended)
        assert said in loaded.detail
        assert "\n" not in loaded.detail
        assert tenant.ask("run", start_at=0.0, stop_at=0.0) == loaded


def test_a_script_whose_torch_is_too_old_to_be_seen_to_step_is_told_so_at_once(home):
    (home / "torch.py").write_text("")
    (home / "old.py").write_text(f"import time, torch\ntime.sleep({2 * PATIENCE_S})\n")
    with started(scripted(home, "python", "old.py")) as (_, (loaded,)):
        assert loaded.outcome == "died"
        assert "The hook could not be set: " in loaded.detail
        assert "another Python or torch" in loaded.detail


def test_a_script_that_takes_too_long_to_its_first_step_is_ended(home):
    setup = TenantSetup("cpu", CORES, {}, scripted(home, "sleep", 600).script)
    with tenants_on([setup], home) as (tenant,):
        ended = tenant.ask("load", timeout_s=0.5, workload=scripted(home, "sleep", 600))
        assert "took no step within 0 s" in ended.detail
        assert not session_members(tenant.pid)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("no-such-program",), "no such program"),
        (("./missing",), "no such"),
        (("train.py", "--lr"), "Start it as you do: -- python train.py"),
        (("a.ipynb",), "jupyter nbconvert --to script a.ipynb"),
        (("python3.11", "train.py"), "train.py: no such file in .*home"),
    ],
)
def test_what_cannot_be_started_is_refused(home, words, said):
    with pytest.raises(InvalidInput, match=said), started(scripted(home, *words)):
        pass


LEAVES = """
import os, subprocess, sys, time
subprocess.Popen(["sleep", "600"], start_new_session=True)
if os.fork() == 0:
    os.setsid()
    time.sleep(600)
"""


def test_what_a_script_leaves_in_sessions_of_its_own_ends_with_it(home):
    (workload,) = [scripted(home, "python", "-c", LEAVES)]
    with started(workload) as ((tenant,), (ended,)):
        assert isinstance(ended, Ended)
        folder = tenant._folder
        assert len(scripts_within(folder)) == 2
    assert scripts_within(folder) == ()


def test_a_log_takes_no_more_room_than_its_last_lines_need(home, monkeypatch):
    monkeypatch.setattr(started_script, "_LOG_BYTES", 1000)
    monkeypatch.setattr(started_script, "_LOOK_S", 0.01)
    loud = "import time\nfor n in range(10**6): print('x' * 500, flush=True); time.sleep(0.001)"
    setup = TenantSetup("cpu", CORES, {}, scripted(home, "python", "-c", loud).script)
    with TemporaryDirectory() as folder:
        script = started_script.StartedScript(setup.script, setup, Path(folder, "s"), {})
        sizes = iter(lambda: script.log.stat().st_size, None)
        until(lambda: next(sizes) > 1000)
        until(lambda: next(sizes) < 1000)
        assert script.telling_line().startswith("xxx") or next(sizes) == 0
        script.end_by(0.0)


def test_a_folder_that_is_gone_is_refused(home):
    workload = scripted(home / "gone", "python")
    with pytest.raises(InvalidInput, match="no such folder"), started(workload):
        pass


def test_without_room_for_a_copy_of_its_folder_it_says_where_to_make_some(home, monkeypatch):
    def full(_original, _base):
        raise OSError(ENOSPC, "No space left on device", str(home / "train.py"))

    monkeypatch.setattr(started_script, "made_beside", full)
    with (
        pytest.raises(AdvisorError, match=r"no room for a copy of .*home. Set TMPDIR"),
        started(scripted(home, "python")),
    ):
        pass
