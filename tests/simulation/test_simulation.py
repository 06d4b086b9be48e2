"""Queues, and jobs that arrive over time at shared GPUs."""

import json
from dataclasses import replace
from itertools import count, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.api import Advisor
from advisor.errors import InvalidInput, NothingFits
from advisor.plan.forecast import Mixes, forecast
from advisor.plan.rules import memory_problem
from advisor.sharing import parse_sharing
from advisor.simulation.events import JobStart, PlacedJob, Task, run
from advisor.simulation.paces import Paces, SharedGpus
from advisor.simulation.queues import GpuCapacity, queue_of
from advisor.simulation.results import parts
from advisor.simulation.simulate import Fleet, simulated
from advisor.workload.arrivals import read_arrivals
from advisor.workload.job import Arrival, Job
from tests import synthetic
from tests.plan.stand_in import H200, StandIn

PLACES = (0, 0)


def filled(policy, room, alone_s, kinds=None):
    queue = queue_of(policy, room, alone_s, kinds or tuple(range(len(alone_s))))
    for job in range(len(alone_s)):
        queue.add(job)
    return queue


def test_nobody_overtakes_a_job_that_waits_for_memory():
    small_only = GpuCapacity(
        PLACES, fits=lambda seats: len(seats) == 1 or PlacedJob(0, 1) not in seats
    )
    queue = filled("first-come", small_only, [9, 1])
    assert queue.take([(PlacedJob(7, 0),)]) is None
    assert queue.take([()]) == JobStart(0, 0, 0)


def test_best_fit_lets_a_job_wait_rather_than_slow_the_others_for_nothing():
    room = GpuCapacity(PLACES, worth=lambda _seats: 1.0)
    queue = filled("best-fit", room, [1])
    assert queue.take([(PlacedJob(7, 0),)]) is None
    assert queue.take([()]) == JobStart(0, 0, 0)


class LooksAtAll:
    """The slow, obvious twin of best fit: every waiting job, every GPU, every place, each time."""

    def __init__(self, room):
        self.room, self.waiting, self.came = room, [], count()

    def add(self, job):
        self.waiting.append((next(self.came), job))

    def take(self, gpus):
        offers = [
            (round(worth, 9), -came, -len(seats), -at, -self.room.places[place], -place, job)
            for came, job in self.waiting
            for at, seats in enumerate(gpus)
            for place in range(len(self.room.places))
            if place not in {seat.place for seat in seats}
            for together in [tuple(sorted((*seats, PlacedJob(job, place))))]
            if self.room.fits(together)
            for worth in [self.room.worth(together) - (self.room.worth(seats) if seats else 0)]
            if worth > 1e-6
        ]
        if not offers:
            return None
        _, came, _, at, _, place, job = max(offers)
        self.waiting.remove((-came, job))
        return JobStart(job, -at, -place)


@given(
    st.lists(
        st.tuples(st.integers(1, 9), st.integers(0, 20), st.integers(0, 2)), min_size=1, max_size=12
    ),
    st.lists(st.sampled_from([0.3, 0.5, 0.9, 1.0]), min_size=4, max_size=7),
    st.integers(1, 3),
)
def test_best_fit_finds_what_looking_at_all_finds(jobs, table, gpus):
    work, arrivals, kinds = zip(*jobs, strict=True)

    def mix(seats):
        return sorted(3 * kinds[seat.job] + seat.place % 2 for seat in seats)

    def worth(seats):
        return 1.0 if len(seats) == 1 else sum(table[each % len(table)] for each in mix(seats))

    def fits(seats):
        return len(seats) == 1 or sum(mix(seats)) % 5 != 0

    def pace(seats):
        return [table[(sum(mix(seats)) + kinds[seat.job]) % len(table)] for seat in seats]

    room, tasks = (
        GpuCapacity((0, 1, 0), fits, worth, lambda seats: tuple(mix(seats))),
        list(map(Task, work, arrivals)),
    )
    quick = run(tasks, pace, queue_of("best-fit", room, work, kinds), [gpus])
    slow = run(tasks, pace, LooksAtAll(room), [gpus])
    assert quick == slow


# Alone: 10, 20 and 40 ms a step, and 100 steps each; each fills the GPU.
SHORT = Job(synthetic.profile("resnet26-cifar10-bs500", host_s=0.01, gpu_s=0.01))
LONG = Job(synthetic.profile("resnet50-cifar10-bs500", host_s=0.02, gpu_s=0.02))
LAST = Job(synthetic.profile("cnn-cifar10-bs500", host_s=0.04, gpu_s=0.04, memory_mib=90_000))


def paces_of(arrivals, sharing, fleet, most=4, stand_in=None, problem=None):
    own = stand_in or StandIn()
    return Paces(
        [
            SharedGpus(
                count=count,
                predict=lambda _: own.predict,
                jobs=[each.job for each in arrivals],
                layouts=[(parse_sharing(sharing), most)],
                problem=problem or (lambda _jobs, _sharing, mix: memory_problem(mix, H200)),
            )
            for count in fleet.counts
        ]
    )


