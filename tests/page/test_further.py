"""Further questions of the page: files, several GPUs, what may join, copies, slices, this GPU."""

from dataclasses import replace

import pytest

from advisor.workload.minimal_profile import MinimalProfile, minimal_text
from advisor.workload.writing import append_run, profile_text
from tests import shelf, synthetic
from tests.hardware.conftest import install  # noqa: F401 - a fixture
from tests.hardware.nvml import MIB, FakeGpu, FakeLibrary
from tests.page.seen import captions, charts, choose, fill_in, jobs_of_plan, look_at, rows_with

RESNET, SMALL, BERT = list(shelf.PROFILES)[:3]
MINE = MinimalProfile(
    schema=1, workload="my-job", gpu=shelf.GPU, batch_size=64, step_s=0.12, memory_mib=5300,
    power_w=390, gpu_utilization=0.83, memory_utilization=0.41,
)  # fmt: skip
FILE = f"""[[job]]
profile = "{BERT}"
copies = 2
epochs = 3

[[job]]
profile = "my-job"
deadline_s = 7200
"""


def hand_in(page, *files):
    page.run()
    given = [(name, content, "application/octet-stream") for name, content in files]
    return page.file_uploader(key="uploads").set_value(given).run()


def test_a_job_file_and_profiles_that_are_handed_in_fill_the_table(page):
    elsewhere = replace(
        shelf.PROFILES[SMALL], gpu="h100-sxm-80gb",
        workload=replace(shelf.PROFILES[SMALL].workload, name="elsewhere-bs128"),
    )  # fmt: skip
    mine, other = minimal_text(MINE).encode(), profile_text(elsewhere).encode()
    hand_in(page, ("jobs.toml", FILE.encode()), ("mine.json", mine), ("elsewhere.json", other))
    assert not [*page.exception, *page.error]
    assert jobs_of_plan(page) == [BERT, BERT, "my-job"]
    assert [row["deadline_min"] for row in page.session_state["job table"].now][1] == 120
    fill_in(page, f"{BERT} (jobs.toml, 1)", copies=3)
    assert len(jobs_of_plan(page)) == 4
    choose(page, "elsewhere-bs128", BERT)
    assert not page.exception
    boxes = [*page.success, *page.info, *page.warning]
    assert any("Estimated from h100-sxm-80gb" in each.value for each in boxes)


def test_nothing_that_a_handed_in_job_file_says_is_run_here(page, tmp_path):
    touched = tmp_path / "touched"
    text = f'[[job]]\nprofile = "{BERT}"\ncommand = ["touch", "{touched}"]\nfolder = "{tmp_path}"\n'
    look_at(hand_in(page, ("jobs.toml", text.encode())), "Apply it")
    assert not [*page.exception, *page.error]
    assert f"touch {touched}" in page.code[0].value
    assert "runs and reads nothing of a job file" in captions(page)
    assert not touched.exists()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        *(("bad.json", each) for each in (b"[" * 100_000, b"\x00\xff")),
        *(("jobs.toml", each) for each in (
            b"[[job]", b"#" * (2**20 + 1), b'[[job]]\nprofile = "<script>"',
            b'[[job]]\nprofile = "bert-base-finetune-bs16"\ncopies = 400')),
        *(pytest.param(name, each, marks=pytest.mark.exhaustive) for name, each in (
            ("bad.json", b""), ("bad.json", b"{"), ("jobs.toml", b""), ("jobs.toml", b"\xff"),
            ("jobs.toml", b'[[job]]\nprofile = "no-such-job"'),
            ("jobs.toml", b'[[job]]\nprofile = "/etc/passwd"'))),
    ],
)  # fmt: skip
def test_a_file_that_is_none_is_named_and_the_rest_stays(page, name, content):
    hand_in(page, (name, content))
    assert not page.exception
    assert page.error[0].value.startswith(name)
    assert page.success


@pytest.mark.parametrize("policy", [None, "first-come", "best-fit"])
def test_on_two_gpus_each_job_has_a_gpu_and_an_end(page, policy):
    page.query_params.update({"question": "Several GPUs?", "gpus": "2"})
    if policy:
        page.query_params["policy"] = policy
    page.run()
    assert not [*page.exception, *page.error]
    rows = {
        row["job"].partition(" · ")[2]: row for _, row in rows_with(page, "ends after").iterrows()
    }
    assert rows.keys() == {RESNET, SMALL, BERT}
    assert {row["GPU"] for row in rows.values()} <= {"0", "1"}
    assert policy or len(rows_with(page, "fullest GPU")) >= 2
    page.number_input(key="gpus").set_value(3).run()
    assert page.query_params["gpus"] == "3"


@pytest.mark.parametrize(
    ("how", "hurt", "refused"),
    [("naive", "4", None), ("mig=3g.71gb@0", "4", None), ("mps=50,50", "4", "2 limits for 1 job"),
     ("naive", "0", RESNET)],
)  # fmt: skip
def test_what_may_join_is_a_table_and_what_may_not_is_said(page, how, hurt, refused):
    page.query_params.update({
        "question": "What may be added?", "running": "1", "running-sharing": how, "hurt": hurt,
    })  # fmt: skip
    page.run()
    assert not page.exception
    if refused:
        assert refused in page.error[0].value
    else:
        assert len(rows_with(page, "work added")) >= 1
        assert ("mig" in how) == ("not confirmed on hardware" in captions(page))


def test_a_process_that_holds_as_much_as_one_job_alone_is_taken_to_be_it(page, install):  # noqa: F811
    held = int(shelf.PROFILES[BERT].memory.device_mib * MIB)
    install(FakeLibrary(FakeGpu(processes={11: held})))
    page.session_state["question"] = "What may be added?"
    page.run()
    assert not page.exception
    assert [name.partition(" · ")[2] for name in page.multiselect[0].value] == [BERT]
    page.session_state["question"] = "What runs here now?"
    page.run()
    rows = rows_with(page, "process")
    assert (list(rows["process"]), list(rows["as much as"])) == (["11"], [BERT])


@pytest.mark.usefixtures("unremembered")
def test_copies_and_slices_are_drawn(page):
    page.run()
    before = len(charts(page))
    page.selectbox(key="trials").set_value(SMALL).run()
    assert len(charts(page)) == before + 1
    page.selectbox(key="trials").set_value(None)
    page.pills(key="question").set_value("How fast is each on a MIG slice?").run()
    assert len(charts(page)) == before + 1
    assert not page.exception


@pytest.mark.usefixtures("unremembered")
@pytest.mark.parametrize("measured", [True, False])
def test_earlier_runs_are_drawn_or_it_is_said_how_to_make_some(page, tmp_path, measured):
    runs = tmp_path / "advisor" / "profiles" / shelf.GPU / "runs"
    runs.mkdir(parents=True)
    if measured:
        pair = [shelf.PROFILES[RESNET], shelf.PROFILES[BERT]]
        append_run(runs / "validation.jsonl", synthetic.run(pair, "mps", run_id="mine"))
    page.run()
    page.pills(key="question").set_value("How good were predictions?").run()
    assert not page.exception
    assert len(charts(page)) == 3 + measured
    assert measured != any("`advisor validate`" in said.value for said in page.info)
