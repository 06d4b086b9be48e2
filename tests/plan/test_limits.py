from hypothesis import given
from hypothesis import strategies as st

from advisor.plan.search.limit_tuning import limit_vectors
from tests import synthetic

profiles = st.lists(
    st.builds(synthetic.profile, host_s=st.floats(1e-3, 1), gpu_s=st.floats(1e-4, 1)),
    min_size=2,
    max_size=8,
)


@given(profiles)
def test_every_job_has_a_limit_that_mps_takes_and_no_vector_is_tried_twice(jobs):
    vectors = limit_vectors(jobs)
    assert len(set(vectors)) == len(vectors)
    for vector in vectors:
        assert len(vector.limits) == len(jobs)
        assert all(1 <= limit <= 100 and limit == int(limit) for limit in vector.limits)


@given(profiles)
def test_equal_limits_never_leave_a_tenth_of_the_gpu_to_nobody(jobs):
    equal = [each.limits for each in limit_vectors(jobs) if len(set(each.limits)) == 1]
    assert equal
    assert all(sum(limits) >= 90 for limits in equal)


def test_a_job_that_asks_for_more_of_the_sms_gets_the_higher_limit():
    greedy = synthetic.profile(host_s=0.01, gpu_s=0.1)
    modest = synthetic.profile(host_s=0.01, gpu_s=0.001)
    unequal = [e.limits for e in limit_vectors([greedy, modest]) if len(set(e.limits)) > 1]
    assert unequal
    assert all(limits[0] > limits[1] for limits in unequal)


def test_a_handful_of_vectors_is_tried_whatever_the_number_of_jobs():
    for degree in (2, 3, 7, 48):
        assert 2 <= len(limit_vectors([synthetic.profile()] * degree)) <= 10
