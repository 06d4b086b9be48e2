"""Exported scripts of plans on MIG, run by bash, that fail or are ended at any call they make."""

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from advisor.launch.commands import commands_at_once, side_by_side
from advisor.launch.exports import EXPORTS
from advisor.launch.shell import undo_script
from tests.handed import JOBS, handed
from tests.launch.golden_exports import written
from tests.launch.smi_stand_in import SmiMachine
from tests.waiting import PATIENCE_S

DIVIDED = handed("mig=4g.71gb/ci=2c[1]+2c[2]/mps+3g.71gb[3]", JOBS)
# Somebody else's, beside it or not.
THERE = (15, 6)
WHOLE = handed("mig=4g.71gb[1]+1g.18gb[2,3]/mps=60,80", JOBS)

_JOB = """\
#!/bin/bash
echo "${0##*/} $CUDA_VISIBLE_DEVICES" >> seen
[ -z "${ENDLESS-}" ] || exec sleep 600
"""


@pytest.fixture
def machine(tmp_path, monkeypatch):
    machine = SmiMachine()
    texts = {
        "sudo": '#!/bin/bash\nexec "$@"\n',
        "mktemp": f'#!/bin/bash\nexec /usr/bin/mktemp -d "{tmp_path}/pipes ${{2##*/}}"\n',
        "sleep": '#!/bin/bash\n[ "$1" != 600 ] || exec /usr/bin/sleep 600\n',
        **{f"{job.name}.sh": _JOB for job in JOBS},
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    server = machine.install(tmp_path)
    yield machine
    server.shutdown()
    server.server_close()


def begun(machine, plan, **variables):
    Path("plan.sh").write_text(EXPORTS["commands"](plan))
    # A shell cannot trap what its caller ignores, and who runs tests in the background does.
    heeding = ["env", "--default-signal=INT", "bash", "plan.sh"]
    running = subprocess.Popen(
        heeding, env=os.environ | variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, start_new_session=True,
    )  # fmt: skip
    machine.script = running.pid
    return running


def ended(machine, plan):
    """The exit code and stderr of a run; once the jobs of one before have ended."""
    while True:
        running = begun(machine, plan)
        _, said = running.communicate(timeout=PATIENCE_S)
        if "that was killed go on" not in said:
            return running.returncode, said


def seen():
    return sorted(Path("seen").read_text().split("\n")[:-1]) if Path("seen").exists() else []


def devices():
    return {line.split()[0]: line.split()[1] for line in seen()}


def test_each_job_sees_its_own_device_and_nothing_is_left(machine):
    machine.put(*THERE)
    before = machine.layout()
    assert ended(machine, handed("mig=4g.71gb@0/ci=2c[1]+2c[2]/mps+2g.35gb@4[3]", JOBS)) == (0, "")
    assert len(set(devices().values())) == 3
    assert machine.layout() == before
    assert machine.daemons == {}


def test_jobs_on_instances_are_no_clients_of_the_callers_mps(machine):
    for job in JOBS[:2]:
        Path(f"{job.name}.sh").write_text("#!/bin/bash\nset | grep ^CUDA_MPS_ >> seen\n")
    theirs = {"CUDA_MPS_PIPE_DIRECTORY": "/theirs", "CUDA_MPS_CLIENT_PRIORITY": "1"}
    begun(machine, handed("mig=4g.71gb[1]+3g.71gb[2]"), **theirs).communicate(timeout=PATIENCE_S)
    assert ["/pipes " in line for line in seen()] == [True, True]


def test_instances_that_the_caller_names_are_used_as_they_are_without_root(machine):
    machine.put(5, 0)
    machine.put(9, 4)
    Path("sudo").write_text("#!/bin/bash\nexit 1\n")
    plan = handed("mig=4g.71gb[1]+3g.71gb[2];mig=4g.71gb[3]", JOBS)
    named = {"MIG_1": "MIG-1-0", "MIG_2": "MIG-2-0", "MIG_3": "MIG-1-0"}
    running = begun(machine, plan, **named)
    running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 0
    assert machine.changes == []
    assert sorted(devices().values()) == ["MIG-1-0", "MIG-1-0", "MIG-2-0"]


def test_it_can_be_run_twice(machine):
    for _ in range(2):
        assert ended(machine, DIVIDED) == (0, "")
    assert len(seen()) == 6
    assert machine.layout() == []


def test_each_group_has_instances_of_its_own_and_mig_mode_is_as_before(machine):
    plan = handed("mig=4g.71gb[1]+3g.71gb[2];mig=7g.141gb[3];serial[4]", (*JOBS, JOBS[0]))
    assert ended(machine, plan) == (0, "")
    assert len(seen()) == 4
    assert machine.layout() == []
    assert machine.mode == ["Enabled", "Enabled"]


@pytest.mark.parametrize("mode", [("Disabled", "Disabled"), ("Enabled", "Disabled"),
                                  ("Disabled", "Enabled"), ("[N/A]", "[N/A]")])  # fmt: skip
def test_mig_mode_must_be_on_and_stay_on_and_is_not_switched(machine, mode):
    machine.mode = list(mode)
    code, said = ended(machine, DIVIDED)
    assert code == 1
    assert f"{', '.join(mode)}. It must be Enabled" in said
    assert "sudo nvidia-smi -i 0 -mig 1" in said
    assert not seen()
    assert not [call for call in machine.calls if "-mig" in call.split()]


def test_an_instance_of_somebody_else_in_its_place_is_let_be(machine):
    machine.put(5, 0)
    before = machine.layout()
    code, said = ended(machine, DIVIDED)
    assert code == 1
    assert "5:0 is there already, somebody else's" in said
    assert machine.layout() == before
    machine.held.clear()
    machine.put(0, 0)
    code, said = ended(machine, DIVIDED)
    assert code != 0
    assert len(machine.layout()) == 1
    assert not seen()


def test_a_second_run_meanwhile_is_refused_and_harms_nothing(machine):
    first = begun(machine, DIVIDED, ENDLESS="yes")
    try:
        while len(seen()) < 3:
            assert first.poll() is None
        layout = machine.layout()
        second = begun(machine, DIVIDED)
        assert "another script runs" in second.communicate(timeout=PATIENCE_S)[1]
        assert second.returncode == 1
        assert machine.layout() == layout
    finally:
        os.killpg(first.pid, signal.SIGINT)
    first.communicate(timeout=PATIENCE_S)
    assert first.returncode == 130
    assert not machine.quit_too_early
    assert machine.layout() == []
    assert machine.daemons == {}


SEVERAL = {
    0: (handed("mps=43,57", JOBS[:2], cap_w=350.0), (2, 5)),
    1: (handed("mig=4g.71gb[1]+3g.71gb[2,3]/mps", JOBS), (1, 4, 6)),
    3: (handed("naive", JOBS[:1]), (3,)),
}


def on_several(machine):
    """What bash says of plans for three GPUs of a host, of which the second is in MIG mode."""
    machine.index = 1
    plans, jobs = ({at: pair[which] for at, pair in SEVERAL.items()} for which in (0, 1))
    text = "\n".join(commands_at_once(side_by_side(plans, jobs)))
    return subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=False)