def over_time(arrivals, sharing="naive", gpus=1, policy="first-come", price=None):
    fleet = Fleet("h200-141gb", gpus, policy, price)
    paces = paces_of(arrivals, sharing, fleet)
    return simulated(arrivals, parse_sharing(sharing), paces, fleet)


def at_start(*jobs):
    return [Arrival(job) for job in jobs]


@pytest.mark.parametrize(
    "sharing", ["serial", "naive", "mps", "mps=40,60", "mig=3g.71gb,4g.71gb", "mps[2];naive[1]"]
)
def test_jobs_that_are_there_from_the_start_do_what_is_forecast_for_them(sharing):
    found = over_time(at_start(SHORT, LONG), sharing)
    said = forecast(Mixes([SHORT, LONG], StandIn()), parse_sharing(sharing))
    assert found.makespan_s.p50 == pytest.approx(said.makespan_s)
    assert found.makespan_s.p95 == pytest.approx(said.makespan_interval_s.p95)
    assert found.energy_j.p05 == pytest.approx(said.energy_j.p05)


def test_under_mig_a_leaving_mate_changes_nothing():
    mig = "mig=3g.71gb,4g.71gb"
    brief = replace(SHORT, epochs=0.1)
    ends = [over_time(at_start(each, LONG), mig).jobs[1].end_s for each in (SHORT, brief)]
    assert ends[0] == ends[1]
    naive = [over_time(at_start(each, LONG), "naive").jobs[1].end_s for each in (SHORT, brief)]
    assert naive[0].p50 > naive[1].p50


def test_the_parts_of_a_job_follow_each_other_at_the_pace_of_the_shared_gpu():
    slow = replace(LONG, epochs=1.5, validation_s=1, start_s=1)
    arrivals = at_start(slow, SHORT)
    found = over_time(arrivals)
    usage = [each for each in found.usage if 0 in each.jobs]
    pieces = list(parts(0, slow, usage))
    assert [each.kind for each in pieces] == ["start", *["training", "validation"] * 2]
    assert pieces[0].start_s == 0
    assert pieces[-1].end_s == pytest.approx(found.jobs[0].end_s.p50)
    assert all(a.end_s == b.start_s for a, b in pairwise(pieces))
    # Steps of 30 ms until the short one ends at 3 s, then of 20 ms: 50 to start, 100 of training.
    assert [each.end_s for each in pieces[:2]] == pytest.approx([1.5, 4])


def test_money_and_energy_count_gpus_that_wait():
    found = over_time([Arrival(SHORT), Arrival(SHORT, 9)], gpus=2, price=3600)
    assert found.makespan_s.p50 == pytest.approx(10)
    assert found.gpu_hours.p50 == pytest.approx(20 / 3600)
    assert found.cost_eur.p50 == pytest.approx(20)
    assert found.occupied_gpu_hours == pytest.approx(2 / 3600)
    # 200 W for a second each; 75 W idle in the other 18 s.
    assert found.energy_j.p50 == pytest.approx(2 * 200 + 18 * 75)
    assert found.jobs_per_hour == pytest.approx(2 * 360)
    assert (found.mean_completion_s, found.mean_wait_s) == (pytest.approx(1), 0)


def test_what_was_not_measured_is_not_made_up():
    dark = Job(replace(SHORT.profile, idle_power_w=None))
    assert over_time([Arrival(dark, 5)]).energy_j is None
    assert over_time([Arrival(dark)]).energy_j is not None
    unmetered = Job(replace(SHORT.profile, power_w=None))
    assert over_time(at_start(unmetered)).energy_j is None
    assert over_time(at_start(SHORT)).cost_eur is None


def test_each_mix_is_predicted_once():
    stand_in = StandIn()
    arrivals = [Arrival(job, at) for at, job in enumerate([SHORT, LONG, LONG, SHORT] * 20)]
    fleet = Fleet("h200-141gb", 3, "first-come")
    paces = paces_of(arrivals, "naive", fleet, 2, stand_in, lambda *_: None)
    simulated(arrivals, parse_sharing("naive"), paces, fleet)
    assert stand_in.asked <= 5  # one or two of two kinds


def test_of_jobs_that_add_equally_much_the_first_to_arrive_starts_first():
    busy = Arrival(replace(SHORT, epochs=100))
    later, sooner = Arrival(LONG, 7.0), Arrival(LAST, 5.0)
    of_later, _, of_sooner = over_time([later, busy, sooner], "serial", policy="best-fit").jobs
    assert of_sooner.start_s < of_later.start_s


