"""Public traces of clusters, read as their owners publish them, with values made up here."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.api import Advisor
from advisor.errors import InvalidInput
from advisor.workload.arrivals import read_arrivals
from research.public_traces import main, stand_in_arrivals
from research.traces import Part, Trace, TraceJob, read_trace
from tests import synthetic
from tests.made_up_traces import HELIOS, write_helios, write_pai, write_philly

ALL = Part()
RESNET = "resnet26-cifar10-bs128"


@pytest.fixture
def philly(tmp_path):
    write_philly(tmp_path)
    return tmp_path


def test_a_philly_job_runs_for_all_its_attempts_and_has_the_mean_use_of_its_gpus(philly):
    trace = read_trace(philly, "philly", ALL)
    tried, late = trace.jobs
    assert (tried.name, tried.run_s, tried.gpus) == ("tried-twice", 60 + 300, 1)
    assert tried.utilization == pytest.approx(0.6)  # 40 % in the first attempt, 80 % in the second
    assert (late.run_s, late.gpus) == (600, 3)
    assert late.utilization == pytest.approx(0.15)  # of two GPUs; the third was offline
    assert late.submitted_s - tried.submitted_s == 8 * 3600 + 600
    assert sorted(line.partition(" ")[2].split(" (")[0] for line in trace.left_out) == [
        "job without a plausible run time",
        "jobs without a GPU",
        "malformed row",
    ]
    assert any("entry:6" in line for line in trace.left_out)
    assert read_trace(philly / "cluster_job_log", "philly", ALL) == trace


def test_a_philly_trace_without_utilisation_has_none(philly):
    (philly / "cluster_gpu_util").unlink()
    assert {job.utilization for job in read_trace(philly, "philly", ALL).jobs} == {None}


def test_a_helios_job_that_was_cancelled_counts_by_its_run_time(tmp_path):
    write_helios(tmp_path / "Mercury")
    trace = read_trace(tmp_path / "Mercury", "helios", ALL)
    assert [(job.name, job.run_s, job.gpus) for job in trace.jobs] == [("7", 3600, 1), ("9", 30, 8)]
    assert [job.submitted_s - trace.jobs[0].submitted_s for job in trace.jobs] == [0, 3600]
    assert {(job.utilization, job.memory_mib) for job in trace.jobs} == {(None, None)}
    assert [line.split()[0] for line in trace.left_out] == ["1", "1", "2"]
    with pytest.raises(InvalidInput, match="Mercury"):
        read_trace(tmp_path, "helios", ALL)  # the folder of all clusters


@pytest.fixture
def pai(tmp_path):
    write_pai(tmp_path)
    return tmp_path


def test_a_pai_job_needs_whole_gpus_and_has_the_use_of_each(pai):
    trace = read_trace(pai, "pai", ALL)
    half, wide = trace.jobs
    assert half == TraceJob("half", 1000, 800, 1, 0.25, 2.5 * 1024)
    assert wide == TraceJob("wide", 1600, 2000, 4, (1.5 + 0.5) / 4, 8 * 1024)
    assert len(trace.left_out) == 2
    assert read_trace(pai / "pai_task_table.csv", "pai", ALL) == trace


def test_pai_tables_may_have_a_line_of_headings_and_no_sensors(pai):
    (pai / "pai_sensor_table.csv").unlink()
    table = pai / "pai_job_table.csv"
    headings = "inst_id,job_name,user,status,end_time,start_time\n"
    table.write_text(f"{headings}i1,half,u,Terminated,1900.0,1000.0\n")
    assert read_trace(pai, "pai", ALL).jobs == (TraceJob("half", 1000, 800, 1),)


@pytest.mark.parametrize("form", ["philly", "helios", "pai"])
def test_a_trace_of_another_form_is_refused(pai, form):
    (pai / "cluster_log.csv").write_text("time,machine\n1,2\n")
    (pai / "cluster_job_log").write_text('{"a": 1}')
    (pai / "pai_job_table.csv").write_text("a,b,c,d,e,f\n" * 2)
    with pytest.raises(InvalidInput, match="Check"):
        read_trace(pai, form, ALL)
    with pytest.raises(InvalidInput, match="not found"):
        read_trace(pai / "elsewhere", form, ALL)


@pytest.mark.parametrize(
    ("part", "names"),
    [
        (Part(start="2017-11-02"), ["late"]),
        (Part(until="2017-11-02 07:59:59"), ["tried-twice"]),
        (Part(start="0", until="9h"), ["tried-twice", "late"]),
        (Part(start="1min", until="1d"), ["late"]),
    ],
)
def test_a_window_of_a_trace_is_named_by_dates_or_times_from_its_first_job(philly, part, names):
    assert [job.name for job in read_trace(philly, "philly", part).jobs] == names


@pytest.mark.parametrize(
    "part", [Part(start="2018-01-01"), Part(start="2017-13-41"), Part(until="noon")]
)
def test_a_window_without_jobs_or_meaning_is_refused(philly, part):
    with pytest.raises(InvalidInput, match=r"[Ww]indow|Write|seconds"):
        read_trace(philly, "philly", part)


@given(st.integers(1, 400), st.floats(0.01, 0.99), st.floats(0.01, 0.99))
def test_a_larger_share_keeps_the_jobs_of_a_smaller_one(count, one, other):
    jobs = [TraceJob(f"j{at}", float(at), 1.0, 1) for at in range(count)]

    def kept(share):
        try:
            return set(Part(share=share).of(jobs))
        except InvalidInput:
            return set()

    assert kept(min(one, other)) <= kept(max(one, other))


def test_a_tenth_of_many_jobs_is_about_a_tenth():
    jobs = [TraceJob(f"j{at}", float(at), 1.0, 1) for at in range(10_000)]
    assert 900 < len(Part(share=0.1).of(jobs)) < 1100


def profile(name, gract, memory_mib):
    whole = synthetic.profile(memory_mib=memory_mib)
    workload, counters = replace(whole.workload, name=name), replace(whole.counters, gract=gract)
    return replace(whole, workload=workload, counters=counters)


IDLE, BUSY, LARGE = profile("idle", 0.2, 1e3), profile("busy", 1.0, 1e3), profile("large", 1.0, 3e4)


def stood_in(*jobs, gpus=8, profiles=(IDLE, BUSY, LARGE), memory_mib=8e4):
    return stand_in_arrivals(Trace(jobs, ()), profiles, memory_mib, gpus)


@pytest.mark.parametrize(
    ("used", "stand_in"),
    [((0.3, 500), "idle"), ((0.9, 500), "busy"), ((0.9, 4e4), "large"), ((0.1, None), "idle")],
)
def test_the_profile_with_the_nearest_use_stands_in(used, stand_in):
    ((arrival,), _) = stood_in(TraceJob("job", 5.0, 100.0, 1, *used))
    assert arrival.job.name == stand_in


@given(st.floats(0.1, 1e7), st.integers(1, 8), st.text())
def test_a_job_takes_as_long_alone_as_in_its_trace(run_s, gpus, name):
    ((arrival,), _) = stood_in(TraceJob(name, 77.0, run_s, gpus))
    assert arrival.job.alone_s == pytest.approx(run_s)
    assert (arrival.job.gpus, arrival.arrival_s) == (gpus, 0.0)


def test_jobs_of_unrecorded_use_are_drawn_evenly_and_the_same_each_time():
    jobs = [TraceJob(f"j{at}", float(at), 1.0, 1) for at in range(600)]
    arrivals, _ = stood_in(*jobs)
    names = [each.job.name for each in arrivals]
    assert all(150 < names.count(name) < 250 for name in ("idle", "busy", "large"))
    assert stood_in(*jobs)[0] == arrivals


def test_jobs_for_more_gpus_and_stand_ins_for_more_memory_are_left_out():
    jobs = TraceJob("wide", 0.0, 9.0, 4), TraceJob("job", 9.0, 9.0, 1, 1.0, 3e4)
    (arrival,), notes = stood_in(*jobs, gpus=2, memory_mib=2e4)
    assert (arrival.job.name, arrival.arrival_s) == ("busy", 0.0)
    assert "1 job with more than 2 GPUs" in notes[1]
    with pytest.raises(InvalidInput, match="--host-gpus"):
        stood_in(jobs[0], gpus=2)
    with pytest.raises(InvalidInput, match="--stand-ins"):
        stood_in(jobs[1], profiles=[LARGE], memory_mib=2e4)


def test_a_trace_becomes_a_table_that_a_simulation_reads(tmp_path, capsys):
    write_helios(tmp_path)
    words = ("helios", f"{tmp_path}", "--out", f"{tmp_path / 'trace.csv'}", "--stand-ins", RESNET)
    assert main(words) == 0
    assert "1 job without a GPU" in capsys.readouterr().err
    first, second = read_arrivals(tmp_path / "trace.csv", Advisor().find_profile)
    assert (first.arrival_s, second.arrival_s) == (0, 3600)
    assert (first.job.name, first.job.gpus, second.job.gpus) == (RESNET, 1, 8)
    ran_s = [first.job.alone_s, second.job.alone_s]
    assert ran_s == pytest.approx([3600, 30])


@pytest.mark.parametrize(
    "words",
    [
        ("--keep", "0"),
        ("--keep", "many"),
        ("--stand-ins", "nothing"),
        ("--gpu", "none"),
        ("--start", "noon"),
        ("--host-gpus", "0"),
    ],
)
def test_a_table_that_cannot_be_written_is_refused(tmp_path, capsys, words):
    write_helios(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["helios", f"{tmp_path}", "--out", f"{tmp_path / 'trace.csv'}", *words])
    assert ended.value.code == 2
    assert "error:" in capsys.readouterr().err
    assert not (tmp_path / "trace.csv").exists()


cells = st.one_of(
    st.sampled_from(
        [
            "",
            "nan",
            "inf",
            "-3",
            "1e308",
            "7",
            "50.0",
            "NA",
            "2020-05-01 10:00:00",
            "0001-01-01",
            "9999-12-31 23:59:59",
            "job",
            '"',
        ]
    ),
    st.text(max_size=5),
)
values = st.recursive(
    st.one_of(st.none(), st.floats(), st.integers(), cells),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "jobid",
                    "attempts",
                    "submitted_time",
                    "detail",
                    "ip",
                    "gpus",
                    "start_time",
                    "end_time",
                ]
            ),
            inner,
            max_size=8,
        )
    ),
    max_leaves=30,
)


@given(rows=st.lists(st.lists(cells, min_size=10, max_size=11), max_size=6), document=values)
def test_any_content_is_read_or_refused_and_what_is_read_can_be_simulated(
    tmp_path_factory, rows, document
):
    folder = tmp_path_factory.mktemp("trace")
    (folder / "cluster_job_log").write_text(json.dumps([document, document]))
    lines = [",".join(row) for row in rows]
    (folder / "cluster_gpu_util").write_text("\n".join(lines))
    (folder / "cluster_log.csv").write_text("\n".join([HELIOS.splitlines()[0], *lines]))
    tasks = [",".join(row[:10]) for row in rows]
    names = {"pai_job_table": [",".join(row[:6]) for row in rows], "pai_task_table": tasks}
    for name, table in names.items():
        (folder / f"{name}.csv").write_text("\n".join(table))
    for form in ("philly", "helios", "pai"):
        try:
            trace = read_trace(folder, form, ALL)
            arrivals, _ = stand_in_arrivals(trace, [IDLE, BUSY], 8e4, 16)
        except InvalidInput:
            continue
        assert all(each.arrival_s >= 0 for each in arrivals)
