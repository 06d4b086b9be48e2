"""``advisor profile --from-history``: profiles of the jobs that a cluster's monitoring recorded."""

import csv
import socket
from contextlib import suppress
from io import StringIO
from statistics import fmean, median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor import Advisor
from advisor.cli import main
from advisor.errors import AdvisorError
from advisor.measure import history
from advisor.measure.history import Series
from advisor.measure.recorded_jobs import LEAST_SAMPLES, recorded_jobs
from advisor.workload.arrivals import read_arrivals
from advisor.workload.minimal_profile import NOMINAL_STEP_S
from advisor.workload.store import read_profile
from tests.measure.solo.prometheus_stand_in import A100, of_gpu, serving
from tests.refusals import refused

ALL = ("--start", "0", "--end", "3000")


def profiles(folder):
    return {path.stem: read_profile(path) for path in folder.glob("*.json")}


def write(source, folder, *words):
    with pytest.raises(SystemExit) as end:
        main(["profile", "--from-history", str(source), *words, "--out", str(folder)])
    return end.value.code or 0


def refusal(source, folder, capsys, *words):
    code, said = refused("profile --from-history", [source, *words, "--out", folder], capsys)
    assert not list(folder.glob("*.json"))
    return code, said


@pytest.fixture(autouse=True)
def no_token(monkeypatch):
    monkeypatch.delenv(history.TOKEN, raising=False)


def test_each_pod_alone_on_its_gpu_becomes_a_profile(tmp_path, capsys):
    series = of_gpu("train-a") + of_gpu("train-b", gpu="1", busy=40, memory=9000, power=150)
    series += of_gpu("train-b", gpu="2", namespace="other")  # with both names in theirs
    with serving(series) as (address, _):
        assert write(address, tmp_path, *ALL) == 0
    written = profiles(tmp_path)
    assert written.keys() == {"train-a", "ml.train-b", "other.train-b"}
    first = written["train-a"]
    assert (first.gpu, first.power_w, first.memory.device_mib) == ("a100-40gb", 200, 5000)
    assert (first.busy_share, first.counters.memory_utilization) == pytest.approx((0.8, 0.4))
    assert (first.workload.source, first.step_s) == ("duration", NOMINAL_STEP_S)
    assert first.epoch_s == pytest.approx(100 * 30)
    assert "train-a" in capsys.readouterr().err


def test_moments_in_which_two_pods_had_one_gpu_are_left_out(tmp_path):
    series = of_gpu("a", at=range(60), busy=30) + of_gpu("b", at=range(40, 60), busy=90)
    for labels, points in series:
        if labels["__name__"] == "DCGM_FI_DEV_GPU_UTIL":
            points.update(dict.fromkeys([30 * at for at in range(40, 60)], 100))
    with serving(series) as (address, _):
        write(address, tmp_path, *ALL)
    written = profiles(tmp_path)
    assert written.keys() == {"a"}
    assert written["a"].busy_share == pytest.approx(0.3)
    assert written["a"].epoch_s == pytest.approx(60 * 30)


@pytest.mark.parametrize(
    ("series", "reason"),
    [
        (of_gpu("a") + of_gpu("b"), "shared its GPU, with b"),
        (of_gpu("a", at=range(9)), "9 samples"),
        (of_gpu("a", GPU_I_PROFILE="1g.5gb", GPU_I_ID="7"), "MIG instance (1g.5gb)"),
        (of_gpu("a", memory=90_000), "40,960"),
        (of_gpu("a", power=900), "400 W"),
        (of_gpu("a")[:2], "DCGM_FI_DEV_FB_USED"),
        (of_gpu("a")[2:], "DCGM_FI_DEV_GPU_UTIL"),
        (of_gpu("a") + of_gpu("a", gpu="1", modelName="NVIDIA H200"), "several models"),
        (of_gpu("a", modelName=""), "--gpu"),
    ],
)
def test_a_pod_whose_numbers_cannot_be_is_left_out_with_the_reason(
    series, reason, tmp_path, capsys
):
    with serving(series) as (address, _):
        assert write(address, tmp_path, *ALL) == 1
    said = capsys.readouterr().err
    assert "left out a: " in said
    assert reason in said
    assert profiles(tmp_path) == {}


