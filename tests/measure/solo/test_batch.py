"""``python -m advisor.profiling`` as a user starts it, on a CPU."""

import os
import signal
import subprocess
import sys
from tempfile import TemporaryDirectory

import pytest
from PIL import Image

from advisor.measure.solo.profile_command import run
from advisor.workload.store import read_profile
from tests.measure.shared.real_command import HIDE
from tests.refusals import refused
from tests.waiting import PATIENCE_S

QUICK = ("--device", "cpu", "--no-probe")


@pytest.fixture
def temporary():
    """A folder whose path is short enough for sockets; empty again when the command has ended."""
    with TemporaryDirectory(dir="/tmp") as folder:
        yield folder
        assert os.listdir(folder) == []  # noqa: PTH208


def start(out, temporary, *words, **environment):
    return subprocess.Popen(
        [sys.executable, "-m", "advisor.profiling", *words, *(("--out", out) if out else ())],
        env=os.environ | {"TMPDIR": temporary} | environment,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(out, temporary, *words, **environment):
    process = start(out, temporary, *words, **environment)
    said = process.communicate(timeout=PATIENCE_S)[1]
    return process.returncode, said


def assert_times_are_told(profile):
    took = profile.took
    assert took.windows_s >= sum(window.seconds for window in profile.windows)
    assert took.settle_s > 0
    assert (took.trace_s, took.mps_s, took.limits_s) == (None,) * 3


def test_a_batch_with_wrong_names_profiles_the_others_where_only_torch_and_timm_are_installed(
    tmp_path, temporary
):
    (tmp_path / "sitecustomize.py").write_text(HIDE)
    out = tmp_path / "profiles"
    words = ("mlp-toy-bs32", "resnet999-cifar10-bs32", "--timm", "resnet51")
    shape = ("--resolution", "32", "--classes", "10", "--batch", "2")
    path = {"PYTHONPATH": str(tmp_path)}
    code, said = finish(out, temporary, *words, *shape, *QUICK, **path)
    assert code == 1
    assert "2 of 3 failed:" in said
    assert "resnet50-cifar10-bs32" in said, "names the near ones"
    assert "resnet51-32px-10c-bs2: no timm model is called 'resnet51'" in said
    assert [each.name for each in out.iterdir()] == ["mlp-toy-bs32.json"]

    profile = read_profile(out / "mlp-toy-bs32.json")
    assert (profile.name, profile.gpu) == ("mlp-toy-bs32", "cpu")
    assert len(profile.windows) in (5, 10, 15), "more where they disagree"
    assert profile.memory.allocated_mib > 0
    assert profile.host_cpu_share is not None
    assert 0 < profile.host_cpu_share < 1.5
    assert len(profile.cores) == 1
    assert (profile.host_s, profile.gpu_s, profile.trace, profile.mps) == (None,) * 4
    assert (profile.power_w, profile.energy_j, profile.counters) == (None,) * 3
    assert_times_are_told(profile)
    assert profile.provenance.command.startswith("python -m advisor.profiling mlp-toy-bs32")

    again_code, again = finish(out, temporary, "mlp-toy-bs32", "--skip-existing", *QUICK)
    assert (again_code, again) == (0, "")


@pytest.mark.exhaustive
def test_a_workload_is_profiled_on_images_from_a_folder(tmp_path, temporary):
    for name in ("cats", "dogs"):
        (tmp_path / "images" / name).mkdir(parents=True)
        for number in range(3):
            Image.new("RGB", (40, 40)).save(tmp_path / "images" / name / f"{number}.jpg")
    out, words = tmp_path / "profiles", ("--data", str(tmp_path / "images"))
    code, said = finish(out, temporary, "cnn-cifar10-bs4-loader1", *words, *QUICK)
    assert code == 0, said
    workload = read_profile(out / "cnn-cifar10-bs4-loader1-files.json").workload
    assert (workload.data, workload.steps_per_epoch) == (str(tmp_path / "images"), 2)

    code, said = finish(out, temporary, "cnn-cifar10-bs4", *words, *QUICK)
    assert code == 2
    assert "Say -loader4 at the end of its name" in said


@pytest.mark.exhaustive
def test_a_profile_goes_to_the_users_own_folder_unless_told_otherwise(tmp_path, temporary):
    words = ("cnn-cifar10-bs2", *QUICK)
    assert finish(None, temporary, *words, XDG_DATA_HOME=str(tmp_path))[0] == 0
    written = tmp_path / "advisor" / "profiles" / "cpu" / "cnn-cifar10-bs2.json"
    assert read_profile(written).name == "cnn-cifar10-bs2"


@pytest.mark.parametrize(
    "how", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.exhaustive)]
)
def test_an_interrupted_batch_leaves_neither_half_a_profile_nor_anything_else(
    how, tmp_path, temporary
):
    process = start(tmp_path / "out", temporary, "mlp-toy-bs32", *QUICK)
    assert process.stderr is not None
    assert process.stderr.readline() == "1/1 mlp-toy-bs32\n"
    process.send_signal(how)
    said = process.communicate(timeout=PATIENCE_S)[1]
    assert process.returncode == 130
    assert "interrupted" in said
    assert not (tmp_path / "out").exists()


