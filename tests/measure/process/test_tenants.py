"""Tenants on the CPU: workloads of the zoo, scripts of users, programs that print their pace."""

import json
import os
import sys
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from time import time

import pytest

from advisor.errors import AdvisorError, InvalidInput
from advisor.measure import tenant
from advisor.measure.bench import Crew, ask_all, tenants_on
from advisor.measure.process import error_line, scripts_within, session_members, supervise
from advisor.measure.script import without_mps
from advisor.measure.tenant import Ended, TenantSetup, server_of, setup_of
from advisor.workload.catalogue import workload
from advisor.workload.spec import Script, Workload
from tests.lean import LEAN, LEAN_PATH
from tests.measure.process import scripts
from tests.waiting import PATIENCE_S, until

CORES = sorted(os.sched_getaffinity(0))
ODD = "tests.measure.process.odd_verbs:ODD_VERBS"
SETUP = server_of(ODD, "cpu", {})


@pytest.fixture
def sat(workers_folder, monkeypatch):
    """Starts tenants that do what real ones do only on a bad day."""
    monkeypatch.setenv("PYTHONPATH", LEAN_PATH)

    def sit(*setups):
        return tenants_on(setups, Path(workers_folder))

    return sit


def test_programs_have_as_many_threads_as_their_author_lets_them_have(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("PYTHONPATH", LEAN_PATH)
    entry = "tests.measure.process.odd_verbs:note_variables"
    assert supervise(entry, str(tmp_path / "seen")) == 0
    assert json.loads((tmp_path / "seen").read_text())["OMP_NUM_THREADS"] == "3"


def test_what_the_caller_set_for_mps_reaches_no_tenant():
    assert without_mps({"CUDA_MPS_PIPE_DIRECTORY": "/x", "HOME": "/h"}) == {"HOME": "/h"}


ENDS = (
    ("exhaust", "out-of-memory", "Tried to allocate 2.00 GiB."),
    ("kill", "failed", "was killed by SIGKILL"),
    ("sleep", "failed", "took no step"),
)


def test_however_a_tenant_ends_it_is_an_outcome_and_none_outlives_its_block(sat):
    limit = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "43"}
    pids = []

    def fail():
        with sat(server_of(ODD, "cpu", limit), *[SETUP] * len(ENDS)) as (other, *tenants):
            place = other.ask("place")
            assert (place["cores"], place["mps"], place["threads"]) == (CORES, limit, 1)
            assert tenants[0].ask("place")["mps"] == {}
            for tenant, (verb, outcome, said) in zip(tenants, ENDS, strict=True):
                pids.append(tenant.pid)
                ended = tenant.ask(verb, timeout_s=0.2 if verb == "sleep" else PATIENCE_S)
                assert isinstance(ended, Ended), verb
                assert (ended.outcome, said in ended.detail) == (outcome, True), ended
                assert "\n" not in ended.detail
                assert tenant.ask("echo", word="still?") == ended
            with pytest.raises(InvalidInput, match="resnet50"):
                other.ask("refuse")
            with pytest.raises(AdvisorError, match="cannot be"):
                other.ask("fail")
            pids.append(other.pid)
            other.send("sleep")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert len(pids) == len(ENDS) + 1
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


@pytest.mark.exhaustive
def test_a_tenant_that_waited_with_torch_imported_trains_from_one_moment_to_another(workers_folder):
    setup = setup_of(workload("mlp-toy-bs32"), "cpu", {})
    with closing(Crew("cpu", Path(workers_folder))) as crew:
        crew.prepare(1)
        with tenants_on([setup], Path(workers_folder), crew.take) as (tenant,):
            pid = tenant.pid
            assert pid > 0, "it was started before"
            loaded = tenant.ask("load", PATIENCE_S)
            assert (loaded["device"], loaded["sms"]) == ("cpu", None)
            assert tenant.pid == pid
            start_at = time() + 0.05
            stop_at = start_at + 0.1
            ends = tenant.ask("run", start_at=start_at, stop_at=stop_at)["completed_at"]
            assert time() >= stop_at
            assert ends == sorted(ends)
            assert ends[0] > start_at
            assert all(end < stop_at for end in ends[:-1]), "no step begins after it"
            assert len(tenant.ask("run", start_at=0.0, stop_at=0.0)["completed_at"]) == 1


@pytest.fixture
def home(tmp_path):
    """A user's folder with scripts, what they read, and what they must not change."""
    folder = scripts.write(tmp_path / "near" / "home")
    (folder.parent / "around.txt").write_text("near\n")
    (folder / "settings.txt").write_text("as it was\n")
    (folder / "big.bin").write_bytes(b"0" * 2_000_000)
    (folder / "sitecustomize.py").write_text(
        "import os, pathlib\npathlib.Path(os.environ['COUNT'] + '.own').touch()\n"
        f"if 'WHOLE' not in os.environ: exec({LEAN.read_text()!r})\n"
    )
    return folder


