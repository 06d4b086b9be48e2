"""Real runs compared with their predictions, and advice that is run for real."""

import json
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest
from rich.console import Console

from advisor import Advisor
from advisor.documents import answer_document
from advisor.errors import InvalidInput, NothingFits, OutsideInterval, UnknownName
from advisor.files.writing import append_record
from advisor.hardware.gpus import gpu
from advisor.measure import shared_run
from advisor.measure.planned_runs import PlannedRun
from advisor.prediction.prediction import Interval
from advisor.run import validate as validation_command
from advisor.run.validate import (
    Validation,
    check,
    choose,
    compared,
    compared_as_ranked,
    corrected_by_first,
    infer_host_factor,
    keep,
    run_plans,
    run_plans_on_ray,
    store_file,
    validate_file,
    validation_table,
)
from advisor.run.watched import around_first
from advisor.sharing import parse_sharing
from advisor.workload.job import Job
from advisor.workload.profile import Window
from advisor.workload.store import read_runs
from tests import shelf, synthetic
from tests.measure.calibrate.recorded import host_check
from tests.test_schemas import problems

H200 = gpu("h200-141gb")
PAIR = [
    synthetic.profile("resnet50-imagenet64-bs128"),
    synthetic.profile("bert-base-finetune-bs16"),
]
PROFILES = {each.name: each for each in PAIR}


class SaysTwice:
    """Predicts that sharing doubles every step, give or take a tenth."""

    def predict(self, profiles, sharing):
        times = 1.0 if str(sharing) == "serial" else 2.0
        steps_s = [
            Interval(0.9 * times * each.step_s, times * each.step_s, 1.1 * times * each.step_s)
            for each in profiles
        ]
        jobs = [SimpleNamespace(step_s=step_s, memory_mib=4000.0) for step_s in steps_s]
        return SimpleNamespace(jobs=jobs)


def advised_run(sharing, slowdown, run_id, jobs=PAIR):
    return replace(synthetic.run(jobs, sharing, slowdown, run_id), purpose="validation")


def comparisons(*runs):
    return compared(runs, PROFILES, SaysTwice(), H200)


def validation(*runs):
    compared = comparisons(*runs)
    return Validation(H200, runs, compared, corrected_by_first(compared, PROFILES))


def test_each_job_has_its_predicted_and_its_measured_step(capsys):
    validated = validation(advised_run("mps", 1.9, "v1"))
    (run,) = validated.comparisons
    assert [job.error for job in run.jobs] == pytest.approx([2 / 1.9 - 1] * 2)
    assert all(job.inside for job in run.jobs)
    Console(width=90).print(validation_table(validated))
    shown = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "mps 1.00x 1.05x -5.0 %" in shown
    assert "bert-base-finetune-bs16 20.00 18.00 to 22.00 19.00 ms 5.3 %" in shown


def test_the_first_window_of_a_run_tells_its_rest_and_the_host_of_the_next():
    quick, slow = Window(1.0, 100.0), Window(1.0, 40.0)  # 20 ms a step are predicted

    def paced(run_id, *windows):
        run = advised_run("mps", 2.0, run_id)
        return replace(run, tenants=tuple(replace(t, windows=windows) for t in run.tenants))

    steady, slower, short = paced("v1", slow, slow), paced("v2", quick, slow), paced("v3", slow)
    validated = validation(steady, slower, short)
    rests = [[pair[0].contains(pair[1]) for pair in c.rest_s] for c in validated.corrections]
    assert rests == [[True, True], [False, False], []]
    first, second, third = validated.corrections
    assert first.by_host_s == ()
    assert first.host_factor > 1 > second.host_factor
    assert [step_s.p50 > 0.02 for step_s in second.by_host_s] == [True, True]
    assert [step_s.p50 < 0.02 for step_s in third.by_host_s] == [True, True]
    document = answer_document(validated)
    assert problems("validation", json.loads(json.dumps(document))) == []
    rest_s, measured_s = document["corrections"][1]["rest_s"][0]
    assert (rest_s["p50"], measured_s) == (pytest.approx(0.01), pytest.approx(0.025))


