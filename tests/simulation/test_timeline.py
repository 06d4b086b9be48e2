import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.simulation.timeline import Phase, finish_times, one_by_one, together

steps = st.floats(1, 1e6)
speeds = st.floats(0.01, 1e3)
jobs = st.lists(st.tuples(steps, speeds), min_size=1, max_size=6)


def fair(alone):
    """Each of n jobs at one n-th of the speed it has alone."""
    return lambda running: [alone[job] / len(running) for job in running]


def unhindered(alone):
    return lambda running: [alone[job] for job in running]


def in_small_steps(work, pace, dt):
    """The slow, obvious twin: advance the clock by `dt` until nobody has work left."""
    left, ends, now = dict(enumerate(work)), {}, 0.0
    while left:
        running = tuple(left)
        for job, speed in zip(running, pace(running), strict=True):
            left[job] -= speed * dt
        now += dt
        for job in [job for job, rest in left.items() if rest <= 0]:
            ends[job] = now
            del left[job]
    return [ends[job] for job in sorted(ends)]


def test_the_rest_speed_up_when_a_job_ends():
    phases = together([10, 5], fair([1, 1]))
    assert phases == (Phase(0, 10, (0, 1)), Phase(10, 15, (0,)))
    assert finish_times(phases) == [15, 10]


def test_equal_jobs_end_together_in_one_phase():
    assert len(together([7.3] * 5, fair([0.1] * 5))) == 1


def test_one_after_the_other_adds_up():
    assert finish_times(one_by_one([10, 5, 1], fair([1, 2, 4]))) == [10, 12.5, 12.75]


@pytest.mark.parametrize(
    ("work", "alone"),
    [([3, 5, 8], [1, 1, 1]), ([4, 4, 4], [1, 2, 0.5]), ([1, 9], [3, 2]), ([6], [1.5])],
)
def test_the_exact_loop_agrees_with_small_time_steps(work, alone):
    dt = 1e-3
    exact = finish_times(together(work, fair(alone)))
    assert exact == pytest.approx(in_small_steps(work, fair(alone), dt), abs=len(work) * 2 * dt)


@given(jobs)
def test_every_step_of_work_is_done_once(each):
    work, alone = zip(*each, strict=True)
    pace = fair(alone)
    done = [0.0] * len(work)
    for phase in together(work, pace):
        for job, speed in zip(phase.running, pace(phase.running), strict=True):
            done[job] += speed * phase.seconds
    assert done == pytest.approx(list(work), rel=1e-6)


@given(jobs)
def test_nobody_ends_earlier_than_alone(each):
    work, alone = zip(*each, strict=True)
    ends = finish_times(together(work, fair(alone)))
    assert all(
        end >= 0.999999 * todo / speed for end, todo, speed in zip(ends, work, alone, strict=True)
    )


@given(jobs)
def test_sharing_fairly_never_changes_when_the_last_job_ends(each):
    work, alone = zip(*each, strict=True)
    shared = max(finish_times(together(work, fair(alone))))
    assert shared == pytest.approx(max(finish_times(one_by_one(work, unhindered(alone)))))


@given(jobs)
def test_jobs_that_do_not_interact_end_as_if_alone(each):
    work, alone = zip(*each, strict=True)
    ends = finish_times(together(work, unhindered(alone)))
    assert ends == pytest.approx([w / s for w, s in zip(work, alone, strict=True)])
