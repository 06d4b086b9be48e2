"""A queue as a plan: its times, means over each job's own run, and the memory it needs."""

from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import InvalidInput, NothingFits
from advisor.hardware.gpus import gpu
from advisor.plan.admission import Running
from advisor.plan.forecast import Mixes, forecast, over_time
from advisor.plan.rules import Conditions, broken_rule, memory_problem
from advisor.plan.values import equal_work
from advisor.prediction.memory import memory_caps
from advisor.prediction.model import load_model
from advisor.prediction.prediction import LEVELS
from advisor.prediction.predictor import Predictor
from advisor.sharing import Group, Mps, Naive, Queue, parse_sharing
from advisor.sharing.groups import in_turn
from advisor.simulation.simulate import Fleet
from advisor.simulation.turns import last_end_s
from advisor.workload.job import Arrival, Job
from advisor.workload.store import model_path
from tests import shelf, synthetic
from tests.plan.stand_in import StandIn

H200 = gpu("h200-141gb")
FLEET = Fleet(gpu=H200.key, gpus=1, policy="first-come")


def profiles(memory_mib):
    """Profiles that hold so much memory, and more."""
    names = (
        "resnet26-cifar10-bs128",
        "resnet50-imagenet64-bs128",
        "bert-base-finetune-bs16",
        "resnet152-imagenet-bs32",
    )
    seconds = ((0.02, 0.01), (0.03, 0.02), (0.01, 0.04), (0.01, 0.03))
    return [
        synthetic.profile(name, host_s=host_s, gpu_s=gpu_s, memory_mib=times * memory_mib)
        for times, (name, (host_s, gpu_s)) in enumerate(zip(names, seconds, strict=True), start=1)
    ]


def lists_of(profiles):
    one = st.builds(Job, st.sampled_from(profiles), epochs=st.integers(1, 5))
    return st.lists(one, min_size=3, max_size=6)


PROFILES, LARGE = profiles(2000), profiles(20_000)


def queues(jobs):
    """Orders of so many jobs, and how many are at once."""
    return st.builds(
        lambda order, sharing, at_once: in_turn([Group(tuple(order), Queue(sharing, at_once))]),
        st.permutations(range(1, jobs + 1)),
        st.sampled_from([Naive(), Mps()]),
        st.integers(2, jobs - 1),
    )


@given(lists_of(PROFILES), st.data())
def test_ends_energy_and_power_are_those_of_jobs_that_wait_in_line(jobs, data):
    sharing = data.draw(queues(len(jobs)))
    (group,) = getattr(sharing, "groups", None) or (Group(tuple(range(1, len(jobs) + 1)), sharing),)
    order = [number - 1 for number in group.jobs]
    plan = forecast(Mixes(jobs, StandIn()), sharing)
    line = over_time(
        [Arrival(jobs[at]) for at in order],
        group.sharing.sharing,
        lambda _: StandIn(),
        FLEET,
        group.at_once,
    ).simulation
    for level in LEVELS:
        ends_s = [job.end_s.at(level) for job in line.jobs]
        assert [plan.ends_s[at].at(level) for at in order] == pytest.approx(ends_s)
        assert plan.makespan_interval_s.at(level) == pytest.approx(line.makespan_s.at(level))
        assert plan.energy_j.at(level) == pytest.approx(line.energy_j.at(level))
    power_w = plan.prediction.power_w.p50
    assert power_w * plan.makespan_s == pytest.approx(plan.energy_j.p50)
    starts_s = {at: job.start_s for at, job in zip(order, line.jobs, strict=True)}
    for at, (job, answer) in enumerate(zip(jobs, plan.prediction.jobs, strict=True)):
        run_s = plan.ends_s[at].p50 - starts_s[at]
        assert answer.paced_s.p50 == pytest.approx(run_s / job.work_steps)
        assert answer.slowdown == pytest.approx(run_s / job.alone_s)
        assert answer.epoch_s.p50 == pytest.approx(run_s / job.epochs)


@given(lists_of(PROFILES), st.data())
def test_jobs_in_line_on_instances_wait_for_those_before_them_there_and_for_no_others(jobs, data):
    order = data.draw(st.permutations(range(1, len(jobs) + 1)))
    first = data.draw(st.integers(1, len(jobs) - 1))
    lines = {"3g.71gb@4": order[:first], "4g.71gb@0": order[first:]}
    text = "+".join(f"{name}{list(own)}/serial" for name, own in lines.items()).replace(" ", "")
    plan = forecast(Mixes(jobs, StandIn()), parse_sharing(f"mig={text}"))
    for name, own in lines.items():
        before_s = 0.0
        for number in own:
            alone = forecast(Mixes([jobs[number - 1]], StandIn()), parse_sharing(f"mig={name}"))
            before_s += alone.makespan_s
            assert plan.ends_s[number - 1].p50 == pytest.approx(before_s)
            answer = plan.prediction.jobs[number - 1]
            assert answer.slowdown == pytest.approx(alone.prediction.jobs[0].slowdown)
    power_w, watts = plan.prediction.power_w.p50, 300.0
    assert power_w <= watts
    assert power_w * plan.makespan_s == pytest.approx(plan.energy_j.p50)