def test_an_exporter_that_names_no_pods_is_no_job(tmp_path, capsys):
    with serving(of_gpu("nvidia-dcgm-exporter-7c6vs")) as (address, _):
        code, said = refusal(address, tmp_path, capsys, *ALL)
        assert (code, "--by gpu" in said) == (2, True)
        assert write(address, tmp_path, *ALL, "--by", "gpu") == 0
    assert profiles(tmp_path).keys() == {"gpu0"}


def test_utilisation_of_the_whole_interval_goes_over_that_of_a_moment(tmp_path):
    finer = [
        ({**labels, "__name__": "DCGM_FI_PROF_GR_ENGINE_ACTIVE"}, dict.fromkeys(points, 0.35))
        for labels, points in of_gpu("a")[:1]
    ]
    for series in (of_gpu("a") + finer, finer + of_gpu("a")):
        with serving(series) as (address, _):
            write(address, tmp_path, *ALL)
        assert profiles(tmp_path)["a"].busy_share == pytest.approx(0.35)


def with_engine(pod, engine, busy=97, power=520, **labels):
    """The series of a pod whose profiling counter has these values; None: none in that sample."""
    busy = busy if isinstance(busy, list) else [busy] * len(engine)
    at = range(len(engine))
    series = of_gpu(pod, at=at, modelName="NVIDIA H100 80GB HBM3", power=power, **labels)
    series[0][1].update({30 * sample: busy[sample] for sample in at})
    points = {30 * sample: engine[sample] for sample in at if engine[sample] is not None}
    return [*series, ({**series[0][0], "__name__": "DCGM_FI_PROF_GR_ENGINE_ACTIVE"}, points)]


HONEST = [0.9 + sample % 7 / 100 for sample in range(40)]


@pytest.mark.parametrize(
    ("engine", "busy", "share", "noted"),
    [
        ([0.0] * 40, 97, 0.97, True),
        ([0.31] * 40, [20, 97] * 20, 0.585, True),
        (HONEST[:20] + [0.0] * 20, 97, 0.97, True),
        ([0.0, 0.95] * 20, 97, 0.96, True),
        ([None] * 30 + [0.95] * 10, 97, 0.97, False),
        (HONEST, 97, 0.93, False),
        (HONEST, 0, 0.93, False),
        ([0.0] * 3 + HONEST, [0] * 3 + [97] * 40, 0.93, False),
    ],
)
def test_a_counter_that_the_drivers_utilisation_contradicts_is_not_believed(
    engine, busy, share, noted, tmp_path, capsys
):
    with serving(with_engine("a", engine, busy)) as (address, _):
        assert write(address, tmp_path, *ALL) == 0
    assert profiles(tmp_path)["a"].busy_share == pytest.approx(share, abs=0.02)
    assert ("dcgmi dmon -e 1001" in capsys.readouterr().err) == noted


COUNTERS = {"sm_active": 0.6, "sm_occupancy": 0.3, "tensor_active": 0.2, "dram_active": 0.25}
NAMES = ("SM_ACTIVE", "SM_OCCUPANCY", "PIPE_TENSOR_ACTIVE", "DRAM_ACTIVE")


def with_counters(pod, names=NAMES, **stuck):
    """The series of a pod with these profiling counters; `stuck` are values in its first half."""
    labels, points = of_gpu(pod)[0]
    return [
        *of_gpu(pod),
        *(
            (
                {**labels, "__name__": f"DCGM_FI_PROF_{name}"},
                {at_s: stuck.get(counter, share) if at_s < 1500 else share for at_s in points},
            )
            for name, (counter, share) in zip(NAMES, COUNTERS.items(), strict=True)
            if name in names
        ),
    ]


@pytest.mark.parametrize(
    ("names", "stuck"),
    [
        (NAMES[2:], {}),
        (NAMES, dict.fromkeys(COUNTERS, 0.0)),
        ((), {}),
    ],
)
def test_profiling_counters_of_dcgm_show_how_the_job_loads_the_gpu(names, stuck, tmp_path):
    with serving(with_counters("a", names, **stuck)) as (address, _):
        assert write(address, tmp_path, *ALL) == 0
    counters = profiles(tmp_path)["a"].counters
    for name, (counter, share) in zip(NAMES, COUNTERS.items(), strict=True):
        assert getattr(counters, counter) == (share if name in names else None)
    assert counters.source == ("dcgm" if names else "nvml")