# A script that uses more of torch than plain training does.
WHOLE = {"WHOLE": "yes"}


def steps_file(home):
    """Return the file in which a script counts, far from its folder, where nothing stays."""
    return home.parents[1] / "steps.txt"


def scripted(home, *command, **environment):
    environment |= {"COUNT": str(steps_file(home)), "PYTHONPATH": str(home)}
    script = Script(command=tuple(map(str, command)), folder=str(home), environment=environment)
    return Workload(name="it", source="script", model="it", family="it", batch=1, script=script)


@contextmanager
def started(*workloads):
    """Tenants that were asked to load these workloads, and what they answered."""
    setups = [setup_of(each, "cpu", {}) for each in workloads]
    with TemporaryDirectory() as folder, tenants_on(setups, Path(folder)) as found:
        yield found, ask_all(found, "load", PATIENCE_S, warm_steps=2)


def counted(home):
    """The script's own count of its steps, which another thread of it may be writing."""
    text = ""
    while not text:
        text = steps_file(home).read_text()
    return int(text)


def took(tenant, home, steps):
    """How many steps the script counted while it was asked for so many."""
    before = counted(home)
    answer = tenant.ask("run_steps", start_at=time(), steps=steps)
    assert len(answer["completed_at"]) == steps
    return counted(home) - before


def test_a_plain_script_is_trained_as_asked_and_finds_and_leaves_its_files_as_they_were(home):
    script = scripted(home, "python", "plain.py", 30, SEED="7", **WHOLE)
    with started(script) as ((tenant,), (loaded,)):
        assert loaded["found"] == {
            "batch": 30,
            "steps_per_epoch": 4,
            "loader_workers": 1,
            "precision": "default",
            "execution": "eager",
            "other_epochs": [],
        }
        assert tenant.versions["torch"]
        assert took(tenant, home, 9) == 9  # beyond the end of two passes
        assert steps_file(home).with_suffix(".txt.own").exists(), "the user's own sitecustomize ran"
        began = time()
        ran = tenant.ask(
            "run", start_at=began, stop_at=began + 0.3, checks_at=[began, began + 0.1], pieces=2
        )
        assert ran["cpu_s"] > 0
        assert min(check_s for _, check_s, _ in ran["checks"]) > 0
        epochs = len(ran["completed_at"]) // 4
        assert sum(passes for _, passes, *_ in ran["between"]) >= epochs - 1
        assert sum(each[-1] > 0 for each in ran["between"]) >= epochs - 1, "it validates"
        issued = tenant.ask("issue", seconds=0.05)
        assert len(issued["phases_s"]) == 3  # to the loss, backward, update
        assert all(seconds > 0 for seconds in issued["phases_s"])
        assert tenant.ask("check_host")["check_s"] > 0
        pid = tenant.pid
    assert not session_members(pid)
    assert (home / "settings.txt").read_text() == "as it was\n"
    assert (home / "big.bin").read_bytes() == b"0" * 2_000_000
    assert not (home / "model.pt").exists()


def rarely(*case):
    return pytest.param(*case, marks=pytest.mark.exhaustive)


@pytest.mark.parametrize(
    ("words", "steps", "off"),
    [
        (("python", "scaled.py"), 7, 1),  # some count before or after we do
        rarely(("python", "by_hand.py"), 20, 1),
        rarely(("python", "by_itself.py"), 7, 1),
        rarely(("python", "two_networks.py"), 7, 1),
        rarely(("python", "functional.py"), 20, 1),
        rarely(("bash", "run.sh"), 20, 1),  # a launcher that replaces the Python path
        rarely(("python", "folds.py"), 100, 0),
        rarely(("python", "stages.py"), 100, 0),
        rarely(("python", "spawning.py"), 20, 0),
    ],
)
def test_a_step_is_what_the_script_itself_would_call_one(home, words, steps, off):
    more = WHOLE if "functional.py" in words else {}
    with started(scripted(home, *words, **more)) as ((tenant,), (loaded,)):
        assert isinstance(loaded, dict), loaded
        assert (loaded["found"]["precision"] == "amp") == ("scaled.py" in words)
        assert loaded["found"]["steps_per_epoch"] == (24 if "folds.py" in words else None)
        assert abs(took(tenant, home, steps) - steps) <= off