def test_a_simulation_of_lines_on_instances_is_their_forecast_and_running_jobs_are_in_none():
    jobs = [Job(PROFILES[at % 4], epochs=1 + at) for at in range(5)]
    lines = parse_sharing("mig=4g.71gb@0[3,1,5]/serial+3g.71gb@4[2,4]/serial")
    arrivals = [Arrival(job) for job in jobs]
    simulated = over_time(arrivals, lines, lambda _: StandIn(), FLEET).simulation
    plan = forecast(Mixes(jobs, StandIn()), lines)
    assert [job.end_s.p50 for job in simulated.jobs] == pytest.approx([e.p50 for e in plan.ends_s])
    with pytest.raises(InvalidInput, match="waits"):
        Running(jobs=tuple(jobs), sharing=lines)
    with pytest.raises(InvalidInput, match="wait for others"):
        Predictor(H200, load_model(model_path())).predict([job.profile for job in jobs], lines)


@given(lists_of(LARGE), st.data())
def test_memory_suffices_for_any_jobs_that_may_meet(jobs, data):
    sharing = data.draw(queues(len(jobs)))
    at_once = getattr(sharing, "at_once", None) or sharing.groups[0].at_once
    mixes = Mixes(jobs, StandIn())
    whole = mixes.whole(sharing)
    met = [mixes.part(sharing, each) for each in combinations(range(len(jobs)), at_once)]
    assert whole.memory_total_mib == pytest.approx(max(each.memory_total_mib for each in met))
    assert whole.oom_probability == max(each.oom_probability for each in met)
    free = 1 - 1.1 * whole.memory_total_mib / H200.memory_mib  # upper ends are 10 % more
    fits = memory_problem(whole, H200, margin=0.1) is None
    assert fits == (free > 0.1) or free == pytest.approx(0.1, abs=0.01)


def test_groups_after_a_queue_wait_for_its_last_job():
    jobs = [Job(profile, epochs=2) for profile in PROFILES]
    queue = forecast(Mixes(jobs[:3], StandIn()), parse_sharing("mps/2[3,1,2]"))
    alone = forecast(Mixes(jobs[3:], StandIn()), parse_sharing("naive"))
    both = forecast(Mixes(jobs, StandIn()), parse_sharing("mps/2[3,1,2];naive[4]"))
    setup_s = both.makespan_s - queue.makespan_s - alone.makespan_s
    assert 0 < setup_s < 1, "the MPS daemon ends"
    assert [each.p50 for each in both.ends_s[:3]] == pytest.approx(
        [each.p50 for each in queue.ends_s]
    )
    assert both.prediction.jobs[:3] == queue.prediction.jobs


def test_a_queue_with_room_for_all_jobs_is_how_they_share_at_once():
    jobs = [Job(profile) for profile in PROFILES[:3]]
    assert forecast(Mixes(jobs, StandIn()), parse_sharing("mps/3")) == forecast(
        Mixes(jobs, StandIn()), Mps()
    )


def test_jobs_of_unknown_length_are_taken_to_be_equally_long_alone():
    jobs = [
        Job(replace(each, workload=replace(each.workload, examples_per_epoch=None)))
        for each in PROFILES[:3]
    ]
    plan = forecast(Mixes(jobs, StandIn()), parse_sharing("mps/2"))
    assert plan.makespan_interval_s is None
    assert 1 < plan.prediction.weighted_speedup <= 2
    assert all(job.slowdown >= 1 for job in plan.prediction.jobs)


def test_the_model_predicts_a_queue_with_energy_and_power():
    jobs = [Job(profile, epochs=3) for profile in list(shelf.PROFILES.values())[:4]]
    predictor = Predictor(H200, load_model(model_path(None)))
    mixes = Mixes(jobs, predictor)
    mix = forecast(mixes, parse_sharing("mps/2[4,1,2,3]")).prediction
    pair = [mixes.part(Mps(), each).power_w.p50 for each in combinations(range(4), 2)]
    one = [mixes.part(Mps(), (each,)).power_w.p50 for each in range(4)]
    assert min(pair + one) <= mix.power_w.p50 <= max(pair + one)
    assert all(job.energy_epoch_j is not None for job in mix.jobs)
    assert mix.confirmed_on_hardware


