"""``advisor profile --from-numbers``, as a user without a GPU writes it."""

import pytest

from advisor import Advisor
from advisor.cli import main
from advisor.files.writing import record_line
from advisor.workload.minimal_profile import MinimalProfile, minimal_text
from advisor.workload.store import load_profile, read_profile
from tests import synthetic
from tests.refusals import refused

WORDS = [
    "--name",
    "my-job",
    "--gpu",
    "a100-40gb",
    "--batch-size",
    "64",
    "--step-s",
    "0.12",
    "--memory-mib",
    "5300",
]


def run_from_numbers(words):
    with pytest.raises(SystemExit) as end:
        main(["profile", "--from-numbers", *words])
    return end.value.code or 0


REST = ["--power-w", "190", "--gpu-utilization", "0.83", "--memory-utilization", "0.41"]
KNOWN = MinimalProfile(
    schema=1,
    workload="my-job",
    gpu="a100-40gb",
    batch_size=64,
    step_s=0.12,
    memory_mib=5300.0,
    power_w=190.0,
    gpu_utilization=0.83,
    memory_utilization=0.41,
)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    return tmp_path / "advisor" / "profiles" / "a100-40gb"


def test_what_the_options_set_is_what_is_written(tmp_path):
    assert run_from_numbers([*WORDS, *REST, "--out", str(tmp_path / "out")]) == 0
    path = tmp_path / "out" / "my-job.json"
    assert path.read_text() == minimal_text(KNOWN)
    assert read_profile(path) == KNOWN.whole()


BUSY = ("--gpu-utilization", "83%")
COUNTERS = [
    "--sm-active",
    "60%",
    "--sm-occupancy",
    "0.3",
    "--tensor-active",
    "0.2",
    "--dram-active",
    "25%",
]
LIMITS = ["--step-under-limit", "50=0.14", "--step-under-limit", "25 %=220ms"]


@pytest.mark.parametrize("more", [COUNTERS, COUNTERS[:2], COUNTERS[4:], LIMITS, COUNTERS + LIMITS])
def test_counters_and_steps_under_limits_are_kept_and_every_plan_uses_them(more, home):
    assert run_from_numbers([*WORDS, *BUSY, *more]) == 0
    written = read_profile(home / "my-job.json")
    given = {word.strip("-").replace("-", "_") for word in more if word.startswith("--")}
    for name, share in (
        ("sm_active", 0.6),
        ("sm_occupancy", 0.3),
        ("tensor_active", 0.2),
        ("dram_active", 0.25),
    ):
        assert getattr(written.counters, name) == (share if name in given else None)
    assert written.counters.source == ("nvml" if more == LIMITS else "dcgm")
    steps_s = {run.limit_pct: run.step_s for run in written.mps.limited} if written.mps else {}
    assert steps_s == ({50.0: 0.14, 25.0: 0.22} if "step_under_limit" in given else {})
    advisor = Advisor("a100-40gb")
    for sharing in ("naive", "mps", "mps=50,25", "mig=3g.20gb,3g.20gb"):
        for job in advisor.predict(["my-job"] * 2, sharing).prediction.jobs:
            assert 0.8 * 0.12 < job.step_s.p05 <= job.step_s.p50 <= job.step_s.p95 < 10


@pytest.mark.parametrize(
    ("gpu", "mib", "framework"),
    [
        ("a100-40gb", 30_720, "JAX"),
        ("h200-141gb", 129_800, "vLLM"),
        ("h100-sxm-80gb", 77_900, "TensorFlow"),
        ("a100-40gb", 28_000, None),
    ],
)
def test_memory_as_a_framework_takes_at_its_start_is_asked_about(
    gpu, mib, framework, tmp_path, capsys
):
    out = tmp_path / "out"
    words = ["--name", "jaxed", "--gpu", gpu, "--duration-s", "2h", "--memory-mib", str(mib)]
    assert run_from_numbers([*words, "--out", str(out)]) == 0
    said = capsys.readouterr().err
    assert [word for word in ("JAX", "vLLM", "TensorFlow") if word in said] == (
        [framework] if framework else []
    )
    if framework:
        other = Advisor("h200-141gb")  # where the job is estimated
        doubts = other.recommend([str(out / "jaxed.json")]).standing.doubts
        assert any(framework in str(doubt) for doubt in doubts)


