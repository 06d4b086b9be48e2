"""Profiles made with something else than is there now."""

from dataclasses import replace

from advisor.measure.process.this_machine import present_machine
from advisor.workload.staleness import Present, odd_ones, present_of, stale_profiles
from tests import synthetic

HERE = present_of(synthetic.PROVENANCE)
A = replace(synthetic.profile("resnet50-imagenet64-bs128"), host_check_s=None)
B = replace(synthetic.profile("bert-base-finetune-bs16"), host_check_s=1e-3)


def test_profiles_made_here_are_not_stale():
    assert stale_profiles([A, B], HERE) == ()


def test_a_patch_of_driver_or_torch_makes_no_profile_stale():
    assert stale_profiles([A], replace(HERE, driver="580.159.04", torch="2.11.3+cu130")) == ()


def test_another_driver_torch_or_host_is_said_once_each_with_the_jobs_and_what_to_do():
    there = replace(HERE, driver="590.1", torch="2.12.0", host_cores=64)
    driver, torch, host = map(str, stale_profiles([A, B, A], there))
    assert "2 of 2 jobs" in driver
    assert "driver 580, and here it is 590" in driver
    assert f"`advisor profile {A.name} {B.name}`." in driver
    assert "torch 2.11, and here it is 2.12" in torch
    assert "16 cores, and here it is synthetic, 64 cores" in host
    assert "advisor calibrate" in host
    assert "advisor calibrate" not in driver


def test_a_calibrated_host_makes_only_profiles_stale_that_do_not_know_their_own():
    (host,) = stale_profiles([A, B], replace(HERE, host_cpu="another"), host_known=True)
    assert host.jobs == (A.name,)


def test_of_what_is_unknown_nothing_is_said():
    assert stale_profiles([A, B], Present()) == ()


def test_without_a_gpu_of_that_model_there_is_no_present_machine():
    assert present_machine("no-such-gpu") is None


def test_runs_measured_with_another_driver_or_torch_than_most_are_counted():
    most = synthetic.PROVENANCE
    assert odd_ones([most] * 3) is None
    said = odd_ones([replace(most, driver="570.1"), most, most, replace(most, driver=None)])
    assert said.startswith("most were measured with driver 580 and torch 2.11")
    assert "1 with driver 570 and torch 2.11" in said
    assert "1 with driver unknown" in said
