"""``advisor profile --from-numbers``, as a user without a GPU at hand asks for it."""

import subprocess
import sys

import pytest

from advisor.measure.solo.from_numbers import run
from advisor.workload.minimal_profile import MinimalProfile, minimal_text
from advisor.workload.store import load_profile, read_profile
from advisor.workload.writing import profile_text, write_whole
from tests import synthetic
from tests.refusals import refused
from tests.waiting import PATIENCE_S

WORDS = (
    "--from-numbers", "--name", "my-job", "--gpu", "a100-40gb", "--batch-size", "64",
    "--step-s", "0.12", "--memory-mib", "5300",
)  # fmt: skip
REST = ("--power-w", "190", "--gpu-utilization", "0.83", "--memory-utilization", "0.41")
KNOWN = MinimalProfile(
    schema=1, workload="my-job", gpu="a100-40gb", batch_size=64, step_s=0.12, memory_mib=5300.0,
    power_w=190.0, gpu_utilization=0.83, memory_utilization=0.41,
)  # fmt: skip


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    return tmp_path / "advisor" / "profiles" / "a100-40gb"


def test_what_is_said_is_what_is_written(tmp_path):
    command = (sys.executable, "-m", "advisor.profiling", *WORDS, *REST, "--out", tmp_path / "out")
    subprocess.run(command, check=True, timeout=PATIENCE_S)
    path = tmp_path / "out" / "my-job.json"
    assert path.read_text() == minimal_text(KNOWN)
    assert read_profile(path) == KNOWN.whole()


def test_without_a_folder_it_goes_where_every_command_finds_it(home):
    assert run([*WORDS, "--examples-per-epoch", "640"]) == 0
    found = load_profile("my-job", "a100-40gb")
    assert (found.power_w, found.busy_share) == (None, None)
    assert found.epoch_s == pytest.approx(1.2)
    assert [path.name for path in home.iterdir()] == ["my-job.json"]


def test_it_may_be_corrected(home):
    run(WORDS)
    run([*WORDS, "--step-s", "0.2"])
    assert read_profile(home / "my-job.json").step_s == 0.2


def test_a_profile_that_says_more_is_not_overwritten(home, tmp_path, capsys):
    whole = profile_text(synthetic.profile())
    for folder, words in ((home, ()), (tmp_path / "out", ("--out", tmp_path / "out"))):
        write_whole(folder / "my-job.json", whole)
        code, said = refused(run, [*WORDS, *words], capsys)
        assert code == 2
        assert "says more than these numbers. Choose another --name" in said
        assert (folder / "my-job.json").read_text() == whole


def test_nor_is_a_shipped_one_hidden_by_it(home, capsys):
    name = "resnet50-imagenet64-bs128"
    code, said = refused(run, [*WORDS, "--gpu", "h200-141gb", "--name", name], capsys)
    assert (code, home.parent.exists()) == (2, False)
    assert f"the shipped profiles, h200-141gb/{name}.json" in said


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (["--gpu-utilization", "83"], "83 % is 0.83"),
        (["--step-s", "120"], "120 ms are 0.12 s"),
        (["--step-s", "nan"], "step_s must be finite"),
        (["--memory-mib", "-5300"], "memory_mib must be above 0"),
        (["--memory-mib", "53000"], "a100-40gb has 40,960: no job held that there"),
        (["--gpu", "a1000"], "no GPU is called 'a1000'"),
        (["--name", "my/job"], "names no workload"),
        (["--batch-size", "many"], "invalid int value"),
        (["--seconds", "3"], "unrecognized arguments"),
        (["resnet50-imagenet64-bs128"], "unrecognized arguments"),
    ],
)
def test_numbers_that_cannot_be_are_refused_and_nothing_is_written(changes, said, home, capsys):
    code, words = refused(run, [*WORDS, *changes], capsys)
    assert (code, home.exists()) == (2, False)
    assert said in words


def test_a_number_that_every_answer_needs_must_be_said(capsys):
    code, said = refused(run, WORDS[:-2], capsys)
    assert code == 2
    assert "the following arguments are required: --memory-mib" in said


def test_the_gpu_of_the_environment_is_meant_where_none_is_named(home, monkeypatch):
    monkeypatch.setenv("ADVISOR_GPU", "a100-40gb")
    at = WORDS.index("--gpu")
    assert run([*WORDS[:at], *WORDS[at + 2 :]]) == 0
    assert (home / "my-job.json").exists()


def test_help_shows_the_file_that_can_be_written_by_hand(capsys):
    with pytest.raises(SystemExit) as end:
        run(["--from-numbers", "--help"])
    assert end.value.code == 0
    assert '"gpu_utilization"' in " ".join(capsys.readouterr().out.split())


def test_more_power_than_the_card_draws_is_refused(home, capsys):
    code, said = refused(run, [*WORDS, "--power-w", "900"], capsys)
    assert code == 2
    assert "power_w is 900, and an a100-40gb draws at most 400 W" in said
    assert not home.exists()


def test_less_power_than_the_card_draws_at_idle_is_refused(home, capsys):
    code, said = refused(run, [*WORDS, "--power-w", "10"], capsys)
    assert code == 2
    assert "power_w is 10, and an a100-40gb draws more than 20 W at idle" in said
    assert not home.exists()
    assert run([*WORDS, "--power-w", "40"]) == 0
