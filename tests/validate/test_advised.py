import json
from contextlib import nullcontext
from dataclasses import replace

import pytest

from advisor import Advisor, recommend
from advisor.errors import GpuUnavailable, InvalidInput, OutsideInterval
from advisor.measure.shared.planned_run import PlannedRun, mixes_of
from advisor.measure.shared.run_list_file import read_plans
from advisor.report.documents import recommendation_document
from advisor.sharing import Hybrid, Mig, Mps, Naive, Serial
from advisor.validate.advised import (
    choose,
    keep,
    plans_text,
    rehearsed,
    run_plans,
    spelt,
    store_file,
    validate_file,
)
from advisor.validate.validate import check, compared_as_ranked, validation_table
from advisor.workload.named_workloads import workload
from advisor.workload.stored_runs import read_runs
from advisor.workload.writing import append_run
from tests import shelf, synthetic
from tests.measure.calibrate.recorded import calibration

JOBS = ("resnet50-imagenet64-bs128", "resnet26-cifar10-bs128:2")


@pytest.fixture(scope="module")
def shelved(tmp_path_factory):
    """A folder of made-up profiles and a model, found as a user's own would be."""
    folder = tmp_path_factory.mktemp("shelf")
    shelf.fill(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ADVISOR_PROFILES", str(folder / "profiles"))
        patch.setenv("ADVISOR_MODELS", str(folder / "models"))
        patch.setenv("XDG_DATA_HOME", str(folder / "own"))
        yield folder


@pytest.fixture(scope="module")
def advised(shelved):
    return recommend(JOBS, profiles=shelved / "profiles")


def test_the_best_plans_that_can_be_run_are_chosen_in_their_order(advised):
    chosen = choose(advised, 3, "v")
    runnable = [
        str(plan.sharing)
        for plan in advised.plans
        if isinstance(plan.sharing, Serial | Naive | Mps)
    ]
    assert [plan.sharing for plan in chosen.plans] == runnable[:3]
    assert {plan.purpose for plan in chosen.plans} == {"validation"}


def test_a_better_plan_on_mig_is_left_out_in_words(advised):
    first, *others = advised.plans
    mig = next(plan for plan in others if isinstance(plan.sharing, Mig | Hybrid))
    chosen = choose(replace(advised, plans=(replace(mig, rank=1), first)), 1, "v")
    assert chosen.left_out == (f"plan 1, {mig.sharing}: nothing here makes MIG instances",)
    assert [plan.sharing for plan in chosen.plans] == [str(first.sharing)]


def test_a_serial_plan_runs_each_workload_alone_and_copies_once(advised):
    serial = replace(advised, plans=(advised.serial,))
    (plan,) = choose(serial, 1, "v").plans
    assert [len(mix.workloads) for mix in mixes_of(plan)] == [1, 1]


def test_chosen_plans_are_a_file_that_collocation_takes(advised, tmp_path):
    plans = choose(advised, 4, "v").plans
    (tmp_path / "plans.json").write_text(plans_text(shelf.GPU, plans))
    assert read_plans(tmp_path / "plans.json", shelf.GPU) == plans


def test_what_recommend_prints_as_json_is_a_file_that_collocation_takes(advised, tmp_path):
    (tmp_path / "advice.json").write_text(json.dumps(recommendation_document(advised)))
    read = read_plans(tmp_path / "advice.json", shelf.GPU)
    chosen = choose(advised, 99, "v").plans
    assert [(plan.sharing, plan.workloads, plan.purpose) for plan in read] == [
        (plan.sharing, plan.workloads, plan.purpose) for plan in chosen
    ]


@pytest.mark.parametrize("lost", ["workloads", "plans"])
def test_advice_of_which_a_part_is_missing_is_refused(advised, tmp_path, lost):
    document = recommendation_document(advised)
    del document[lost]
    (tmp_path / "advice.json").write_text(json.dumps(document))
    with pytest.raises(InvalidInput, match="incomplete"):
        read_plans(tmp_path / "advice.json", shelf.GPU)


def test_advice_that_is_all_on_mig_is_refused(advised, tmp_path):
    document = recommendation_document(advised)
    document["plans"] = [each for each in document["plans"] if each["sharing"].startswith("mig")]
    (tmp_path / "advice.json").write_text(json.dumps(document))
    with pytest.raises(InvalidInput, match="on MIG"):
        read_plans(tmp_path / "advice.json", shelf.GPU)


def test_a_plan_under_a_power_cap_is_not_run_without_it(advised, tmp_path):
    document = json.loads(json.dumps(recommendation_document(advised)))
    capped, *others = [each for each in document["plans"] if each["sharing"] in ("naive", "mps")]
    capped["power_cap_w"] = 420.0
    document["plans"] = [capped, *others]
    path = tmp_path / "advice.json"
    path.write_text(json.dumps(document))
    assert {plan.sharing for plan in read_plans(path, shelf.GPU)} == {
        each["sharing"] for each in others
    }


def test_a_dry_run_names_every_process_its_environment_and_command(advised):
    limits = PlannedRun(
        id="v-plan1", sharing="mps=28,72", purpose="validation",
        workloads=tuple(job.profile.workload for job in advised.jobs[:2]),
    )  # fmt: skip
    said = [spelt(process) for process in rehearsed([limits], "0")]
    assert any("MPS daemon" in each and "nvidia-cuda-mps-control" in each for each in said)
    tenants = [each for each in said if "trains" in each]
    assert ["resnet50" in each for each in tenants] == [True, False]
    for each, limit in zip(tenants, ("28", "72"), strict=True):
        assert f"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE={limit}\n" in each
        assert "CUDA_VISIBLE_DEVICES=" in each


def test_without_such_a_gpu_plans_are_not_run_and_exit_with_4(tmp_path):
    plan = PlannedRun(
        id="v", sharing="naive", purpose="validation", workloads=(workload("mlp-toy-bs32"),)
    )
    with pytest.raises(GpuUnavailable):
        run_plans(shelf.GPU, [plan], "99", tmp_path / "runs.jsonl")


def test_plans_are_really_run_and_recorded_where_fit_finds_them(tmp_path):
    toy = workload("mlp-toy-bs32")
    plans = [PlannedRun(id="v1", sharing="naive", purpose="validation", workloads=(toy, toy))]
    store = store_file("cpu", tmp_path)
    runs = run_plans("cpu", plans, "cpu", store)
    assert [(run.id, run.purpose, run.ok, len(run.tenants)) for run in runs] == [
        ("v1", "validation", True, 2)
    ]
    assert read_runs(tmp_path / "cpu" / "runs" / "validation.jsonl") == runs


def test_runs_from_another_machine_are_compared_and_kept_once(shelved, tmp_path):
    pair = [shelf.PROFILES["resnet50-imagenet64-bs128"], shelf.PROFILES["bert-base-finetune-bs16"]]
    run = replace(synthetic.run(pair, "naive", 1.3, "v1"), purpose="validation")
    append_run(tmp_path / "runs.jsonl", run)
    for _ in range(2):
        validated = validate_file(tmp_path / "runs.jsonl", Advisor(shelf.GPU))
        assert [len(each.jobs) for each in validated.comparisons] == [2]
    assert read_runs(store_file(shelf.GPU)) == (run,)
    assert store_file(shelf.GPU).is_relative_to(shelved / "own")


@pytest.mark.usefixtures("shelved")
def test_runs_that_fit_finds_already_are_not_kept_twice(tmp_path):
    pair = [shelf.PROFILES["resnet50-imagenet64-bs128"], shelf.PROFILES["bert-base-finetune-bs16"]]
    store = store_file(shelf.GPU, tmp_path)
    store.parent.mkdir(parents=True)
    append_run(store.with_name("confirm.jsonl"), synthetic.run(pair, "naive", 1.3, "v1"))
    found = validate_file(store.with_name("confirm.jsonl"), Advisor(shelf.GPU), tmp_path)
    assert len(found.comparisons) == 1
    assert not store.exists()


@pytest.mark.usefixtures("shelved")
def test_a_run_that_was_predicted_not_to_fit_and_did_not_is_no_surprise(tmp_path):
    small = shelf.PROFILES["resnet50-imagenet64-bs128"]
    for copies, foreseen in ((40, True), (2, False)):
        run = synthetic.run([small] * copies, "naive", 1.3, f"{copies}x")
        dead = replace(run.tenants[0], outcome="out-of-memory", detail="CUDA OOM", windows=())
        file = tmp_path / f"{copies}.jsonl"
        append_run(file, replace(run, tenants=(dead, *run.tenants[1:])))
        found = validate_file(file, Advisor(shelf.GPU))
        assert found.foreseen == ((run.id,) if foreseen else ())
        with nullcontext() if foreseen else pytest.raises(OutsideInterval, match="out-of-memory"):
            check(found)
        said = str(validation_table(found).caption)
        assert ("as predicted: 40x" in said) == foreseen


def test_a_run_whose_id_is_taken_is_kept_under_its_date(tmp_path):
    store = tmp_path / "validation.jsonl"
    first = synthetic.run([synthetic.profile()] * 2, "naive", 1.3, "v1")
    second = synthetic.run([synthetic.profile()] * 2, "naive", 1.4, "v1")
    assert (keep([first], store), keep([first, second], store)) == (1, 1)
    ids = [run.id for run in read_runs(store)]
    assert ids == ["v1", f"v1-{second.provenance.date}"]


@pytest.mark.usefixtures("shelved")
def test_what_is_compared_is_what_the_plans_were_ranked_by():
    """Also where the cores of the run turn out to be of another speed than the host checked."""
    checked = replace(calibration(1.4e-3), contexts=None, switching=())
    advisor = Advisor(shelf.GPU, check_host=lambda: checked)
    names = ["resnet50-imagenet64-bs128", "bert-base-finetune-bs16"]
    pair = [shelf.PROFILES[name] for name in names]
    slow = synthetic.run(pair, "naive", 1.3, "v1")
    slow = replace(slow, tenants=tuple(replace(each, host_check_s=3e-3) for each in slow.tenants))
    (compared,) = compared_as_ranked([slow], dict(zip(names, pair, strict=True)), advisor)
    advice = advisor.predict(names, "naive").prediction
    assert [each.predicted_s for each in compared.jobs] == [each.step_s for each in advice.jobs]
    assert compared.predicted_speedup == pytest.approx(advice.weighted_speedup)
    plain = Advisor(shelf.GPU).predict(names, "naive").prediction
    assert advice.jobs[1].step_s.p50 > plain.jobs[1].step_s.p50
