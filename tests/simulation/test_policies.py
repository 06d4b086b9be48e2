"""Policies in rounds: their laws, a plain loop of rounds, and a published simulator's outcome."""

import csv
from collections import Counter
from itertools import accumulate, pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.simulation.events import Task, run
from advisor.simulation.policies import InRounds, even_shares, fair_ends_s
from advisor.simulation.queues import GpuCapacity, InOrder

ROUND_S = 10.0
IN_ROUNDS = ["max-min", "finish-time", "least-attained"]
policies = st.sampled_from(IN_ROUNDS)
# Work, arrival and GPUs of each job.
several = st.lists(
    st.tuples(st.integers(1, 60), st.integers(0, 50), st.sampled_from([1, 1, 2, 4])),
    min_size=1,
    max_size=10,
)


def room(widths, hosts, places=1):
    ends = list(accumulate(hosts, initial=0))
    return GpuCapacity(
        (0,) * places,
        widths=widths,
        hosts=[range(*pair) for pair in pairwise(ends)],
        fits=lambda seats: len(seats) == 1 or all(widths[seat.job] == 1 for seat in seats),
    )


def alone(seats):
    return [1 / len(seats)] * len(seats)


def simulated(jobs, hosts, policy, lost_s=0.0, round_s=ROUND_S, places=1):
    work, arrivals, widths = zip(*jobs, strict=True)
    tasks = list(map(Task, work, arrivals))
    queue = InRounds(policy, room(widths, hosts, places), tasks, work, round_s, lost_s)
    return run(tasks, alone, queue, hosts)


