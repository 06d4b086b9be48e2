"""What forbids a way of sharing, and the reason that is given."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.plan.rules import Conditions, broken_rule, memory_problem, mps_clients
from advisor.sharing import Mps, Serial, parse_sharing
from advisor.workload.job import Job
from tests import synthetic
from tests.plan.stand_in import H200, StandIn, ranked

PROFILE = synthetic.profile("bert-base-finetune-bs16", host_s=0.02, gpu_s=0.01)
PLAIN = Job(PROFILE)
ADA, BEN = Job(PROFILE, user="ada"), Job(PROFILE, user="ben")
ALONE, PARALLEL = Job(PROFILE, isolated=True), Job(PROFILE, data_parallel=True)


def why(jobs, text, conditions=None):
    """The reason of the first rule that `text` breaks; None where it breaks none."""
    return broken_rule(jobs, parse_sharing(text), H200, conditions or Conditions())


@pytest.mark.parametrize(
    ("jobs", "text", "said"),
    [
        ([ADA, BEN], "mps", "one user at a time, and these jobs are of ada and ben"),
        ([ADA, BEN], "mps=50,50", "one user"),
        ([ADA, PLAIN], "mps", "ada and an unnamed user"),
        ([ADA, ADA, BEN], "mig=3g.71gb[1]+4g.71gb[2,3]/mps", "one user"),
        ([ADA, BEN, BEN], "naive[3];mps[1,2]", "one user"),
        ([ALONE, PLAIN], "naive", "is isolated"),
        ([ALONE, PLAIN], "mps", "is isolated"),
        ([PLAIN, ALONE], "mig=3g.71gb[1,2]", "is isolated"),
        ([PLAIN, ALONE], "mig=7g.141gb/ci=3c[1]+4c[2]", "is isolated"),
        ([PLAIN, ALONE, PLAIN], "naive[1];naive[2,3]", "is isolated"),
        ([PARALLEL, PLAIN], "mig=3g.71gb,4g.71gb", "NCCL does not run on MIG"),
        ([PLAIN, PARALLEL], "naive[1];mig=7g.141gb[2]", "NCCL"),
        ([PLAIN] * 49, "mps", "MPS serves at most 48 processes, not 49"),
        ([PLAIN] * 7, "mig=1g.18gb[1,2,3,4,5,6,7]/mps", "serves at most 6 processes, not 7"),
    ],
)
def test_what_is_forbidden_is_said_in_words(jobs, text, said):
    assert said in why(jobs, text)


@pytest.mark.parametrize(
    ("jobs", "text"),
    [
        ([ADA, BEN], "serial"),
        ([ADA, BEN], "naive"),
        ([ADA, ADA], "mps"),
        ([ADA, BEN], "mps[1];mps[2]"),
        ([ADA, ADA, BEN], "mig=3g.71gb[3]/mps+4g.71gb[1,2]/mps"),
        ([ALONE, PLAIN], "serial"),
        ([ALONE, PLAIN], "mig=3g.71gb,4g.71gb"),
        ([ALONE, PLAIN, PLAIN], "mig=3g.71gb[1]+4g.71gb[2,3]/mps"),
        ([ALONE, PLAIN, PLAIN], "naive[1];naive[2,3]"),
        ([PARALLEL, PLAIN], "mps"),
        ([PARALLEL, PLAIN], "mps[1];mig=7g.141gb[2]"),
        ([PLAIN] * 6, "mig=1g.18gb[1,2,3,4,5,6]/mps"),
    ],
)
def test_what_is_allowed_breaks_no_rule(jobs, text):
    assert why(jobs, text) is None


@pytest.mark.parametrize("text", ["mig=3g.71gb,4g.71gb", "naive[1];mig=3g.71gb[2]"])
def test_without_root_there_is_no_mig(text):
    assert "needs root" in why([PLAIN] * 2, text, Conditions(root=False))
    assert why([PLAIN] * 2, "mps", Conditions(root=False)) is None


@pytest.mark.parametrize(
    ("cuda", "clients"), [(None, 48), ("12.8", 48), ("13.0", 48), ("13.1", 60), ("14.0.1", 60)]
)
def test_newer_drivers_serve_more_mps_clients(cuda, clients):
    assert mps_clients(H200, cuda) == clients


def test_a_margin_is_kept_free_by_the_upper_ends_of_what_jobs_take():
    large = replace(PROFILE, memory=replace(PROFILE.memory, device_mib=60_000.0))
    # 120,000 MiB of 143,156, and 10 % more at the upper end.
    mix = StandIn().predict([large, large], Mps())
    assert memory_problem(mix, H200) is None
    assert memory_problem(mix, H200, 0.05) is None
    assert "leaves less than 10 % of memory free" in memory_problem(mix, H200, 0.1)
    turns = StandIn().predict([large, large], Serial())
    assert memory_problem(turns, H200, 0.1) is None


JOBS = st.builds(
    Job,
    st.just(PROFILE),
    user=st.sampled_from([None, "ada"]),
    isolated=st.booleans(),
    data_parallel=st.booleans(),
)


@settings(deadline=None)
@given(st.lists(JOBS, min_size=1, max_size=4), st.booleans())
def test_no_plan_breaks_a_rule(jobs, root):
    conditions = Conditions(root=root)
    advised = ranked(jobs, H200, StandIn(), "makespan", conditions)
    for plan in advised.plans:
        assert broken_rule(jobs, plan.sharing, H200, conditions) is None
    assert isinstance(advised.serial.sharing, Serial)