def test_a_batch_that_would_pass_the_deadline_is_not_begun(tmp_path, temporary):
    code, said = finish(tmp_path, temporary, "mlp-toy-bs32", "--deadline", "1", *QUICK)
    assert code == 0
    assert "1 left at the deadline; --skip-existing does them" in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "name a workload"),
        (("mlp-toy-bs2", "--batch", "4"), "--batch describes a model of timm"),
        (("--timm", "resnet18"), "also needs --resolution and --classes and --batch"),
        (("mlp-toy-bs2", "--gpu", "h200-141gb"), "this device is cpu"),
        (("mlp-toy-bs2", "--gpu", "h201"), "no GPU is called 'h201'"),
        (("mlp-toy-bs2", "--deadline", "-1"), "not above 0"),
        (("mlp-toy-bs2", "--cores", "4096"), "core 4096 is not ours to use"),
        (("--timm", "resnet18", "--resolution", "0", "--classes", "2", "--batch", "2"), "at least"),
    ],
)
def test_wrong_use_exits_with_2_and_says_what_to_do(words, says, tmp_path, capsys):
    code, said = refused(run, [*words, *QUICK, "--out", tmp_path], capsys)
    assert code == 2
    assert says in said
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_nobody_knows_ends_the_command_with_2_and_near_ones(tmp_path, temporary):
    code, said = finish(tmp_path, temporary, "mlp-toy-bs0", *QUICK)
    assert code == 2
    assert "no workload is called 'mlp-toy-bs0'. Near: mlp-toy-bs" in said
    assert list(tmp_path.iterdir()) == []


def test_whoever_only_watches_does_not_load_torch():
    code = "import sys, advisor.measure.solo.profile_command; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("words", "right"),
    [
        (("python", "train.py", "--lr", "0.1"), "-- python train.py --lr 0.1"),
        (("train.py",), "-- python train.py"),
        (("/opt/env/bin/python3.11", "-m", "train"), "-- /opt/env/bin/python3.11 -m train"),
    ],
)
def test_a_command_without_dashes_before_it_is_told_where_they_go(words, right, capsys):
    code, said = refused(run, ["--device", "cpu", *words], capsys)
    assert code == 2
    assert f"put -- before a command of your own: `advisor profile --device cpu {right}`" in said


def test_wrong_names_alone_are_listed_once(capsys):
    code, said = refused(run, ["mlp-toy", "resnet999", *QUICK], capsys)
    assert (code, said.count("mlp-toy failed"), said.count("resnet999")) == (1, 1, 2)
    assert said.endswith("2 of 2 failed\n")
