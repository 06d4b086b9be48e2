import json

from advisor.measure.shared.run_list_file import plans_of_advice
from advisor.plan.forecast import Mixes, forecast
from advisor.plan.ranking import ranked
from advisor.report.documents import forecast_document, recommendation_document
from advisor.sharing import Mps
from advisor.workload.job import Job
from tests import synthetic
from tests.plan.stand_in import H200, StandIn

JOBS = [
    Job(synthetic.profile("resnet26-cifar10-bs128", host_s=0.007, gpu_s=0.002)),
    Job(synthetic.profile("resnet152-imagenet-bs128", host_s=0.01, gpu_s=0.2)),
]
OWN = {"rank", "ties_best", "late", "precedes_by", "commands", "why"}
INTERVAL = {"p05", "p50", "p95"}
JOB = {
    "job", "step_s", "epoch_s", "slowdown", "memory_mib", "memory_min_mib",
    "memory_interval_mib", "oom_probability", "energy_step_j", "energy_epoch_j", "energy_example_j",
}  # fmt: skip
ASKED = {
    "examples_per_epoch", "script", "epochs", "validation_s", "checkpoint_s", "user",
    "data_parallel", "isolated", "protect",
}  # fmt: skip
PREDICTION = {
    "gpu", "sharing", "jobs", "memory_total_mib", "memory_capacity_mib", "oom_probability",
    "weighted_speedup", "makespan_s", "makespan_interval_s", "speedup_vs_serial", "power_w",
    "energy_j", "power_cap_w", "power_cap_note", "gract", "smact", "estimated_from",
    "confirmed_on_hardware", "wide_because", "host_stretch",
}  # fmt: skip


def as_read(document):
    return json.loads(json.dumps(document, allow_nan=False))


def advice():
    return ranked(JOBS, H200, StandIn(), "makespan")


def test_a_prediction_has_the_keys_that_others_script_against():
    document = as_read(forecast_document(forecast(Mixes(JOBS, StandIn()), Mps((43, 57)))))
    standing = {
        "calibrated",
        "power_cap_w",
        "host",
        "own_paces",
        "stale",
        "unsteady",
        "estimated_profiles",
        "estimated_batches",
    }
    assert document.keys() == {"schema"} | standing | PREDICTION
    assert (document["schema"], document["sharing"]) == (1, "mps=43,57")
    assert [job.keys() for job in document["jobs"]] == [JOB, JOB]
    for interval in (document["power_w"], document["energy_j"], document["jobs"][0]["step_s"]):
        assert interval.keys() == INTERVAL
    assert document["makespan_s"] == document["makespan_interval_s"]["p50"]


def test_what_was_not_measured_is_null():
    document = as_read(forecast_document(forecast(Mixes(JOBS, StandIn()), Mps())))
    assert document["smact"] is None
    assert document["estimated_from"] is None


def test_a_recommendation_has_the_keys_that_others_script_against():
    document = as_read(recommendation_document(advice()))
    assert document.keys() == {
        "schema", "gpu", "objective", "ranked_by", "note", "calibrated", "host", "power_cap_w",
        "own_paces", "stale", "unsteady", "estimated_from", "estimated_profiles",
        "estimated_batches", "verdict",
        "workloads", "epochs", "serial", "plans", "left_out",
        "searched",
    }  # fmt: skip
    verdict = document["verdict"]
    assert verdict.keys() == {
        "answers", "text", "binding", "runner_up", "host_bound",
    }  # fmt: skip
    assert verdict["binding"].keys() == {"limit", "of_each_job", "host_shares", "uses", "memory"}
    assert verdict["runner_up"].keys() == {"rank", "sharing", "behind", "within_error"}
    for plan in (document["serial"], *document["plans"]):
        assert plan.keys() == OWN | PREDICTION
        assert [job.keys() for job in plan["jobs"]] == [JOB | ASKED] * 2
    assert document["serial"] in document["plans"]


def test_the_plans_asked_for_are_given_and_serial_beside_them():
    document = recommendation_document(advice(), top=1)
    assert [plan["rank"] for plan in document["plans"]] == [1]
    assert document["serial"]["sharing"] == "serial"


def test_advice_can_be_run_where_no_profile_lies():
    runnable = plans_of_advice(as_read(recommendation_document(advice())))
    assert all(len(plan["workloads"]) == 2 for plan in runnable["plans"])
    assert {plan["sharing"] for plan in runnable["plans"]} >= {"serial", "naive", "mps"}
