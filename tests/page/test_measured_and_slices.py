"""Further questions about all jobs: MIG instances of each size, and runs that were measured."""

from advisor.workload.writing import append_run
from tests import shelf, synthetic
from tests.page.seen import charts

SLICES, MEASURED = "How fast is each on a MIG slice?", "How good were predictions?"
PAIR = [shelf.PROFILES["resnet50-imagenet64-bs128"], shelf.PROFILES["bert-base-finetune-bs16"]]


def ask(page, question):
    return page.pills(key="question").set_value(question).run()


def own_runs(folder):
    file = folder / "advisor" / "profiles" / shelf.GPU / "runs" / "validation.jsonl"
    file.parent.mkdir(parents=True)
    return file


def test_speed_against_slice_size_is_drawn_and_said_to_be_estimated(page):
    page.run()
    before = len(charts(page))
    ask(page, SLICES)
    assert not page.exception
    assert len(charts(page)) == before + 1
    assert any("On instances this is estimated" in said.value for said in page.caption)


def test_a_gpu_without_mig_gets_a_sentence_instead(page):
    page.run()
    page.selectbox(key="gpu").set_value("l40s-48gb").run()
    ask(page, SLICES)
    assert not page.exception
    assert any("l40s-48gb has no MIG" in said.value for said in page.info)


def test_runs_of_the_jobs_are_drawn_beside_their_predictions(page, unremembered, tmp_path):  # noqa: ARG001
    append_run(own_runs(tmp_path), synthetic.run(PAIR, "mps", run_id="mine"))
    page.run()
    before = len(charts(page))
    ask(page, MEASURED)
    assert not page.exception
    assert len(charts(page)) == before + 1
    assert any("1 run of some of these jobs, 1 of them your own" in said.value
               for said in page.caption)  # fmt: skip


def test_without_runs_it_is_said_how_to_make_some(page, unremembered):  # noqa: ARG001
    ask(page.run(), MEASURED)
    assert not page.exception
    assert any("`advisor validate`" in said.value for said in page.info)


def test_a_damaged_file_of_runs_is_named(page, unremembered, tmp_path):  # noqa: ARG001
    own_runs(tmp_path).write_text("{}")
    ask(page.run(), MEASURED)
    assert not page.exception
    assert "validation.jsonl" in page.error[0].value
