"""``advisor run``, ``status``, ``stop`` and ``restore``, on a machine without a GPU."""

import json
import sys

import pytest

from advisor.errors import GpuUnavailable
from advisor.measure.execution.run_folder import run_folders
from tests.cli.test_export_command import BOTH, exported

__all__ = ["exported"]


@pytest.fixture(autouse=True)
def own_state(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def no_gpu(monkeypatch):
    """As on a machine without one."""

    def none_at_hand(*_asked, **_how):
        raise GpuUnavailable("there is none")

    monkeypatch.setattr("advisor.validate.execute.device_at_hand", none_at_hand)


@pytest.fixture
def scripts(advisor, tmp_path):
    """A plan of two scripts of the user's, exported."""
    (tmp_path / "train.py").write_text("import sys\nprint(sys.argv[1])\n")
    entry = '[[job]]\nprofile = "{}"\ncommand = ["{}", "train.py", "{}"]\nfolder = "."\n'
    text = "".join(entry.format(name, sys.executable, name) for name in BOTH)
    (tmp_path / "jobs.toml").write_text(text)
    words = ("--sharing", "naive", "--format", "json", "--out", tmp_path / "plan.json")
    assert advisor("export", "--jobs", tmp_path / "jobs.toml", *words).code == 0
    return tmp_path / "plan.json"


def test_a_plan_says_what_it_would_start_and_starts_nothing(advisor, exported):
    said = advisor("run", exported("mps=43,57"))
    assert said.code == 0
    for words in (
        "nvidia-cuda-mps-control -f",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=43",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=57",
        "Nothing was started: add --apply.",
    ):
        assert words in said.out
    assert run_folders() == ()


def test_a_plan_on_mig_says_where_each_job_would_be_and_that_this_has_not_run(advisor, exported):
    said = advisor("run", exported("mig=3g.71gb,4g.71gb"))
    assert said.code == 0
    assert "CUDA_VISIBLE_DEVICES=UUID of 3g.71gb@4" in said.out
    assert "Untested on MIG hardware" in said.out
    mixed = advisor("run", exported("mig=7g.141gb[1];naive[2]"))
    assert mixed.code == 2
    assert "MIG mode is never switched here" in mixed.err


def test_the_plan_of_a_rank_that_was_recommended_is_run(advisor, tmp_path):
    advice = advisor("recommend", *BOTH, "--json").out
    (tmp_path / "advice.json").write_text(advice)
    plans = json.loads(advice)["plans"]
    rank = next(plan["rank"] for plan in plans if plan["sharing"] == "mps")
    said = advisor("run", tmp_path / "advice.json", "--rank", rank)
    assert said.code == 0
    assert "CUDA_MPS_PIPE_DIRECTORY" in said.out
    assert advisor("run", tmp_path / "advice.json", "--rank", 999).code == 2


def test_an_exported_plan_is_the_only_one_in_its_file(advisor, exported):
    path = exported("mps=43,57")
    said = advisor("run", path, "--rank", 99)
    assert (said.code, said.out) == (2, "")
    assert f"{path}: it has no plan of rank 99" in said.err
    assert "Leave --rank out" in said.err
    assert advisor("run", path, "--rank", 1).code == 0


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize(
    ("cores", "said"),
    [
        ("foo", "write cores as 0-15 or 0,2,4-7"),
        ("", "write cores as 0-15 or 0,2,4-7"),
        ("5-2", "that is no core at all"),
        ("1", "2 cores would be needed for 2 tenants"),
    ],
)
def test_cores_are_checked_where_the_gpu_is_not_at_hand(advisor, exported, cores, said):
    found = advisor("run", exported("naive"), "--cores", cores)
    assert (found.code, found.out) == (2, "")
    assert said in found.err


@pytest.mark.usefixtures("no_gpu")
def test_a_rehearsal_shows_the_cores_asked_for_also_those_of_another_machine(advisor, exported):
    said = advisor("run", exported("naive"), "--cores", "900,902-903")
    assert said.code == 0
    assert [line for line in said.out.splitlines() if "cores:" in line] == [
        "  cores: 900", "  cores: 902",
    ]  # fmt: skip


@pytest.mark.usefixtures("no_gpu")
def test_a_rehearsal_says_under_which_power_cap_the_plan_is(advisor, exported):
    said = advisor("run", exported("naive", "--power-cap", 400))
    assert said.code == 0
    assert "On its GPU this is refused: the plan is under a power cap of 400 W" in said.out
    assert "power cap" not in advisor("run", exported("naive")).out


def test_scripts_run_and_their_run_is_listed_with_its_logs(advisor, scripts):
    said = advisor("run", scripts, "--apply", "--device", "cpu")
    assert (said.code, "done" in said.out) == (0, True)
    assert "nothing of it is kept for `advisor fit`" in said.err
    (run,) = json.loads(advisor("status", "--all", "--json").out)["runs"]
    assert [job["fate"] for job in run["jobs"]] == ["done", "done"]
    (folder,) = run_folders()
    assert [folder.log(n, name).read_text().strip() for n, name in enumerate(BOTH, 1)] == [*BOTH]
    assert "no run is under way" in advisor("status").out
    assert advisor("restore").code == 0


def test_a_job_that_fails_makes_the_command_fail_and_names_its_log(advisor, scripts, tmp_path):
    (tmp_path / "train.py").write_text("raise SystemExit('no such data set')\n")
    said = advisor("run", scripts, "--apply", "--device", "cpu")
    assert said.code == 1
    assert "no such data set" in said.err
    assert ".log" in said.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "name a PLAN, or a run by --resume, and not both"),
        (["--resume", "nobody"], "no run is called 'nobody'"),
        (["nowhere.json"], "No such file"),
    ],
)
def test_what_cannot_be_run_is_refused(advisor, words, said):
    found = advisor("run", *words)
    assert found.code == 2
    assert said in found.err


def test_a_run_that_is_not_there_cannot_be_stopped(advisor):
    said = advisor("stop")
    assert said.code == 2
    assert "no run is under way" in said.err