@pytest.mark.parametrize("share", ["0", "0.4%"])
def test_a_utilisation_of_0_with_memory_held_is_refused_with_what_it_may_be(
    share, tmp_path, capsys
):
    words = [*WORDS, "--gpu-utilization", share, "--out", tmp_path / "out"]
    code, said = refused("profile --from-numbers", words, capsys)
    assert (code, "did not train" in said, "stuck" in said) == (2, True, True)


def test_without_a_folder_it_goes_where_every_command_finds_it(home):
    assert run_from_numbers([*WORDS, "--examples-per-epoch", "640"]) == 0
    found = load_profile("my-job", "a100-40gb")
    assert (found.power_w, found.busy_share) == (None, None)
    assert found.epoch_s == pytest.approx(1.2)
    assert [path.name for path in home.iterdir()] == ["my-job.json"]


def test_numbers_may_be_corrected_but_a_fuller_profile_is_not_overwritten(home, capsys):
    run_from_numbers(WORDS)
    run_from_numbers([*WORDS, "--step-s", "0.2"])
    path = home / "my-job.json"
    assert read_profile(path).step_s == 0.2
    whole = record_line(synthetic.profile())
    path.write_text(whole)
    code, said = refused("profile --from-numbers", WORDS, capsys)
    assert (code, "--name" in said, path.read_text()) == (2, True, whole)


@pytest.mark.parametrize(
    ("changes", "remedy"),
    [
        (["--gpu-utilization", "83"], "83 % is 0.83"),
        (["--step-s", "120"], "120 ms are 0.12 s"),
        (["--step-s", "nan"], "--step-s"),
        (["--memory-mib", "-5300"], "--memory-mib"),
        (["--memory-mib", "5.3 GB"], "GiB"),
        (["--memory-mib", "53000"], "40,960"),
        (["--gpu", "a1000"], "a1000"),
        (["--name", "my/job"], "my/job"),
        (["--seconds", "3"], "--seconds"),
        (["--power-w", "900"], "400 W"),
        (["--power-w", "10"], "20 W"),
        (["resnet50-imagenet64-bs128"], "resnet50"),
        (["--sm-active", "0.4"], "needs gpu_utilization"),
        ([*BUSY, "--sm-active", "40"], "0.4"),
        (["--step-under-limit", "50"], "PERCENT"),
        (["--step-under-limit", "50=0.04"], "less than"),
        (["--gpu", "h200-141gb", "--name", "resnet50-imagenet64-bs128"], "shipped"),
    ],
)
def test_numbers_that_cannot_be_are_refused_and_nothing_is_written(changes, remedy, home, capsys):
    code, said = refused("profile --from-numbers", [*WORDS, *changes], capsys)
    assert (code, remedy in said, home.exists()) == (2, True, False), said


def test_numbers_may_have_the_units_that_logs_print_and_a_job_its_duration(home):
    words = ("--step-s", "120ms", "--memory-mib", "5 GiB", "--power-w", "190 W")
    assert run_from_numbers([*WORDS, *words, "--gpu-utilization", "83%"]) == 0
    written = read_profile(home / "my-job.json")
    assert (written.step_s, written.memory.device_mib, written.power_w) == (0.12, 5120, 190)
    assert written.busy_share == pytest.approx(0.83)
    words = [*WORDS[: WORDS.index("--batch-size")], *WORDS[-2:]]
    assert run_from_numbers([*words, "--duration-s", "1h30m"]) == 0
    written = read_profile(home / "my-job.json")
    assert (written.epoch_s, written.workload.source) == (pytest.approx(5400), "duration")


def test_a_job_needs_its_step_or_its_duration(home, capsys):
    at = WORDS.index("--batch-size")
    for named, words in (
        ("--duration-s", [*WORDS[:at], *WORDS[-2:]]),
        ("--duration-s", [*WORDS[:at], *WORDS[at + 2 :]]),
        ("--memory-mib", WORDS[:-2]),
    ):
        code, said = refused("profile --from-numbers", words, capsys)
        assert (code, named in said, home.exists()) == (2, True, False)


def test_the_gpu_may_be_the_one_that_the_environment_names(home, monkeypatch):
    monkeypatch.setenv("ADVISOR_GPU", "a100-40gb")
    at = WORDS.index("--gpu")
    assert run_from_numbers([*WORDS[:at], *WORDS[at + 2 :]]) == 0
    assert (home / "my-job.json").exists()
