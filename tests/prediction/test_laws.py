"""Laws that every estimate keeps, whatever the GPU is and however the jobs are described."""

from dataclasses import replace
from functools import cache
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from advisor.hardware.gpus import gpu, known_gpus
from advisor.hardware.machine import Counters
from advisor.hardware.partition import partition_of
from advisor.plan.forecast import Mixes, forecast
from advisor.plan.objectives import cost_ratio, rankable_by
from advisor.prediction.mig_instances import step_on
from advisor.prediction.model import load_model
from advisor.prediction.other_gpu import on_gpu
from advisor.prediction.parts import work_s
from advisor.prediction.prediction import LEVELS
from advisor.prediction.predictor import Predictor
from advisor.sharing import parse_sharing
from advisor.workload.job import Job
from advisor.workload.store import model_path, sound_profiles
from tests.prediction.made_up_runs import watched

PROFILES = Path(__file__).parents[2] / "profiles"
CARDS = [key for key, card in known_gpus().items() if card.mig or card.power_limit_w]
WITH_MIG = [key for key in CARDS if gpu(key).mig and all(each.sms for each in gpu(key).mig)]
A100, H200 = gpu("a100-40gb"), gpu("h200-141gb")


@cache
def bundled():
    profiles = sound_profiles(H200.key, PROFILES)[0]
    return tuple(profiles[name] for name in sorted(profiles))


@cache
def traced(number, card):
    return on_gpu(bundled()[number % len(bundled())], card)


def by_counters(profile):
    """The counters of DCGM."""
    seen = profile.counters
    counters = Counters(
        source="nvml", gract=seen.gract, sm_active=seen.sm_active, dram_active=seen.dram_active
    )
    return replace(
        profile,
        trace=None,
        mps=None,
        host_s=None,
        gpu_s=seen.gract * profile.step_s,
        counters=counters,
        provenance=None,
    )


def of_shares(card, busy=None, power=None, memory=None, *more, **others):
    """A job by the numbers of nvidia-smi; `power` is a share of the GPU's limit."""
    power_w = power and power * (card.power_limit_w or 300)
    return watched(card, busy, power_w, None if busy is None else memory, *more, **others)


SHARES = st.floats(0.02, 1)
MAYBE = st.none() | SHARES
# What is known of a job: the number of its profile, whether by counters only, or what was watched.
BARE = st.tuples(MAYBE, MAYBE, MAYBE, st.floats(0.005, 2))
KNOWN = st.one_of(
    st.tuples(st.integers(0, 85), st.booleans()),
    BARE,
    SHARES.map(lambda busy: {"busy": busy, "step_s": None, "duration_s": 21600.0}),
)


def job_of(known, card):
    if isinstance(known, dict):
        return of_shares(card, **known)
    if len(known) == 4:
        return of_shares(card, *known)
    number, counters_only = known
    profile = traced(number, card)
    return by_counters(profile) if counters_only else profile


def at_hand(card):
    return Predictor(card, load_model(model_path()))


def predicted(jobs, card, sharing):
    return at_hand(card).predict(jobs, parse_sharing(sharing))


def ends(job, card, sharing):
    step = predicted([job], card, sharing).jobs[0].step_s
    return [step.at(level) for level in LEVELS]


@st.composite
def card_and_parts(draw):
    """Return a GPU and two parts of it, the first with no more of anything."""
    key = draw(st.sampled_from(CARDS))
    card = gpu(key)
    if key not in WITH_MIG or draw(st.booleans()):
        first, second = sorted(draw(st.tuples(st.integers(5, 100), st.integers(5, 100))))
        return key, f"mps={first}", f"mps={second}"
    name = st.sampled_from([each.name for each in card.mig if "+" not in each.name])
    pair = sorted(draw(st.tuples(name, name)), key=lambda each: partition_of(card, each).sms)
    bandwidth = [partition_of(card, each).bandwidth_share for each in pair]
    assume(bandwidth[0] <= bandwidth[1])
    return key, f"mig={pair[0]}", f"mig={pair[1]}"


@given(card_and_parts(), KNOWN)
def test_a_job_alone_on_a_smaller_part_is_never_faster(parts, known):
    card, smaller, larger = gpu(parts[0]), *parts[1:]
    job = job_of(known, card)
    slow, fast, alone = (ends(job, card, each) for each in (smaller, larger, "serial"))
    for less, more, whole in zip(slow, fast, alone, strict=True):
        assert less >= more * (1 - 1e-6)
        assert more >= whole * (1 - 1e-6)


@given(st.sampled_from(WITH_MIG), BARE)
def test_a_slice_slows_a_job_by_no_more_than_its_sms_and_bandwidth_allow(key, known):
    card = gpu(key)
    job = job_of(known, card)
    _, middle, worst = (each / job.step_s for each in ends(job, card, "serial"))
    for row in card.mig:
        part = partition_of(card, row.name)
        most = 1 / min(part.sm_share, part.bandwidth_share)
        _, usual, highest = (each / job.step_s for each in ends(job, card, f"mig={row.name}"))
        assert usual <= middle * most * (1 + 1e-9)
        assert highest <= worst * most * 1.2