def test_gpus_share_the_cores_of_their_host_until_jobs_end():
    name = "mobilenetv3_large_100-imagenet64-bs128-loader2"
    long, brief = Advisor("h200-141gb").jobs([f"{name}@2", f"{name}@1"])
    one, two = (
        Advisor("h200-141gb", host_cores=cores).predict([name], "serial").makespan_s
        for cores in (1, 2)
    )
    fleet, jobs = Fleet("h200-141gb", 2, "first-come"), at_start(long, brief)
    ended_s, without_limit_s = (
        [job.end_s.p50 for job in advisor.simulate(jobs, "mps", fleet).simulation.jobs]
        for advisor in (Advisor("h200-141gb", host_cores=2), Advisor("h200-141gb"))
    )
    assert ended_s == pytest.approx([one + two, one], rel=1e-3)
    assert without_limit_s[1] < 0.9 * one


def test_jobs_and_groups_that_do_not_fit_are_refused_and_others_wait():
    with pytest.raises(NothingFits, match="does not fit"):
        over_time(at_start(LAST), "mig=3g.71gb,4g.71gb")
    with pytest.raises(NothingFits, match="at once"):
        over_time(at_start(LAST, LAST, SHORT), "naive[1,2];naive[3]")
    found = over_time(at_start(LAST, LAST))
    assert found.jobs[1].start_s == found.jobs[0].end_s.p50


def test_jobs_of_unknown_length_or_of_too_many_gpus_are_refused():
    endless = Job(
        replace(SHORT.profile, workload=replace(SHORT.profile.workload, examples_per_epoch=None))
    )
    with pytest.raises(InvalidInput, match="length of an epoch"):
        over_time(at_start(endless))
    with pytest.raises(NothingFits, match="4 GPUs of one host, and a host has 2"):
        over_time(at_start(replace(SHORT, gpus=4)), gpus="2x2")
    with pytest.raises(NothingFits, match="whole GPUs"):
        over_time(at_start(replace(SHORT, gpus=2)), "mig=3g.71gb,4g.71gb", gpus=2)


def test_a_job_on_two_gpus_waits_for_both_and_takes_half_as_long():
    wide = replace(LONG, gpus=2)
    found = over_time([*at_start(SHORT, wide), Arrival(SHORT, 0.5)], "serial", gpus="1x2")
    short, both, last = found.jobs
    assert (short.gpus, both.gpus) == ((0,), (0, 1))
    assert both.start_s == short.end_s.p50 == pytest.approx(1)
    assert both.end_s.p50 == last.start_s == pytest.approx(2), "no job overtakes"
    # 200 W on each GPU that runs a job, 75 W where none does.
    assert found.energy_j.p50 == pytest.approx(4 * 200 + 2 * 75)
    assert found.occupied_gpu_hours == pytest.approx(4 / 3600)


def test_jobs_run_on_other_models_of_gpu_at_the_pace_estimated_there():
    name = "resnet50-imagenet64-bs128"
    here, there = Advisor("h200-141gb"), Advisor("a100-40gb")
    arrivals = at_start(*here.jobs([f"{name}:3"]))
    fleet = Fleet("h200-141gb", "h200-141gb:1,a100-40gb:2x1", "first-come")
    found = here.simulate(arrivals, "serial", fleet).simulation
    alone = [each.predict([name], "serial").makespan_s for each in (here, there, there)]
    assert [job.end_s.p50 for job in found.jobs] == pytest.approx(alone)
    assert found.models == ("h200-141gb", "a100-40gb", "a100-40gb")
    assert found.estimated_from == "h200-141gb"
    sooner = here.simulate([*arrivals, *arrivals], "serial", replace(fleet, policy="best-fit"))
    assert sooner.simulation.jobs[3].gpu == 0, "the model that is free first is the faster one"


def test_bare_numbers_are_enough_to_simulate_a_job_on_several_gpus(tmp_path):
    numbers = {
        "schema": 1,
        "workload": "net-bs64",
        "gpu": "a100-40gb",
        "batch_size": 64,
        "step_s": 0.1,
        "memory_mib": 9000,
        "power_w": 250,
        "gpu_utilization": 0.8,
        "memory_utilization": None,
        "examples_per_epoch": 6400,
    }
    (folder := tmp_path / "net-bs64.json").write_text(json.dumps(numbers))
    (tmp_path / "t.csv").write_text(f"arrival_s,job,epochs,gpus\n0,{folder},2,2\n5,{folder},1,\n")
    advisor = Advisor("a100-40gb")
    arrivals = read_arrivals(tmp_path / "t.csv", advisor.find_profile)
    found = advisor.simulate(arrivals, "mps", Fleet("a100-40gb", 2, "first-come")).simulation
    assert [job.end_s.p50 for job in found.jobs] == pytest.approx([10, 20], rel=0.01)
    (tmp_path / "t.csv").write_text(f"arrival_s,job,duration_s,gpus\n0,{folder},50,2\n")
    (only,) = read_arrivals(tmp_path / "t.csv", advisor.find_profile)
    assert (only.job.gpus, only.job.alone_s) == (2, pytest.approx(50))