def test_only_the_job_whose_counter_is_stuck_is_named(tmp_path, capsys):
    series = with_engine("a", HONEST[:20] + [0.0] * 20) + with_engine("b", HONEST, 50, gpu="1")
    stuck = {30 * at: 0.6 if at < 20 else 0.01 for at in range(40)}
    labels = {**series[0][0], "__name__": "DCGM_FI_PROF_SM_ACTIVE"}  # sticks with it
    with serving([*series, (labels, stuck)]) as (address, _):
        write(address, tmp_path, *ALL)
    assert profiles(tmp_path)["a"].counters.sm_active == 0.6
    said = capsys.readouterr().err
    assert ("a: DCGM" in said, "b: DCGM" in said) == (True, False)
    assert profiles(tmp_path)["b"].busy_share == pytest.approx(0.93, abs=0.02)


def test_a_job_that_holds_memory_at_0_per_cent_is_left_out_with_what_it_may_be(tmp_path, capsys):
    for series in (of_gpu("a", busy=0), with_engine("a", [0.0] * 40, 0)):
        with serving(series) as (address, _):
            assert write(address, tmp_path, *ALL) == 1
        said = capsys.readouterr().err
        assert "did not train" in said
        assert "stuck" in said
        assert "5,000 MiB" in said


RENAMED = {
    "exported_pod": "train",
    "exported_namespace": "ml",
    "exported_container": "trainer",
    "exported_job": "batch-7",
    "namespace": "monitoring",
    "container": "exporter",
    "job": "dcgm",
}


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["--match", "namespace=ml"], {"train"}),
        (["--match", "pod=train", "--by", "job"], {"batch-7"}),
        (["--match", "namespace=monitoring"], set()),
        (["--match", "namespace=other"], {"plain"}),
    ],
)
@pytest.mark.parametrize("in_file", [False, True])
def test_labels_that_prometheus_renamed_match_by_their_own_names(words, names, in_file, tmp_path):
    series = of_gpu("dcgm-exporter-x", **RENAMED)
    series += of_gpu("plain", gpu="1", namespace="other") if names == {"plain"} else []
    (out := tmp_path / "out").mkdir()
    if in_file:
        file = tmp_path / "history.csv"
        file.write_text(csv_of(series))
    with serving(series) as (address, _), suppress(AdvisorError):
        write(file if in_file else address, out, *ALL, *words)
    assert profiles(out).keys() == names


def csv_of(series):
    """A table as Grafana writes it: a column for each series."""
    times = sorted({at for _, points in series for at in points})
    head = [
        labels["__name__"] + "{" + ",".join(f'{name}="{labels[name]}"' for name in labels) + "}"
        for labels, _ in series
    ]
    rows = [[at, *(points.get(at, "") for _, points in series)] for at in times]
    csv.writer(text := StringIO()).writerows([["Time", *head], *rows])
    return text.getvalue()


def test_jobs_arrive_in_a_simulation_when_they_did_in_the_history(tmp_path):
    series = of_gpu("a", at=range(10, 60)) + of_gpu("b", gpu="1", at=range(30, 60))
    with serving(series) as (address, _):
        write(address, tmp_path, *ALL)
    a100 = Advisor("a100-40gb")
    arrivals = read_arrivals(tmp_path / "arrivals.csv", a100.find_profile)
    assert [(each.job.name, each.arrival_s) for each in arrivals] == [("a", 0), ("b", 600)]
    assert arrivals[1].job.alone_s == pytest.approx(900)
    (own := tmp_path / "arrivals.csv").write_text("mine\n1\n")
    with serving(series) as (address, _):
        assert write(address, tmp_path, *ALL) == 0
    assert own.read_text() == "mine\n1\n", "a table of the user's"