def test_on_several_gpus_each_job_sees_its_own_and_all_are_waited_for(machine):
    done = on_several(machine)
    assert (done.returncode, done.stderr) == (0, "")
    # To clients of a daemon that sees GPU 0 alone, and to others of GPU 3, by its number.
    saw = Counter(line.split()[1] for line in seen())
    assert sorted(saw.values()) == [1, 1, 2, 2]
    assert (saw["0"], saw["3"]) == (2, 1)
    assert sorted(call for call in machine.calls if "power" in call) == [
        "-i 0 --power-limit=350", "-i 0 --power-limit=500.00",
        "-i 0 --query-gpu=power.limit --format=csv,noheader,nounits",
    ]  # fmt: skip
    assert not [each for each in Path().iterdir() if each.name.startswith("pipes")]
    assert machine.layout() == []
    assert machine.daemons == {}


def test_a_gpu_that_is_not_in_mig_mode_stops_alone(machine):
    machine.mode = ["Disabled", "Disabled"]
    done = on_several(machine)
    assert "GPU 1: MIG mode" in done.stderr
    assert done.returncode == 1
    assert len(seen()) == 3
    assert machine.daemons == {}


def every_call(machine, plan, chosen):
    assert ended(machine, plan) == (0, "")
    calls = len(machine.calls)
    numbers = machine.changes if chosen == "changes" else range(calls)
    Path("seen").unlink()
    return list(numbers)


CHOSEN = ["changes", pytest.param("all", marks=pytest.mark.exhaustive)]


@pytest.mark.parametrize("chosen", CHOSEN)
@pytest.mark.parametrize("how", ["fails", "worked", "int"])
def test_whatever_call_fails_or_is_interrupted_nothing_is_left(machine, how, chosen):
    for at in every_call(machine, DIVIDED, chosen):
        machine.calls.clear()
        machine.fault = (at, how)
        code, said = ended(machine, DIVIDED)
        assert machine.layout() == [], (at, said)
        assert machine.daemons == {}, (at, said)
        if how == "int":
            # The first call is before the traps: there the signal itself ends the shell.
            assert code == (-signal.SIGINT if at == 0 else 130), (at, said)


@pytest.mark.parametrize("chosen", CHOSEN)
def test_what_a_killed_run_left_is_removed_by_the_next(machine, chosen):
    left = 0
    for at in every_call(machine, DIVIDED, chosen):
        machine.calls.clear()
        machine.fault = (at, "kill")
        running = begun(machine, DIVIDED)
        running.communicate(timeout=PATIENCE_S)
        assert running.returncode == -signal.SIGKILL
        left += bool(machine.layout() or machine.daemons)
        machine.fault = None
        assert ended(machine, DIVIDED) == (0, ""), at
        assert machine.layout() == []
        assert machine.daemons == {}
    assert left > 3


def test_shellcheck_finds_nothing(tmp_path):
    scripts = {name: text for name, text in written().items() if name.endswith(".sh")}
    for name, text in (scripts | {"undo.sh": "#!/bin/bash\n" + undo_script()}).items():
        (tmp_path / name).write_text(text)
    # SC2034: the number of a job of Slurm is there for whoever adds another that waits for it.
    # SC2120, SC2317, SC2329: functions that not every plan calls, or not with words.
    words = [Path(sys.executable).parent / "shellcheck", "-e", "SC2034,SC2120,SC2317,SC2329"]
    words += ["-S", "warning", *tmp_path.glob("*.sh")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_every_script_stops_at_its_first_failure():
    for form in ("commands", "mps", "slurm"):
        assert re.search("^set -euo pipefail$", EXPORTS[form](WHOLE), re.MULTILINE)