@pytest.mark.exhaustive
def test_all_passes_of_a_closure_are_in_one_phase_of_the_step_of_its_optimizer(home):
    with started(scripted(home, "python", "closures.py", **WHOLE)) as ((tenant,), (loaded,)):
        assert isinstance(loaded, dict), loaded
        assert abs(took(tenant, home, 20) - 20) <= 1
        assert len(tenant.ask("issue", seconds=0.05)["phases_s"]) == 1
        trace = tenant.folder / "trace.json"
        assert tenant.ask("trace", path=str(trace), round_steps=5, rounds=2)["phases"] == [5, 5]


@pytest.mark.exhaustive
def test_a_program_that_ends_too_early_beside_others_is_to_train_for_longer(home):
    with started(scripted(home, "python", "short.py", "20", "0")) as ((tenant,), (loaded,)):
        assert isinstance(loaded, dict), loaded
        ended = tenant.ask("run", start_at=time(), stop_at=time() + PATIENCE_S)
        assert "for longer" in ended.detail


@pytest.mark.parametrize(
    ("line", "named"),
    [
        (f"PYTHONPATH=. {sys.executable} accumulated.py", "PYTHONPATH=DIR:$PYTHONPATH"),
        rarely(f"{sys.executable} -uI -c 'import time, torch; time.sleep(600)'", "-uI"),
    ],
)
def test_what_keeps_steps_from_being_seen_is_said_at_once(home, line, named):
    with started(scripted(home, "sh", "-c", line)) as ((_,), (ended,)):
        assert isinstance(ended, Ended)
        assert named in ended.detail
        assert f"{PATIENCE_S} s" not in ended.detail


# Each step of its start waits until the test has read the message before.
STARTS = """
import time
from pathlib import Path
def wait_for(name):
    while not Path({folder!r}, name).exists():
        time.sleep(0.02)
print("loading the data", flush=True)
wait_for("imported torch yet")
import torch
weight = torch.ones(1, requires_grad=True)
optimizer = torch.optim.SGD([weight])
wait_for("torch is imported")
weight.sum().backward()
wait_for("runs backward passes")
optimizer.step()
optimizer.step()
time.sleep(3600)
"""
SAID = ("imported torch yet", "torch is imported", "runs backward passes", "trains, and")
WAITS = "import time; print('loading the data', flush=True); time.sleep(3600)"


class SaidError(Exception):
    """The last line that a test waits for was said."""


@pytest.mark.parametrize(
    ("code", "options", "lines"),
    [(STARTS, {}, SAID), (WAITS, {"throughput": "([0-9]+) images"}, ("0 numbers that match",))],
)
def test_what_is_waited_for_is_said_long_before_patience_ends(
    code, options, lines, tmp_path, monkeypatch
):
    left = list(lines)

    def say(text):
        if left[0] in text and "loading the data" in text:
            (tmp_path / left.pop(0)).touch()
        if not left:
            raise SaidError

    monkeypatch.setenv("PYTHONPATH", LEAN_PATH)
    monkeypatch.setattr(tenant, "say", say)
    monkeypatch.setattr(tenant, "_SAY_S", 0.05)
    monkeypatch.setattr(tenant, "_LOOK_S", 0.05)
    code = code.format(folder=str(tmp_path))
    own = tmp_path / "near" / "own"
    own.mkdir(parents=True)
    script = Script(command=("python", "-c", code), folder=str(own), **options)
    setup = TenantSetup("cpu", {}, script)
    with (
        TemporaryDirectory() as folder,
        tenants_on([setup], Path(folder)) as (waiting,),
        pytest.raises(SaidError),
    ):
        waiting.ask("load", PATIENCE_S)


@pytest.mark.exhaustive
def test_a_launcher_of_ranks_may_start_one_and_no_more(home):
    words = ("torchrun", "--standalone", "--nproc_per_node")
    with started(scripted(home, *words, 1, "folds.py")) as ((tenant,), (loaded,)):
        assert isinstance(loaded, dict), loaded
        assert tenant.pid != tenant.running.pid
        assert took(tenant, home, 20) == 20
    assert not session_members(tenant.pid)
    with (
        pytest.raises(InvalidInput, match="--nproc_per_node 1"),
        started(scripted(home, *words, 2, "folds.py")) as ((tenant,), _),
    ):
        tenant.ask("run", start_at=time(), stop_at=time() + PATIENCE_S)


@pytest.mark.exhaustive
def test_of_two_threads_that_train_the_first_is_measured_and_the_other_goes_on(home):
    other = steps_file(home).with_suffix(".txt.other")
    with started(scripted(home, "python", "threads.py")) as ((tenant,), (loaded,)):
        assert isinstance(loaded, dict), loaded
        assert abs(took(tenant, home, 100) - 100) <= 10  # not those of both
        assert isinstance(tenant.ask("issue", seconds=0.05), dict)
        before = int(other.read_text() or 0)
        until(lambda: int(other.read_text() or 0) > before)  # though the first waits