@pytest.mark.parametrize(("early", "active"), [(None, 100), (0, 50)])
def test_idle_samples_are_no_part_of_a_job_and_samples_without_utilisation_are(
    early, active, tmp_path
):
    series = of_gpu("a")
    for sample in range(50):
        series[0][1][30 * sample] = early
    series[0] = series[0][0], {at: value for at, value in series[0][1].items() if value is not None}
    with serving(series) as (address, _):
        write(address, tmp_path, *ALL)
    a = profiles(tmp_path)["a"]
    assert (a.epoch_s, a.busy_share) == (pytest.approx(active * 30), pytest.approx(0.8))


def test_a_pod_on_two_gpus_has_the_numbers_of_one_of_them(tmp_path, capsys):
    with serving(of_gpu("a") + of_gpu("a", gpu="1", memory=6000)) as (address, _):
        write(address, tmp_path, *ALL)
    a = profiles(tmp_path)["a"]
    assert (a.memory.device_mib, a.epoch_s) == (6000, pytest.approx(3000))
    assert "Set gpus" in capsys.readouterr().err


def test_steps_are_passed_or_come_from_a_metric_of_the_jobs(tmp_path):
    steps = [({"__name__": "step_seconds", "pod": "b"}, {0: 0.2, 30: 0.3, 60: 0.25})]
    with serving(of_gpu("a") + of_gpu("b", gpu="1") + steps) as (address, _):
        words = ("--step-s", "a=120ms", "--step-metric", "step_seconds")
        write(address, tmp_path, *ALL, *words)
    written = profiles(tmp_path)
    assert (written["a"].step_s, written["b"].step_s) == (0.12, 0.25)
    assert {each.workload.source for each in written.values()} == {"numbers"}
    assert written["a"].epoch_s == pytest.approx(3000)


def test_the_range_and_labels_are_asked_of_prometheus(tmp_path, monkeypatch):
    monkeypatch.setenv(history.TOKEN, "secret")
    series = of_gpu("a") + of_gpu("b", gpu="1", namespace="other")
    with serving(series) as (address, requests):
        write(address, tmp_path, "--start", "900", "--end", "2100", "--match", "namespace=ml")
    assert profiles(tmp_path)["a"].epoch_s == pytest.approx(41 * 30)
    assert {headers["Authorization"] for _, headers in requests} == {"Bearer secret"}
    assert all("start=900.0" in path and "namespace" in path for path, _ in requests)
    year_s = 366 * 86_400
    with serving(series) as (address, requests):
        write(address, tmp_path, "--start", "0", "--end", str(year_s))
    (step,) = {path.rpartition("step=")[2].partition("&")[0] for path, _ in requests}
    assert year_s / float(step) < history.MOST_POINTS


@pytest.mark.parametrize(
    ("answer", "code", "remedy"),
    [
        ((401, {}, b""), 1, history.TOKEN),
        ((400, {}, b'{"status": "error", "error": "bad query"}'), 1, "bad query"),
        ((302, {"Location": "http://elsewhere.example/x"}, b""), 1, "elsewhere.example"),
        ((200, {}, b"<html>Grafana</html>"), 2, "Prometheus itself"),
        ((200, {}, b'{"data": {"result": [{"metric": {}, "values": [1]}]}}'), 2, "Prometheus"),
        ((200, {}, b'{"data": {"resultType": "matrix", "result": []}}'), 2, "no series"),
    ],
)
def test_an_answer_that_is_no_history_is_refused_in_a_sentence(
    answer, code, remedy, tmp_path, capsys
):
    with serving([], answer) as (address, requests):
        refused_with, said = refusal(address, tmp_path, capsys, *ALL)
    assert (refused_with, remedy in said) == (code, True), said
    assert all("elsewhere" not in headers["Host"] for _, headers in requests)