def test_a_step_outside_its_interval_is_listed_and_exits_with_5():
    runs = [advised_run("mps", 2.0, "v1"), advised_run("naive", 3.0, "v2")]
    with pytest.raises(OutsideInterval, match="v2: bert-base-finetune-bs16") as refusal:
        check(validation(*runs))
    assert refusal.value.exit_code == 5
    assert "v1" not in str(refusal.value)


def test_runs_of_another_gpu_or_of_unprofiled_workloads_are_refused_with_the_command_that_helps():
    stranger = advised_run("mps", 2.0, "v1", [synthetic.profile("mlp-toy-bs32")] * 2)
    with pytest.raises(UnknownName, match="advisor profile mlp-toy-bs32"):
        comparisons(stranger)
    with pytest.raises(InvalidInput, match="--gpu a100-40gb"):
        comparisons(replace(advised_run("mps", 2.0, "v1"), gpu="a100-40gb"))


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


def test_the_best_plans_that_can_be_run_are_chosen_in_their_order():
    ways = ("mig=4g.71gb[1]+3g.71gb[2]", "mps=40,60", "naive[1];naive[2]", "mps", "serial", "naive")
    plans = [
        SimpleNamespace(rank=rank, sharing=parse_sharing(sharing))
        for rank, sharing in enumerate(ways, start=1)
    ]
    advised = SimpleNamespace(plans=plans, jobs=tuple(map(Job, PAIR)))
    chosen, left_out = choose(advised, 3, "v")
    assert [plan.sharing for plan in chosen] == ["mps=40,60", "mps", "serial"]
    assert [plan.id for plan in chosen] == ["v-plan2", "v-plan4", "v-plan5"]
    assert {plan.purpose for plan in chosen} == {"validation"}
    assert [line.split(",")[0] for line in left_out] == ["plan 1", "plan 3"]
    with pytest.raises(NothingFits):
        choose(SimpleNamespace(plans=plans[:1], jobs=advised.jobs), 3, "v")


def measured(task, *_):
    """A run whose jobs are never slowed."""
    profiles = [synthetic.profile(each.name) for each in task.workloads]
    return replace(synthetic.run(profiles, task.sharing, 1.0, task.id), purpose=task.purpose)


@pytest.mark.parametrize("ray", [False, True])
def test_plans_become_records_where_fit_finds_them_here_and_on_a_cluster(
    tmp_path, monkeypatch, ray
):
    jobs = tuple(profile.workload for profile in PAIR)
    plans = [
        PlannedRun(id=f"v-plan{at}", sharing=sharing, purpose="validation", workloads=jobs)
        for at, sharing in enumerate(("mps", "serial", "mps=40,60"), start=1)
    ]
    key = H200.key if ray else "cpu"
    store = store_file(key, tmp_path)
    if ray:
        wanted = []

        def runners(address, settings, most):
            wanted.append((address, settings.campaign.gpu, most))
            nothing = {"start": lambda: None, "stop": lambda: None}
            names = ("a-0", "b-1")
            return [SimpleNamespace(name=name, measured=measured, **nothing) for name in names]

        monkeypatch.setattr(validation_command, "cluster_runners", runners)
        runs = run_plans_on_ray(key, plans, "auto", store)
        assert wanted == [("auto", key, 4)]
    else:
        entry = []
        monkeypatch.setattr(shared_run, "measure", measured)
        monkeypatch.setattr(
            validation_command,
            "supervise",
            lambda name, document: entry.append(name) or shared_run.run_list(document),
        )
        runs = run_plans(key, [replace(each, sharing="naive") for each in plans], "cpu", store)
        assert entry == ["advisor.measure.shared_run:run_list"]
    kept = [run for path in store.parent.glob("*.jsonl") for run in read_runs(path)]
    assert sorted(run.id for run in kept) == sorted(run.id for run in runs)
    of_serial = ["v-plan2.1", "v-plan2.2"] if ray else ["v-plan2"]
    ids = ["v-plan1", *of_serial, "v-plan3"]
    assert [run.id for run in runs] == ids
    assert {run.purpose for run in runs} == {"validation"}