@given(
    st.sampled_from(WITH_MIG),
    st.lists(st.floats(0.05, 0.97), min_size=3, max_size=3),
    st.sampled_from([(1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 1)]),
    st.integers(0, 6),
)
def test_one_per_cent_more_of_any_number_changes_the_answer_little(key, shares, more, at):
    card = gpu(key)
    rows = [each.name for each in card.mig if "+" not in each.name]
    before = of_shares(card, *shares)
    after = of_shares(
        card, *(share + 0.01 * each for share, each in zip(shares, more, strict=True))
    )
    for sharing in ("serial", "mps=40", f"mig={rows[at % len(rows)]}"):
        assert ends(after, card, sharing) == pytest.approx(ends(before, card, sharing), rel=0.1)
    for sharing in ("naive", "mps", "mps=50,50"):
        was, now = (predicted([job] * 2, card, sharing).jobs[0].step_s for job in (before, after))
        for level in LEVELS:
            assert now.at(level) == pytest.approx(was.at(level), rel=0.12)


WAYS = st.sampled_from(["naive", "mps", "limits"])


@given(st.sampled_from(CARDS), st.lists(KNOWN, min_size=2, max_size=4), WAYS)
def test_sharing_makes_no_job_faster_than_it_is_alone(key, descriptions, way):
    card = gpu(key)
    jobs = [job_of(known, card) for known in descriptions]
    sharing = way if way != "limits" else f"mps={','.join(['40'] * len(jobs))}"
    for job, shared in zip(jobs, predicted(jobs, card, sharing).jobs, strict=True):
        alone = predicted([job], card, "serial").jobs[0].step_s
        assert shared.step_s.p05 >= alone.p05 * (1 - 1e-9)
        if job.provenance is None and not job.is_estimate:
            assert shared.step_s.p05 >= job.step_s * (1 - 1e-9), "the user's own number"


def halves_and_smallest(card):
    """The largest MIG profile of which two fit, the smallest, and how many of that fit."""
    rows = [each for each in card.mig if "+" not in each.name]
    half = max((each for each in rows if each.max_instances == 2), key=lambda each: each.sms)
    small = min(rows, key=lambda each: (each.sms, each.memory_slices))
    return half.name, small.name, small.max_instances


def work(job, card, sharing, copies):
    """Work of copies at once over that of one alone, in the median and at most."""
    mix = predicted([job] * copies, card, sharing)
    return mix.weighted_speedup, sum(1 / each.slowdown_at("p05") for each in mix.jobs)


# Busy for a share of time, with power and memory utilisation that go with it.
FILLING = st.builds(
    lambda busy, full, moving: (busy, 0.15 + 0.75 * full * busy, moving * busy, 0.1),
    SHARES,
    st.floats(0.4, 1),
    st.floats(0.05, 0.8),
)
MEASURED = st.tuples(st.sampled_from([7, 28, 49]), st.booleans())


@given(st.sampled_from(WITH_MIG), FILLING | MEASURED)
def test_mps_inside_instances_is_no_product_of_two_gains(key, known):
    card = gpu(key)
    job = job_of(known, card)
    half, small, most = halves_and_smallest(card)
    inside = work(job, card, f"mig={half}[1,2]/mps+{half}[3,4]/mps", 4)
    whole = [work(job, card, "mps", copies) for copies in (2, 3, 4)]
    whole.append(work(job, card, f"mig={half},{half}", 2))
    whole.append(work(job, card, f"mig={','.join([small] * most)}", most))
    (median, most_work), (best_median, best_work) = inside, map(max, zip(*whole, strict=True))
    assert median <= best_median * 1.2
    assert most_work <= best_work * 1.35


@given(st.sampled_from(WITH_MIG), BARE)
def test_what_a_job_leaves_idle_shrinks_with_its_place(key, numbers):
    card = gpu(key)
    job, physics = job_of(numbers, card), load_model(model_path()).of(card).physics
    parts = [partition_of(card, each.name) for each in card.mig if "+" not in each.name]
    parts.sort(key=lambda each: (each.sms, each.bandwidth_share))
    idle = [step_on(job, part, physics).p50 / work_s(job, part).p50 for part in parts]
    for (small, less), (large, more) in combinations(zip(parts, idle, strict=True), 2):
        if small.bandwidth_share <= large.bandwidth_share < 1:
            assert 1 - 1e-9 <= less <= more * (1 + 1e-9)


@given(
    st.sampled_from(CARDS),
    st.lists(KNOWN, min_size=2, max_size=3),
    st.sampled_from(["naive", "mps"]),
    st.sampled_from(["makespan", "throughput"]),
)
def test_a_gain_ends_at_the_number_of_jobs_at_once(key, descriptions, way, objective):
    card = gpu(key)
    mixes = Mixes([Job(job_of(known, card)) for known in descriptions], at_hand(card))
    plan, serial = (forecast(mixes, parse_sharing(each)) for each in (way, "serial"))
    objective, _ = rankable_by((plan, serial), objective)
    gain = cost_ratio(serial, plan, objective)
    assert gain.p95 <= len(descriptions)
    assert cost_ratio(plan, serial, objective).p05 >= 1 / len(descriptions) * (1 - 1e-12)