def test_a_server_that_is_absent_silent_or_endless_is_named(tmp_path, capsys, monkeypatch):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        code, said = refusal(f"http://{address}", tmp_path, capsys)
        assert (code, address in said, "refused" in said) == (1, True, True)
        silent.listen()
        monkeypatch.setattr(history, "_ANSWER_S", 0.05)
        code, said = refusal(f"http://{address}", tmp_path, capsys)
        assert (code, "no answer" in said) == (1, True), said
    monkeypatch.setattr(history, "MOST_BYTES", 1000)
    with serving(of_gpu("a")) as (address, _):
        code, said = refusal(address, tmp_path, capsys, *ALL)
    assert (code, "--interval" in said) == (2, True)


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (["http://me:secret@prometheus:9090"], history.TOKEN),
        (["http://"], "prometheus:9090"),
        (["http://x", "--start", "1h", "--end", "2h"], "--start"),
        (["http://x", "--start", "9d", "--interval", "1"], "--interval"),
        (["http://x", "--start", "soon"], "2h"),
        (["http://x", "--match", "ml"], "LABEL=VALUE"),
        (["http://x", "--step-s", "a=fast"], "seconds"),
        (["http://x", "--by", "a b"], "a b"),
        (["nowhere.csv"], "nowhere.csv"),
    ],
)
def test_wrong_words_are_refused_before_anything_is_asked(words, remedy, capsys):
    code, said = refused("profile --from-history", words, capsys)
    assert (code, remedy in said, "secret" in said) == (2, True, False), said


SMI = """timestamp, index, name, utilization.gpu [%], utilization.memory [%], memory.used [MiB], power.draw [W]
"""  # noqa: E501 - as nvidia-smi prints it


def smi(samples=20, busy="83 %", memory="5300 MiB"):
    rows = (
        f"2026/05/01 12:00:{at:02}.123, 0, {A100}, {busy}, 41 %, {memory}, 190.50 W\n"
        for at in range(samples)
    )
    return SMI + "".join(rows)


GRAFANA = 'DCGM_FI_DEV_{}{{{}pod=""{}"", gpu=""{}"", modelName=""' + A100 + '""}}'


def grafana_wide():
    names = {"GPU_UTIL": "83%", "FB_USED": "5.18 GiB", "POWER_USAGE": "190.5"}
    head = ['"Time"', *('"' + GRAFANA.format(name, "", "a", 0) + '"' for name in names)]
    rows = [f"2026-05-01 12:{at:02}:00,{','.join(names.values())}" for at in range(20)]
    return "sep=,\n" + "\n".join([",".join(head), *rows]) + "\n"


def grafana_long():
    values = {"GPU_UTIL": 83, "FB_USED": 5300, "POWER_USAGE": 190.5, "GPU_TEMP": 60}
    rows = (
        f"{1_777_000_000_000 + 60_000 * at},DCGM_FI_DEV_{name},a,0,{A100},{value}\n"
        for at in range(20)
        for name, value in values.items()
    )
    return "Time,__name__,pod,gpu,modelName,Value\n" + "".join(rows)


DCGMI = """#Entity   GPUTL        MCUTL        FBUSD        POWER
ID
"""


def dcgmi():
    block = "GPU 1     0            0            4            N/A\n" + (
        "GPU 0     83           41           5300         190.500\n"
    )
    return "".join(DCGMI + block * 5 for _ in range(4))


def dcgmi_counters(heading):
    head = f"#{heading}   GPUTL  MCUTL  FBUSD  POWER  GRACT  SMACT  SMOCC  TENSO  DRAMA\nID\n"
    row = "GPU 0     83   41   5300   190.500   0.830   0.600   0.300   0.200   0.250\n"
    return head + row * 20


def smi_dmon():
    head = "#Date       Time        gpu    pwr     sm    mem     fb\n"
    units = "#YYYYMMDD   HH:MM:SS    Idx      W      %      %     MB\n"
    rows = (f" 20260501   12:00:{at:02}      0    190     83     41   5300\n" for at in range(20))
    return head + units + "".join(rows)


@pytest.mark.parametrize(
    ("text", "name", "duration_s", "words"),
    [
        (smi(), "gpu0", 20, ()),
        (grafana_wide(), "a", 1200, ()),
        (grafana_long(), "a", 1200, ()),
        (dcgmi(), "gpu0", 40, ("--interval", "2", "--gpu", "a100-40gb")),
        *(
            (dcgmi_counters(heading), "gpu0", 20, ("--interval", "1", "--gpu", "a100-40gb"))
            for heading in ("Entity", " Entity", " EntityId")
        ),
        (smi_dmon(), "gpu0", 20, ("--gpu", "a100-40gb")),
        (smi(), "my-job", 20, ("--name", "my-job")),
    ],
    ids=range(9),
)
def test_files_of_each_tool_hold_the_same_job(text, name, duration_s, words, tmp_path):
    file = tmp_path / "history.csv"
    file.write_text(text)
    (out := tmp_path / "out").mkdir()
    assert write(file, out, *words) == 0
    (written,) = profiles(out).values()
    assert (written.name, written.gpu) == (name, "a100-40gb")
    assert written.busy_share == pytest.approx(0.83)
    assert written.memory.device_mib == pytest.approx(5300, abs=5)
    assert written.power_w == pytest.approx(190, abs=1)
    assert written.epoch_s == pytest.approx(duration_s)
    if "GRACT" in text:
        counters = {name: getattr(written.counters, name) for name in COUNTERS}
        assert (counters, written.counters.source) == (COUNTERS, "dcgm")


