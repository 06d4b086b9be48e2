import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import NothingFits
from advisor.sharing import Naive, Serial
from advisor.timeline.event_loop import PlacedJob, Stretch, Task, run
from advisor.timeline.queue_policies import GpuCapacity, InOrder
from advisor.timeline.waiting_jobs import from_the_start

steps = st.floats(1, 1e6)
speeds = st.floats(0.01, 1e3)
moments = st.floats(0, 1e5)
jobs = st.lists(st.tuples(steps, speeds), min_size=1, max_size=6)
arriving = st.lists(st.tuples(steps, speeds, moments), min_size=1, max_size=8)


def fair(alone):
    """Each of n jobs at one n-th of the speed it has alone."""
    return lambda seats: [alone[seat.job] / len(seats) for seat in seats]


def unhindered(alone):
    return lambda seats: [alone[seat.job] for seat in seats]


def together(work, pace):
    return from_the_start(Naive(), work, pace)


def first_come(places):
    return InOrder(GpuCapacity(tuple(range(places))))


def in_small_steps(work, pace, dt):
    """The slow, obvious twin: advance the clock by `dt` until nobody has work left."""
    left, ends, now = dict(enumerate(work)), {}, 0.0
    while left:
        running = tuple(PlacedJob(job, job) for job in left)
        for (job, _), speed in zip(running, pace(running), strict=True):
            left[job] -= speed * dt
        now += dt
        for job in [job for job, rest in left.items() if rest <= 0]:
            ends[job] = now
            del left[job]
    return [ends[job] for job in sorted(ends)]


def test_the_rest_speed_up_when_a_job_ends():
    history = together([10, 5], fair([1, 1]))
    assert history.stretches == (
        Stretch(0, 0, 10, (PlacedJob(0, 0), PlacedJob(1, 1)), (0.5, 0.5)),
        Stretch(0, 10, 15, (PlacedJob(0, 0),), (1.0,)),
    )
    assert history.ends_s == (15, 10)


def test_equal_jobs_end_together_in_one_stretch():
    assert len(together([7.3] * 5, fair([0.1] * 5)).stretches) == 1


def test_one_after_the_other_adds_up():
    history = from_the_start(Serial(), [10, 5, 1], fair([1, 2, 4]))
    assert history.ends_s == (10, 12.5, 12.75)


def test_a_late_job_slows_only_what_is_left():
    tasks = [Task(10), Task(5, arrival_s=5)]
    assert run(tasks, fair([1, 1]), first_come(2)).ends_s == (15, 15)


def test_a_waiting_job_takes_the_place_that_gets_free():
    history = run([Task(10), Task(4), Task(3)], unhindered([1, 1, 1]), first_come(2))
    assert (history.starts_s[2], history.ends_s[2]) == (4, 7)
    assert history.stretches[1].seats == (PlacedJob(0, 0), PlacedJob(2, 1))


def test_a_second_gpu_takes_who_would_have_to_share():
    history = run([Task(10), Task(10), Task(10)], fair([1, 1, 1]), first_come(2), gpus=2)
    assert history.ends_s == (20, 10, 20)
    assert {each.gpu for each in history.stretches} == {0, 1}


def test_nobody_starts_before_coming_and_a_gpu_without_jobs_is_in_no_stretch():
    history = run([Task(1), Task(1, arrival_s=100)], fair([1, 1]), first_come(1))
    assert [(each.start_s, each.end_s) for each in history.stretches] == [(0, 1), (100, 101)]


def test_a_job_that_no_gpu_holds_is_said_to_wait_for_ever():
    nowhere = InOrder(GpuCapacity((0,), fits=lambda seats: seats[0].job != 1))
    with pytest.raises(NothingFits, match="wait forever"):
        run([Task(1), Task(1)], fair([1, 1]), nowhere)


@pytest.mark.parametrize(
    ("work", "alone"),
    [([3, 5, 8], [1, 1, 1]), ([4, 4, 4], [1, 2, 0.5]), ([1, 9], [3, 2]), ([6], [1.5])],
)
def test_the_exact_loop_agrees_with_small_time_steps(work, alone):
    dt = 1e-3
    exact = together(work, fair(alone)).ends_s
    assert exact == pytest.approx(in_small_steps(work, fair(alone), dt), abs=len(work) * 2 * dt)


@given(arriving, st.integers(1, 3), st.integers(1, 3))
def test_every_step_of_work_is_done_once(each, places, gpus):
    work, alone, arrivals = zip(*each, strict=True)
    history = run(list(map(Task, work, arrivals)), fair(alone), first_come(places), gpus)
    done = [0.0] * len(work)
    for stretch in history.stretches:
        for seat, speed in zip(stretch.seats, stretch.speeds, strict=True):
            done[seat.job] += speed * stretch.seconds
    assert done == pytest.approx(list(work), rel=1e-6, abs=1e-4)


@given(
    st.lists(
        st.tuples(st.floats(5e-324, 1e300), speeds, st.floats(0, 1.7e18)), min_size=1, max_size=6
    ),
    st.integers(1, 3),
)
def test_every_job_runs_and_ends_however_short_it_is_and_however_late_it_comes(each, places):
    work, alone, arrivals = zip(*each, strict=True)
    history = run(list(map(Task, work, arrivals)), fair(alone), first_come(places))
    assert {seat.job for stretch in history.stretches for seat in stretch.seats} == set(
        range(len(work))
    )
    assert len(history.stretches) <= 2 * len(work)


@given(arriving, st.integers(1, 3), st.integers(1, 3))
def test_nobody_ends_earlier_than_alone(each, places, gpus):
    work, alone, arrivals = zip(*each, strict=True)
    history = run(list(map(Task, work, arrivals)), fair(alone), first_come(places), gpus)
    for end, todo, speed, came in zip(history.ends_s, work, alone, arrivals, strict=True):
        assert end >= came + 0.999999 * todo / speed


@given(arriving, st.integers(1, 3), st.integers(1, 3))
def test_no_place_is_taken_twice_and_no_gpu_does_two_things_at_once(each, places, gpus):
    work, alone, arrivals = zip(*each, strict=True)
    history = run(list(map(Task, work, arrivals)), fair(alone), first_come(places), gpus)
    free_from = [0.0] * gpus
    for stretch in history.stretches:
        taken = [seat.place for seat in stretch.seats]
        assert len(set(taken)) == len(taken) <= places
        assert stretch.start_s >= free_from[stretch.gpu]
        free_from[stretch.gpu] = stretch.end_s


@given(jobs)
def test_sharing_fairly_never_changes_when_the_last_job_ends(each):
    work, alone = zip(*each, strict=True)
    shared = together(work, fair(alone)).makespan_s
    assert shared == pytest.approx(from_the_start(Serial(), work, unhindered(alone)).makespan_s)


@given(jobs, st.data())
def test_without_coupling_a_leaving_mate_changes_nothing(each, data):
    work, alone = zip(*each, strict=True)
    ends = together(work, unhindered(alone)).ends_s
    assert ends == pytest.approx([w / s for w, s in zip(work, alone, strict=True)])
    shorter = list(work)
    leaver = data.draw(st.integers(0, len(work) - 1))
    shorter[leaver] /= 2
    again = together(shorter, unhindered(alone)).ends_s
    assert [end for job, end in enumerate(again) if job != leaver] == pytest.approx(
        [end for job, end in enumerate(ends) if job != leaver]
    )