def test_rules_hold_for_all_jobs_of_a_queue_that_may_meet():
    def rule(jobs, sharing):
        return broken_rule(jobs, parse_sharing(sharing), H200, Conditions())

    users = [Job(profile, user=user) for profile, user in zip(PROFILES, "AAAB", strict=True)]
    assert rule(users, "mps/2") is not None
    assert rule(users, "naive/2") is None
    assert rule(users, "mps/2[1,2,3];naive[4]") is None
    alone = [Job(PROFILES[0], isolated=True), *(Job(profile) for profile in PROFILES[1:])]
    assert rule(alone, "naive/2") is not None
    assert rule([Job(PROFILES[0])] * (H200.max_mps_clients + 1), "mps/3") is None
    assert rule([Job(PROFILES[0])] * (H200.max_mps_clients + 2), "mps/49") is not None


def test_memory_caps_of_a_queue_are_for_any_jobs_that_may_meet():
    def caps(sharing):
        mix = Mixes([Job(profile) for profile in PROFILES], StandIn()).whole(parse_sharing(sharing))
        held = [(60_000, 40_000), (55_000, 30_000), (50_000, 50_000), (50_000, 20_000)]
        jobs = tuple(
            replace(job, memory_mib=most, memory_min_mib=least)
            for job, (most, least) in zip(mix.jobs, held, strict=True)
        )
        return memory_caps(H200, replace(mix, jobs=jobs))

    assert caps("mps/2") == {}
    three = caps("mps/3")
    assert three.keys() == {1, 2, 3, 4}
    worst = max(sum(three[job] for job in each) for each in combinations(three, 3))
    assert 0.9 * H200.memory_mib < worst <= H200.memory_mib


@pytest.mark.parametrize("sharing", ["mps/2", "mps/2[1,2,3,4]"])
def test_a_simulation_of_a_queue_is_that_of_so_many_jobs_at_once(sharing):
    arrivals = [Arrival(Job(profile, epochs=2)) for profile in PROFILES]

    def simulated(words, at_once=None):
        way = parse_sharing(words)
        return over_time(arrivals, way, lambda _: StandIn(), FLEET, at_once).simulation

    queue, line = simulated(sharing), simulated("mps", 2)
    assert queue.makespan_s == line.makespan_s
    assert queue.energy_j == line.energy_j
    assert [each.end_s for each in queue.jobs] == [each.end_s for each in line.jobs]


def test_a_simulation_refuses_a_queue_whose_largest_jobs_do_not_fit_together():
    arrivals = [Arrival(Job(profile)) for profile in LARGE]
    order = parse_sharing("mps/3[1,2,3,4]")
    with pytest.raises(NothingFits, match="cannot run at once"):
        over_time(arrivals, order, lambda _: StandIn(), FLEET, None)
    alone = [Arrival(Job(profile, isolated=True)) for profile in PROFILES]
    with pytest.raises(NothingFits, match="isolated"):
        over_time(alone, order, lambda _: StandIn(), FLEET, None)


@given(lists_of(PROFILES), st.data())
def test_the_work_per_time_of_equally_long_jobs_is_that_of_their_queue(jobs, data):
    jobs = [replace(job, epochs=100 / job.profile.epoch_s) for job in jobs]
    sharing = data.draw(queues(len(jobs)))
    plan = forecast(Mixes(jobs, StandIn()), sharing)
    assert 1 / plan.equal_work.p50 == pytest.approx(plan.speedup_vs_serial)


def test_the_work_per_time_of_groups_is_that_of_the_time_they_take():
    mix = Mixes([Job(profile) for profile in PROFILES], StandIn()).whole(
        parse_sharing("naive[1,3];mps[2];naive[4]")
    )
    assert 1 / equal_work(mix).p50 == pytest.approx(mix.weighted_speedup)


def test_what_is_left_of_a_plan_takes_as_long_as_the_longest_line_of_each_group():
    seconds = [5.0, 1.0, 2.0, 4.0]
    for words, end_s in (
        ("serial", 12.0),
        ("mps", 5.0),
        ("mps/2[1,2,3,4]", 7.0),
        ("mig=4g.71gb[1,2]/serial+3g.71gb[4,3]/serial", 6.0),
        ("naive[1,2];mig=4g.71gb[3]+3g.71gb[4]", 9.0),
    ):
        assert last_end_s(parse_sharing(words), seconds) == end_s
