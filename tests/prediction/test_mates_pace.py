"""A job that fills the GPU follows, in turns, the pace of mates that wait for their hosts."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.hardware.catalogue import gpu
from advisor.prediction.mates_pace import mates_spread, widened
from advisor.prediction.model_file import load_model
from advisor.prediction.predictor import Predictor
from advisor.sharing import Naive
from advisor.workload.measured import Window
from advisor.workload.store import model_path
from advisor.workload.stored_runs import read_runs
from research.files import BENCHMARKS, profiles_in
from tests import synthetic

FILLS = synthetic.profile("resnet152-imagenet-bs128", host_s=0.01, gpu_s=0.1)
WAITS = synthetic.profile("resnet26-cifar10-bs128", host_s=0.01, gpu_s=0.002)
SCRIPTS = BENCHMARKS / "scripts" / "commands-h200"


def paced(profile, *steps_s):
    """`profile` with a window of each pace."""
    return replace(profile, windows=tuple(Window(step_s, 1) for step_s in steps_s))


def test_what_a_mate_leaves_at_its_slowest_and_its_fastest_lies_a_deviation_away():
    fast_s, slow_s = 0.0095, 0.0105
    mate = paced(WAITS, fast_s, slow_s)
    left_s = [FILLS.gpu_s / (1 - mate.gpu_s / step_s) for step_s in (slow_s, 0.01, fast_s)]
    spread, _ = mates_spread([FILLS, mate], np.array([left_s[1], 0.01]))
    assert spread == pytest.approx(np.log(left_s[2] / left_s[0]) / 2, rel=0.02)


def test_steady_mates_and_mates_that_do_not_wait_for_their_hosts_leave_a_range_as_it_is():
    wild = paced(FILLS, 0.08, 0.12)
    for mate in (paced(WAITS, 0.01, 0.01), wild):
        assert mates_spread([FILLS, mate], np.array([0.2, 0.2]))[0] == 0


def test_a_job_that_waits_for_its_host_keeps_its_own_range():
    assert mates_spread([WAITS, paced(WAITS, 0.008, 0.012)], np.array([0.01, 0.01]))[0] == 0


@given(
    low=st.floats(-1, 0), high=st.floats(0, 1), less=st.floats(0, 1), more=st.floats(0, 1)
)  # fmt: skip
def test_the_more_mates_vary_the_wider_the_range(low, high, less, more):
    less, more = sorted((less, more))
    ends = [widened(np.array([low]), np.array([high]), np.array([each])) for each in (less, more)]
    (low_less, high_less), (low_more, high_more) = ends
    assert low_more <= low_less <= low + 1e-12
    assert high_more >= high_less >= high - 1e-12


def test_beside_scripts_whose_steps_varied_a_measured_step_lies_in_the_range():
    profiles = profiles_in(SCRIPTS / "profiles")
    (run,) = read_runs(SCRIPTS / "runs-m5-naive.jsonl")
    jobs = [profiles[tenant.workload.name] for tenant in run.tenants]
    at = [job.name for job in jobs].index("timm_style_128")
    predictor = Predictor(gpu(run.gpu), load_model(model_path(None))).on_known_cores()
    found = predictor.predict(jobs, Naive()).jobs[at].step_s
    assert found.p05 < run.tenants[at].step_s < found.p95
    steady = [paced(job, job.step_s) for job in jobs]
    assert predictor.predict(steady, Naive()).jobs[at].step_s.p05 > run.tenants[at].step_s
