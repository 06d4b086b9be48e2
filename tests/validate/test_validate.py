import json
from dataclasses import replace

import pytest
from rich.console import Console

from advisor.errors import InvalidInput, OutsideInterval, UnknownName
from advisor.hardware.catalogue import gpu
from advisor.prediction.interval import Interval
from advisor.prediction.mix_prediction import JobPrediction, MixPrediction
from advisor.validate.validate import (
    Validation,
    check,
    compared,
    validation_document,
    validation_table,
)
from tests import synthetic

H200 = gpu("h200-141gb")
PAIR = [
    synthetic.profile("resnet50-imagenet64-bs128"),
    synthetic.profile("bert-base-finetune-bs16"),
]
PROFILES = {each.name: each for each in PAIR}


class SaysTwice:
    """Predicts that sharing doubles every step, give or take a tenth."""

    def predict(self, profiles, sharing):
        slowdown = 1.0 if str(sharing) == "serial" else 2.0
        jobs = tuple(self.job(each, slowdown * each.step_s) for each in profiles)
        return MixPrediction(
            gpu=H200.key, sharing=sharing, jobs=jobs, memory_total_mib=8000.0,
            memory_capacity_mib=143771.0, oom_probability=0.0,
            weighted_speedup=len(jobs) / slowdown, power_w=None, gract=None, smact=None,
            confirmed_on_hardware=True,
        )  # fmt: skip

    def job(self, profile, step_s):
        memory = Interval(3900.0, 4000.0, 4100.0)
        return JobPrediction(
            job=profile.name, step_s=Interval(0.9 * step_s, step_s, 1.1 * step_s), epoch_s=None,
            slowdown=step_s / profile.step_s, memory_mib=4000.0, memory_min_mib=3000.0,
            memory_interval_mib=memory, oom_probability=0.0,
        )  # fmt: skip


def advised(sharing, slowdown, run_id, jobs=PAIR):
    return replace(synthetic.run(jobs, sharing, slowdown, run_id), purpose="validation")


def comparisons(*runs):
    return compared(runs, PROFILES, SaysTwice(), H200)


def validation(*runs):
    return Validation(H200, runs, comparisons(*runs))


def test_predicted_stands_beside_measured_for_each_job(capsys):
    validated = validation(advised("mps", 1.9, "v1"))
    (run,) = validated.comparisons
    assert [job.error for job in run.jobs] == pytest.approx([2 / 1.9 - 1] * 2)
    assert all(job.inside for job in run.jobs)
    Console(width=90).print(validation_table(validated))
    shown = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "mps 1.00x 1.05x -5.0 %" in shown
    assert "bert-base-finetune-bs16 20.00 18.00 to 22.00 19.00 ms 5.3 %" in shown


def test_a_serial_plan_is_run_as_each_job_alone_and_predicted_as_such():
    document = validation_document(validation(advised("naive", 1.0, "v1.1", PAIR[:1])))
    assert document["runs"][0]["sharing"] == "serial"
    assert document["runs"][0]["jobs"][0]["error"] == pytest.approx(0)


def test_advice_that_came_true_passes():
    runs = [advised("mps", 2.1, "v1"), advised("naive", 1.9, "v2")]
    check(validation(*runs))


def test_a_step_outside_its_interval_is_listed_and_exits_with_5():
    runs = [advised("mps", 2.0, "v1"), advised("naive", 3.0, "v2")]
    with pytest.raises(OutsideInterval, match="v2: bert-base-finetune-bs16") as refusal:
        check(validation(*runs))
    assert refusal.value.exit_code == 5
    assert "v1" not in str(refusal.value)


def test_a_tenant_that_ran_out_of_memory_was_predicted_wrongly():
    run = advised("mps", 2.0, "v1")
    dead = replace(run.tenants[0], outcome="out-of-memory", detail="CUDA OOM", windows=())
    broken = replace(run, tenants=(dead, run.tenants[1]))
    with pytest.raises(OutsideInterval, match="out-of-memory"):
        check(validation(broken))


def test_a_run_whose_workload_was_never_profiled_is_refused_with_the_command_that_helps():
    stranger = advised("mps", 2.0, "v1", [synthetic.profile("mlp-toy-bs32")] * 2)
    with pytest.raises(UnknownName, match="advisor profile mlp-toy-bs32"):
        comparisons(stranger)


def test_runs_of_another_gpu_are_refused():
    with pytest.raises(InvalidInput, match="--gpu a100-40gb"):
        comparisons(replace(advised("mps", 2.0, "v1"), gpu="a100-40gb"))


def test_the_document_is_json():
    document = validation_document(validation(advised("mps", 2.0, "v1")))
    again = json.loads(json.dumps(document, allow_nan=False))
    assert again["runs"][0]["weighted_speedup"] == {"predicted": 1.0, "measured": 1.0}