def test_runs_from_another_machine_are_compared_and_kept_once(shelved, tmp_path):
    pair = [shelf.PROFILES["resnet50-imagenet64-bs128"], shelf.PROFILES["bert-base-finetune-bs16"]]
    run = replace(synthetic.run(pair, "naive", 1.3, "v1"), purpose="validation")
    append_record(tmp_path / "runs.jsonl", run)
    for _ in range(2):
        validated = validate_file(tmp_path / "runs.jsonl", Advisor(shelf.GPU))
        assert [len(each.jobs) for each in validated.comparisons] == [2]
    assert read_runs(store_file(shelf.GPU)) == (run,)
    assert store_file(shelf.GPU).is_relative_to(shelved / "own")


@pytest.mark.usefixtures("shelved")
def test_a_run_that_was_predicted_not_to_fit_and_did_not_is_no_surprise(tmp_path):
    small = shelf.PROFILES["resnet50-imagenet64-bs128"]
    for copies, foreseen in ((40, True), (2, False)):
        run = synthetic.run([small] * copies, "naive", 1.3, f"{copies}x")
        dead = replace(run.tenants[0], outcome="out-of-memory", detail="CUDA OOM", windows=())
        file = tmp_path / f"{copies}.jsonl"
        append_record(file, replace(run, tenants=(dead, *run.tenants[1:])))
        validated = validate_file(file, Advisor(shelf.GPU))
        assert validated.foreseen == ((run.id,) if foreseen else ())
        with nullcontext() if foreseen else pytest.raises(OutsideInterval, match="out-of-memory"):
            check(validated)
        caption = str(validation_table(validated).caption)
        assert ("as predicted: 40x" in caption) == foreseen


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
    advisor = Advisor(shelf.GPU, host_check=host_check(1.4e-3))
    names = ["resnet26-cifar10-bs128", "bert-base-finetune-bs16"]
    pair = [shelf.PROFILES[name] for name in names]
    slow = synthetic.run(pair, "naive", 1.3, "v1")
    slow = replace(slow, tenants=tuple(replace(each, host_check_s=3e-3) for each in slow.tenants))
    (compared,) = compared_as_ranked([slow], dict(zip(names, pair, strict=True)), advisor)
    advice = advisor.predict(names, "naive").prediction
    assert [each.predicted_s for each in compared.jobs] == [each.step_s for each in advice.jobs]
    assert compared.predicted_speedup == pytest.approx(advice.weighted_speedup)
    plain = Advisor(shelf.GPU).predict(names, "naive").prediction
    assert advice.jobs[0].step_s.p50 > plain.jobs[0].step_s.p50


HOST, GPU = synthetic.profile(host_s=0.01, gpu_s=0.002), synthetic.profile(gpu_s=0.03)


def test_a_slow_host_shows_in_host_bound_jobs_and_the_more_the_more_of_them_run():
    assert infer_host_factor([HOST, GPU], [0.01, 0.03], [0.01, 0.03]) == 1
    one, three = (infer_host_factor([HOST] * n, [0.01] * n, [0.013] * n) for n in (1, 3))
    assert 1 < one < three < 1.3
    assert 1 < infer_host_factor([GPU], [0.06], [0.078]) < one


def test_a_gpu_bound_job_keeps_its_pace_better_than_a_host_bound_one():
    ends = [around_first(0.05, gpu_bound=each is GPU) for each in (GPU, HOST)]
    assert [each.p95 / each.p05 for each in ends] == pytest.approx([1.04, 1.19], abs=0.01)
