import os
from pathlib import Path
from time import time

import pytest

from advisor.errors import AdvisorError, InvalidInput
from advisor.measure.process.tenant_handle import Ended
from advisor.measure.process.tenants import ask_all, tenants_on
from advisor.measure.process.worker import TenantSetup, without_mps
from advisor.workload.named_workloads import timm_workload, workload
from tests.measure.process.odd_verbs import odd_verbs

CORES = tuple(sorted(os.sched_getaffinity(0)))
SETUP = TenantSetup("cpu", CORES[:1], {})


@pytest.fixture
def sat(workers_folder):
    """Sits tenants who do odd things."""

    def sit(*setups):
        return tenants_on(setups, Path(workers_folder), odd_verbs)

    return sit


def test_a_tenant_says_what_it_measures_with(sat):
    import torch

    with sat(SETUP) as (tenant,):
        assert tenant.versions["torch"] == torch.__version__
        assert tenant.versions["timm"]


def test_a_tenant_has_its_own_cores_environment_and_one_thread(sat):
    limit = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "43"}
    with sat(TenantSetup("cpu", CORES[-1:], limit), SETUP) as (limited, free):
        assert limited.ask("place")["cores"] == CORES[-1:]
        assert limited.ask("place")["mps"] == limit
        assert free.ask("place")["mps"] == {}
        assert free.ask("place")["threads"] == 1


def test_what_the_caller_set_for_mps_reaches_no_tenant():
    environment = {"CUDA_MPS_PIPE_DIRECTORY": "/x", "CUDA_MPS_CLIENT_PRIORITY": "1", "HOME": "/h"}
    assert without_mps(environment) == {"HOME": "/h"}


def test_tenants_keep_their_temporary_files_where_they_were_told(sat, workers_folder):
    with sat(SETUP) as (tenant,):
        assert tenant.ask("place")["temporary"] == workers_folder


def test_all_are_told_before_any_answers(sat):
    with sat(SETUP, SETUP) as tenants:
        words = [{"word": "a"}, {"word": "b"}]
        answers = ask_all(tenants, "echo", words)
    assert [answer["word"] for answer in answers] == ["a", "b"]


@pytest.mark.parametrize(
    ("verb", "outcome", "said"),
    [
        ("exhaust", "out-of-memory", "Tried to allocate 2.00 GiB."),
        ("alloc_failed", "out-of-memory", "CUBLAS_STATUS_ALLOC_FAILED"),
        ("break", "died", "illegal memory access"),
        ("kill", "died", "killed by SIGKILL"),
        ("exit", "died", "exit status 3"),
    ],
)
def test_however_a_tenant_ends_it_is_an_outcome(sat, verb, outcome, said):
    with sat(SETUP, SETUP) as (tenant, other):
        ended = tenant.ask(verb)
        assert isinstance(ended, Ended)
        assert ended.outcome == outcome
        assert said in ended.detail
        assert "\n" not in ended.detail
        assert tenant.ask("echo", word="still?") == ended
        assert other.ask("echo", word="yes")["word"] == "yes"


def test_a_tenant_that_keeps_silent_is_ended(sat):
    with sat(SETUP) as (tenant,):
        ended = tenant.ask("sleep", timeout_s=0.2, seconds=600)
    assert ended.outcome == "died"
    assert "gave no answer" in ended.detail


def test_what_the_user_got_wrong_is_no_outcome_but_a_refusal(sat):
    with sat(SETUP) as (tenant,):
        with pytest.raises(InvalidInput, match="resnet50"):
            tenant.ask("refuse")
        with pytest.raises(AdvisorError, match="cannot be"):
            tenant.ask("fail")


def test_no_tenant_outlives_its_block_even_if_the_block_fails(sat):
    pids = []

    def fail():
        with sat(SETUP, SETUP) as tenants:
            pids.extend(tenant.pid for tenant in tenants)
            tenants[0].send("sleep", seconds=600)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert len(pids) == 2
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_a_tenant_trains_from_one_moment_to_another(workers_folder):
    with tenants_on([SETUP], Path(workers_folder)) as (tenant,):
        loaded = tenant.ask("load", workload=workload("mlp-toy-bs32"))
        assert loaded["pid"] == tenant.pid
        assert loaded["sms"] is None
        start_at = time() + 0.05
        stop_at = start_at + 0.1
        ends = tenant.ask("run", start_at=start_at, stop_at=stop_at)["completed_at"]
        assert time() >= stop_at
        assert ends == sorted(ends)
        assert ends[0] > start_at
        assert all(end < stop_at for end in ends[:-1]), "no step begins after it"
        assert len(tenant.ask("run", start_at=0.0, stop_at=0.0)["completed_at"]) == 1


def test_a_model_that_nobody_has_is_refused_before_anything_runs(workers_folder):
    unknown = timm_workload("resnet51", resolution=32, classes=10, batch=2)
    with (
        tenants_on([SETUP], Path(workers_folder)) as (tenant,),
        pytest.raises(InvalidInput, match="resnet51"),
    ):
        tenant.ask("load", workload=unknown)


def test_a_tenant_that_loaded_nothing_cannot_train(workers_folder):
    with (
        tenants_on([SETUP], Path(workers_folder)) as (tenant,),
        pytest.raises(AdvisorError, match="must load"),
    ):
        tenant.ask("run", start_at=0.0, stop_at=0.0)