# A colour, its end as tput writes it, and a link.
COLOURED = "\x1b[1;31mError:\x1b(B\x1b[m \x1b]8;;http://a\x1b\\no\x1b]8;;\x07 data"


NEVER_STEP = {
    ("python", "-c", "import nothing_like_it"): "No module named 'nothing_like_it'",
    ("python", "-c", "pass"): "imports torch",
    ("sh", "-c", "echo so; kill -9 $$"): "was killed by SIGKILL and printed: so",
    ("python", "-c", f"raise SystemExit({COLOURED!r})"): "printed: Error: no data",
    ("python", "-c", "input('Sure? ')"): "standard input",
    ("sh", "-c", "nohup sleep 0 &"): "background",
    ("python", "-c", "raise SystemExit('CUDA out of memory')"): "CUDA out of memory",
}


def test_a_script_that_never_steps_ends_with_a_sentence(home):
    with started(*(scripted(home, *words) for words in NEVER_STEP)) as (tenants, answers):
        for tenant, loaded, said in zip(tenants, answers, NEVER_STEP.values(), strict=True):
            assert isinstance(loaded, Ended)
            assert said in loaded.detail
            assert "\n" not in loaded.detail
            assert tenant.ask("run", start_at=0.0, stop_at=0.0) == loaded


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("no-such-program",), "no-such-program"),
        (("train.py", "--lr"), "-- python train.py"),
        (("a.ipynb",), "jupyter nbconvert --to script a.ipynb"),
        (("python3.11", "train.py"), r"train\.py: file not found"),
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
    script = scripted(home, "python", "-c", LEAVES)
    with TemporaryDirectory() as folder:
        with tenants_on([setup_of(script, "cpu", {})], Path(folder)) as (tenant,):
            assert isinstance(tenant.ask("load", PATIENCE_S), Ended)
            assert len(scripts_within(Path(folder))) == 2
        assert scripts_within(Path(folder)) == ()


@contextmanager
def running(tmp_path, *command, **pattern):
    """A program that prints its pace, and runs."""
    pattern = pattern or {"throughput": "rate ([0-9]+)"}
    script = Script(command=command, folder=str(tmp_path), **pattern)
    setup = TenantSetup("cpu", {}, script, batch=4)
    with TemporaryDirectory() as folder, tenants_on([setup], Path(folder)) as (tenant,):
        assert not isinstance(tenant.ask("load", PATIENCE_S), Ended)
        yield tenant


BAR = "import time\nwhile True: time.sleep(0.02); print('\\r\\x1b[1m7/9\\x1b[0m 20ms/step', end='')"


def test_a_bar_that_prints_the_time_of_a_step_is_read_and_not_as_a_rate(tmp_path):
    asked = {"start_at": time(), "stop_at": time() + 0.1}
    by_time = {"seconds_per_step": "(?P<ms>[0-9.]+)ms/step"}
    with running(tmp_path, "python", "-c", BAR, **by_time) as tenant:
        assert len(tenant.ask("run", PATIENCE_S, **asked)["completed_at"]) >= 1
    with (
        running(tmp_path, "python", "-c", BAR, throughput="([0-9.]+)ms/step") as tenant,
        pytest.raises(InvalidInput, match="--seconds-per-step"),
    ):
        tenant.ask("run", PATIENCE_S, **asked)


TORCHRUN = """step 5
[rank0]: Traceback (most recent call last):
[rank0]: ValueError: my data is broken
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
"""
ACCELERATE = """ValueError: my data is broken
subprocess.CalledProcessError: Command '['python', 'a.py']' returned non-zero exit status 1.
"""
CUDA = """RuntimeError: CUDA error: an illegal memory access was encountered
For debugging consider passing CUDA_LAUNCH_BLOCKING=1; kernel errors may come late.
"""


@pytest.mark.parametrize(
    ("printed", "line"),
    [
        (TORCHRUN, "[rank0]: ValueError: my data is broken"),
        (ACCELERATE, "ValueError: my data is broken"),
        (CUDA, "RuntimeError: CUDA error: an illegal memory access was encountered"),
        ("loading\nKilled\n\n", "Killed"),
        ("\r\n\n", ""),
        ("  5%| 1.0it/s\r 10%| 2.0it/s\r", "10%| 2.0it/s"),
    ],
)
def test_the_line_that_says_why_a_program_failed_is_shown(printed, line):
    assert error_line(printed).startswith(line)
