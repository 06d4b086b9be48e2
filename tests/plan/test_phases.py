"""Groups of jobs one after another, over time."""

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from advisor.errors import InvalidInput
from advisor.plan.forecast import Mixes, forecast
from advisor.plan.objectives import cost
from advisor.sharing import Phases, parse_sharing
from advisor.timeline.waiting_jobs import repartition_s
from advisor.workload.job import Job
from tests import synthetic
from tests.plan.stand_in import StandIn

# Alone: 10, 20 and 40 ms a step, and 100 steps each.
SHORT = Job(synthetic.profile("resnet26-cifar10-bs500", host_s=0.01, gpu_s=0.01))
LONG = Job(synthetic.profile("resnet50-cifar10-bs500", host_s=0.02, gpu_s=0.02))
LAST = Job(synthetic.profile("cnn-cifar10-bs500", host_s=0.04, gpu_s=0.04))
JOBS = [SHORT, LONG, LAST]


def seen(text, jobs=JOBS):
    return forecast(Mixes(jobs, StandIn()), parse_sharing(text))


def pauses_s(text):
    sharing = parse_sharing(text)
    assert isinstance(sharing, Phases)
    return sum(map(repartition_s, sharing.groups, sharing.groups[1:]))


@pytest.mark.parametrize("text", ["serial[1];serial[2];serial[3]", "serial[1];serial[2,3]"])
def test_groups_of_one_job_are_serial(text):
    phases, serial = seen(text), seen("serial")
    assert phases.makespan_s == pytest.approx(serial.makespan_s)
    assert phases.energy_j.p50 == pytest.approx(serial.energy_j.p50)
    for objective in ("makespan", "throughput", "energy"):
        assert cost(phases, objective).p50 == pytest.approx(cost(serial, objective).p50)
    assert phases.prediction.weighted_speedup == pytest.approx(1)


@given(st.sampled_from(["serial", "naive", "mps", "mps=60,30"]), st.sampled_from(["naive", "mps"]))
def test_phases_take_what_their_groups_take_and_the_pauses(first, second):
    text = f"{first}[1,3];{second}[2]"
    apart = seen(first, [SHORT, LAST]).makespan_s + seen(second, [LONG]).makespan_s
    assert seen(text).makespan_s == pytest.approx(apart + pauses_s(text))


def test_a_job_is_predicted_beside_its_own_group_alone():
    steps = [job.step_s.p50 for job in seen("naive[3,1];mps[2]").prediction.jobs]
    beside = [job.step_s.p50 for job in seen("naive", [SHORT, LAST]).prediction.jobs]
    assert steps == pytest.approx([beside[0], 0.02, beside[1]])


def test_limits_follow_the_order_in_which_a_group_names_its_jobs():
    steps = [job.step_s.p50 for job in seen("mps=20,80[2,1];naive[3]").prediction.jobs]
    assert steps[:2] == pytest.approx([max(0.024, 0.01 / 0.8), 0.02 / 0.2])


def test_groups_hold_their_memory_one_after_another():
    big = [replace(job, profile=replace(job.profile, memory=huge(job))) for job in JOBS]
    assert seen("naive", big).prediction.oom_probability == 1
    assert seen("naive[1];naive[2];naive[3]", big).prediction.oom_probability == 0


def huge(job):
    return replace(job.profile.memory, reserved_mib=80_000, device_mib=90_000, allocated_mib=70_000)


@pytest.mark.parametrize(
    ("text", "cheap"),
    [
        ("naive[1];serial[2]", 0),
        ("mps=50[1];mps=20[2]", 0),
        ("mig=3g.71gb[1];mig=3g.71gb[2]", 0),
        ("mig=3g.71gb[1,3]/mps;mig=3g.71gb[2]/mps", 0),
    ],
)
def test_nothing_is_paid_where_the_gpu_stays_as_it_is(text, cheap):
    assert pauses_s(text) == cheap


def test_setting_the_gpu_up_anew_is_paid():
    assert pauses_s("naive[1];mps[2]") > 0
    assert pauses_s("mps[1];mig=3g.71gb[2]") > pauses_s("mps[1];naive[2]")
    assert pauses_s("mig=3g.71gb[1];mig=4g.71gb[2]") > 0


def test_waiting_for_the_other_group_is_part_of_being_served():
    # Two groups of equal jobs, each alone for half of the time.
    twins = [SHORT, SHORT]
    assert cost(seen("naive[1];naive[2]", twins), "throughput").p50 == pytest.approx(1)


class Unsure(StandIn):
    """Each of the three jobs may be faster by a part of its own."""

    def __init__(self, parts):
        super().__init__()
        self.parts = dict(zip((job.name for job in JOBS), parts, strict=True))

    def predict(self, profiles, sharing):
        mix = super().predict(profiles, sharing)
        return replace(mix, jobs=tuple(map(self._unsure, mix.jobs)))

    def _unsure(self, job):
        fast = replace(job.step_s, p05=job.step_s.p50 * (1 - self.parts[job.job]))
        return replace(job, step_s=fast)


@example((0.0, 0.9, 0.0), "naive[1,2];serial[3]")
@given(
    st.tuples(*[st.floats(0, 0.95)] * 3),
    st.sampled_from(["naive[1,2];serial[3]", "mps[1,3];naive[2]", "naive[2,3];serial[1]"]),
)
def test_phases_cost_an_interval_however_unsure_each_job_is(parts, text):
    phases = forecast(Mixes(JOBS, Unsure(parts)), parse_sharing(text))
    found = cost(phases, "throughput")
    assert found.p05 <= found.p50 <= found.p95
    assert found.p50 == pytest.approx(cost(seen(text), "throughput").p50)


def test_phases_of_other_jobs_are_refused():
    with pytest.raises(InvalidInput, match="names job 1, 2 of 3"):
        seen("naive[1];mps[2]")


def test_no_group_starts_before_the_one_before_it_has_ended():
    from advisor.timeline.waiting_jobs import from_the_start

    phases = parse_sharing("mps[2];naive[1,3]")
    history = from_the_start(phases, [10, 10, 20], lambda seats: [1.0 / len(seats)] * len(seats))
    ends = history.ends_s
    assert ends[1] == 10
    assert ends[0] == 10 + pauses_s("mps[2];naive[1,3]") + 20
    assert ends[2] == ends[0] + 10