@given(
    several,
    st.sampled_from([(4,), (4, 4)]),
    policies,
    st.sampled_from([0.0, 3.0]),
    st.integers(1, 2),
)
def test_a_stop_loses_its_cost_and_no_other_work(jobs, hosts, policy, lost_s, places):
    history = simulated(jobs, hosts, policy, lost_s, places=places)
    done, gpus_of, until_s = Counter(), {}, Counter()
    for each in history.stretches:
        assert len(each.seats) <= places
        assert each.start_s >= until_s[each.gpu]
        until_s[each.gpu] = each.end_s
        for seat, speed in zip(each.seats, each.speeds, strict=True):
            done[seat.job] += speed * each.seconds
            gpus_of.setdefault((seat.job, each.start_s, each.end_s), set()).add(each.gpu)
    work = sum(steps * width for steps, _, width in jobs)
    extra = sum(done.values()) - work
    assert extra >= -1e-6
    if lost_s == 0 or not history.preemptions:
        assert extra == pytest.approx(0, abs=1e-6)
    if all(width == 1 for *_, width in jobs):
        assert extra == pytest.approx(history.preemptions * lost_s, abs=1e-6)
    for (job, *_), gpus in gpus_of.items():
        assert len(gpus) == jobs[job][2]
        assert len({gpu // 4 for gpu in gpus}) == 1, "one host"


@given(
    st.lists(
        st.tuples(st.integers(1, 60), st.integers(0, 50), st.just(1)), min_size=1, max_size=10
    ),
    policies,
)
def test_no_gpu_is_free_while_a_job_waits(jobs, policy):
    history = simulated(jobs, (2,), policy)
    moments = sorted({each.start_s for each in history.stretches})
    for now_s in moments:
        active = sum(
            came <= now_s < end_s for (_, came, _), end_s in zip(jobs, history.ends_s, strict=True)
        )
        runs = sum(each.start_s <= now_s < each.end_s for each in history.stretches)
        assert runs == min(2, active)


@pytest.mark.parametrize("policy", IN_ROUNDS)
def test_equal_jobs_share_equally(policy):
    history = simulated([(100, 0, 1)] * 4, (2,), policy, round_s=1.0)
    assert min(history.ends_s) >= 197, "all end together, after twice their time alone"
    assert max(history.ends_s) == pytest.approx(200)


def test_jobs_of_many_and_of_few_gpus_are_equally_far_behind_their_shares():
    history = simulated([(1000, 0, 4), (500, 0, 1), (500, 0, 1)], (4,), "max-min", round_s=1.0)
    # Shares are 2, 1 and 1 GPUs. The first runs in 2 of 5 rounds, and then the others do not: all
    # get 0.4 less than their shares.
    until_s = min(history.ends_s)
    used = Counter()
    for each in history.stretches:
        used[each.seats[0].job] += max(0.0, min(each.end_s, until_s) - each.start_s)
    used_gpus = [used[job] / until_s for job in range(3)]
    assert used_gpus == pytest.approx([1.6, 0.6, 0.6], rel=0.01)


@given(st.lists(st.sampled_from([1.0, 2.0, 4.0]), min_size=1, max_size=9), st.integers(1, 20))
def test_even_shares_fill_the_gpus_and_no_job_could_have_more_without_a_smaller_one(widths, gpus):
    shares = even_shares(np.array(widths), gpus)
    assert shares.sum() == pytest.approx(min(gpus, sum(widths)))
    level = shares.max()
    assert all(
        share == pytest.approx(min(width, level))
        for share, width in zip(shares, widths, strict=True)
    )


def plain_rounds(jobs, gpus, policy):
    """The obvious loop: in each round the jobs with the smallest claims run, whole rounds long.

    All jobs take one GPU, arrive at ends of rounds and end at ends of rounds.
    """
    left, owed = [float(work) for work, *_ in jobs], [0.0] * len(jobs)
    ends_s, now_s, running = [0.0] * len(jobs), 0.0, set()
    while any(left):
        active = [job for job, (_, came, _) in enumerate(jobs) if came <= now_s and left[job]]
        done = {job: jobs[job][0] - left[job] for job in active}

        def claim(job, now_s=now_s, done=done, active=active):
            part = min(1, gpus / len(active))
            if policy != "finish-time":
                seconds = done[job] - (owed[job] if policy == "max-min" else 0.0)
                return np.floor(seconds / ROUND_S + 0.5)
            waited = now_s - jobs[job][1]
            fair = max(jobs[job][0], waited + (jobs[job][0] - owed[job]) / part)
            return -(waited + left[job]) / fair

        order = sorted(active, key=lambda job: (claim(job), job not in running, jobs[job][1], job))
        running = set(order[:gpus])
        for job in active:
            owed[job] += ROUND_S * min(1, gpus / len(active))
        for job in running:
            left[job] -= ROUND_S
            if not left[job]:
                ends_s[job] = now_s + ROUND_S
        now_s += ROUND_S
    return ends_s


@given(
    st.lists(st.tuples(st.integers(1, 6), st.integers(0, 8)), min_size=1, max_size=9),
    st.integers(1, 3),
    policies,
)
def test_whole_rounds_are_those_of_a_plain_loop(rounds, gpus, policy):
    jobs = [
        (work * ROUND_S, came * ROUND_S, 1) for work, came in sorted(rounds, key=lambda r: r[1])
    ]
    ends_s = simulated(jobs, (gpus,), policy).ends_s
    assert ends_s == pytest.approx(plain_rounds(jobs, gpus, policy))


def test_an_equal_part_of_the_gpus_counts_the_jobs_that_are_active():
    # Both have half of the GPU until the first would end at 20 s; it has left at 10 s.
    fair_s = fair_ends_s([0, 0], [10, 20], [10, 10], [1, 1], 1)
    assert fair_s.tolist() == pytest.approx([15, 15])
    alone_s = fair_ends_s([0, 100], [10, 140], [10, 40], [1, 2], 4)
    assert alone_s.tolist() == pytest.approx([10, 140])
    assert fair_ends_s([0], [5], [10], [4], 2).tolist() == pytest.approx([20])


GAVEL = Path(__file__).parents[3] / "shared" / "data" / "gavel"


def table(name):
    with (GAVEL / f"{name}.csv").open() as file:
        return list(csv.DictReader(file))


@pytest.mark.exhaustive
@pytest.mark.skipif(not GAVEL.exists(), reason="needs the reference trace, which is not shipped")
@pytest.mark.parametrize("gpus", [36, 64])
@pytest.mark.parametrize(
    ("policy", "theirs"), [("first-come", "fifo"), ("max-min", "max_min_fairness")]
)
def test_completions_are_those_of_a_published_simulator(gpus, policy, theirs):
    speed = {
        (row["job_type"], row["scale_factor"]): float(row["steps_per_s"])
        for row in table("isolated_throughputs")
        if row["gpu"] == "v100"
    }
    rows = table("trace")
    alone_s = [
        float(row["total_steps"]) / speed[row["job_type"], row["scale_factor"]] for row in rows
    ]
    arrivals_s = [float(row["arrival_s"]) for row in rows]
    whole = room([int(row["scale_factor"]) for row in rows], (gpus,))
    tasks = list(map(Task, alone_s, arrivals_s))
    queue = (
        InOrder(whole)
        if policy == "first-come"
        else InRounds(policy, whole, tasks, alone_s, 360.0, 0.0)
    )
    history = run(tasks, alone, queue, (gpus,))
    reference = next(
        row
        for row in table("reference")
        if row["policy"] == theirs and (row["gpus"], row["jobs"]) == (str(gpus), str(len(rows)))
    )
    hours = (np.array(history.ends_s) - arrivals_s) / 3600
    assert hours.mean() == pytest.approx(float(reference["mean_jct_h"]), rel=0.01)
    assert history.makespan_s / 3600 == pytest.approx(float(reference["makespan_h"]), rel=0.01)