@pytest.mark.parametrize(
    ("text", "words", "remedy"),
    [
        ("", (), "utilization.gpu"),
        (SMI, (), "no numbers"),
        (smi() + "2026/05/01 12:01:00, 0\n", (), "history.csv:22"),
        (smi(busy="fast"), (), "'fast'"),
        (dcgmi(), ("--start", "1h"), "--start"),
        (smi(), ("--by", "pod"), "pod"),
        (smi(), ("--step-s", "other=1"), "gpu0"),
        (smi() + '"', (), "history.csv"),
        (smi(), ("--start", "2027-01-01"), "--start"),
        (
            grafana_long() + grafana_long().split("\n", 1)[1].replace(",a,0,", ",b,1,"),
            ("--name", "x"),
            "--name",
        ),
    ],
)
def test_a_file_that_is_no_history_is_refused_in_a_sentence(text, words, remedy, tmp_path, capsys):
    file = tmp_path / "history.csv"
    file.write_text(text)
    (out := tmp_path / "out").mkdir()
    code, said = refusal(file, out, capsys, *words)
    assert (code, remedy in said) == (2, True), said


def test_cells_without_a_value_are_left_out(tmp_path):
    file = tmp_path / "history.csv"
    file.write_text(smi() + smi(15, "[N/A]", "[Not Supported]").split("\n", 1)[1])
    assert write(file, tmp_path, "--step-s", "0.1") == 0
    written = profiles(tmp_path)["gpu0"]
    assert (written.busy_share, written.step_s) == (pytest.approx(0.83), 0.1)


def test_without_times_a_file_needs_the_interval_or_the_step(tmp_path, capsys):
    (file := tmp_path / "history.csv").write_text(dcgmi())
    assert write(file, tmp_path, "--gpu", "a100-40gb") == 1
    assert "--interval" in capsys.readouterr().err
    assert write(file, tmp_path, "--gpu", "a100-40gb", "--step-s", "gpu0=0.1") == 0


SAMPLES = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.integers(0, 40),
        st.sampled_from("abc"),
        st.integers(0, 100),
        st.integers(100, 9000),
    ),
    max_size=120,
)


@settings(max_examples=50)
@given(SAMPLES)
def test_the_numbers_are_those_of_the_moments_that_a_job_had_to_itself(samples):
    series = []
    for gpu, at, job, busy, memory in samples:
        labels = {"gpu": str(gpu), "pod": job}
        series += [
            Series("gpu_utilization", labels, [(at, busy / 100)]),
            Series("memory_mib", labels, [(at, memory)]),
            Series("power_w", labels, [(at, busy)]),
        ]
    jobs = recorded_jobs(series, "pod", 1.0) if series else []
    assert {job.name for job in jobs} == {job for _, _, job, _, _ in samples}
    for job in jobs:
        own = {
            (gpu, at): (busy / 100, memory)
            for gpu, at, name, busy, memory in samples
            if name == job.name
            and not any((g, a) == (gpu, at) and n != name for g, a, n, _, _ in samples)
        }
        active = [busy for busy, _ in own.values() if busy >= 0.01]
        assert job.samples == len(active)
        most_mib = max((memory for _, memory in own.values()), default=None)
        assert job.numbers.get("memory_mib") == most_mib
        middle = pytest.approx(median(active)) if active else None
        assert job.numbers.get("gpu_utilization") == middle
        watts = pytest.approx(100 * fmean(active)) if active else None
        assert job.numbers.get("power_w") == watts
        assert (job.problem is None) == (len(active) >= LEAST_SAMPLES)
