"""The drawing of a GPU shows the numbers of its plan, on every GPU and for every kind of plan."""

import json
from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.api import Advisor
from advisor.hardware.gpus import catalogue, gpu
from advisor.hardware.mig import largest_layouts, layouts, place, profile_of
from advisor.hardware.partition import compute_sets
from advisor.prediction.memory import pools_of
from advisor.report.gpu_charts import gpu_chart
from advisor.sharing import (
    Group,
    Hybrid,
    Mig,
    Mps,
    Naive,
    Part,
    Phases,
    Place,
    Queue,
    Serial,
    parse_sharing,
)
from advisor.sharing.groups import memories

FACTS = Path(__file__).parents[3] / "shared" / "facts" / "mig_profiles.json"
CARDS = [*catalogue().values()]
WITH_MIG = [card for card in CARDS if card.mig]
NAMES = (
    "resnet50-imagenet64-bs128",
    "resnet26-cifar10-bs128",
    "bert-base-finetune-bs16",
    "gpt2-small-finetune-bs2",
)
JOBS = st.lists(st.sampled_from(NAMES), min_size=2, max_size=5)
advisor_of = cache(Advisor)


def marks(chart, kind):
    layers = chart.to_dict(validate=False)["layer"]
    rows = [row for layer in layers for row in layer["data"]["values"] if row["kind"] == kind]
    return list({json.dumps(row): row for row in rows}.values())


def drawn(key, names, sharing, cap_w=None):
    """The chart of jobs under `sharing` and their prediction."""
    advisor = advisor_of(key) if cap_w is None else advisor_of(key).under(cap_w)
    mix = advisor.predict(names, sharing).prediction
    return gpu_chart(mix, advisor.card, names), mix


def memory_by_job(chart):
    return {row["job"]: row["memory_mib"] for row in marks(chart, "job") if "memory_mib" in row}


def wide(rows):
    return sum(row["end"] - row["start"] for row in rows)


def whole_gpu_plans(jobs):
    """Ways in which so many jobs share a GPU without MIG."""
    limits = st.lists(st.sampled_from((10.0, 43.0, 86.0, 100.0)), min_size=jobs, max_size=jobs)
    queues = [Queue(Mps(), 2), Queue(Naive(), 2)] if jobs > 2 else []
    first, then = (1,), tuple(range(2, jobs + 1))
    phases = [Phases((Group(first, Serial()), Group(then, Mps())))]
    plain = st.sampled_from([Serial(), Naive(), Mps(), *queues, *phases])
    return plain | limits.map(lambda each: Mps(tuple(each)))


def mig_plans(card, jobs):
    """Ways in which so many jobs share the instances of `card`, some of them with others."""
    numbers = tuple(range(1, jobs + 1))

    def shared(layout, way):
        held = [tuple(numbers[first :: len(layout)]) for first in range(len(layout))]
        pairs = [(each, own) for each, own in zip(layout, held, strict=True) if own]
        return Hybrid(
            tuple(
                Place(each, (Part(own, way if len(own) > 1 else Naive()),)) for each, own in pairs
            )
        )

    few = st.sampled_from(largest_layouts(card, jobs))
    ways = st.sampled_from([Serial(), Naive(), Mps()])
    hybrids = st.builds(shared, few, ways)
    alone = [Mig(each[:jobs]) for each in layouts(card) if len(each) >= jobs]
    return hybrids | st.sampled_from(alone) if alone else hybrids


@given(st.data(), st.sampled_from(CARDS), JOBS, st.booleans())
def test_the_parts_of_the_bar_are_the_memory_of_the_plan(data, card, names, capped):
    sharing = data.draw(whole_gpu_plans(len(names)))
    cap_w = card.power_limit_min_w if capped else None
    chart, mix = drawn(card.key, names, sharing, cap_w)
    assert sum(memory_by_job(chart).values()) == pytest.approx(mix.memory_total_mib)
    parts = [row for row in marks(chart, "job") if row.get("top") == 16]
    shares = {row["job"]: row["end"] - row["start"] for row in parts}
    total = sum(shares.values())
    for job, own_mib in memory_by_job(chart).items():
        assert shares.get(job, 0) / total == pytest.approx(own_mib / mix.memory_total_mib)
    if not marks(chart, "break") and mix.memory_total_mib <= mix.memory_capacity_mib:
        assert total == pytest.approx(mix.memory_total_mib / mix.memory_capacity_mib)


@given(st.data(), st.sampled_from(WITH_MIG), JOBS)
def test_each_instance_holds_the_memory_that_its_jobs_hold_when_it_is_fullest(data, card, names):
    chart, mix = drawn(card.key, names, data.draw(mig_plans(card, len(names))))
    most_mib: Counter = Counter()
    held_mib = [job.memory_mib for job in mix.jobs]
    for (part, *_), pool in zip(
        memories(mix.sharing, len(names)), pools_of(mix, card), strict=True
    ):
        own_mib = pool.most_mib(held_mib[job] for job in pool.jobs)
        most_mib[part.instance] = max(most_mib[part.instance], own_mib)
    assert sum(memory_by_job(chart).values()) == pytest.approx(sum(most_mib.values()))


@pytest.mark.parametrize("card", WITH_MIG, ids=lambda card: card.key)
def test_every_layout_has_its_slices_and_no_instance_lies_on_another(card):
    compute = max(row.compute_slices for row in card.mig)
    for layout in layouts(card)[::20]:
        chart, _ = drawn(card.key, [NAMES[1]] * len(layout), Mig(layout))
        assert len(marks(chart, "free")) == compute + card.memory_slices + 1  # and in the key
        frames, tops = marks(chart, "frame"), {}
        for row in frames:
            tops.setdefault(row["top"], []).append((row["start"], row["end"]))
        assert len(frames) == 2 * len(layout)
        for ends in tops.values():
            assert min(ends)[0] >= 0
            assert max(ends)[1] <= 1 + 1e-9
            assert all(one[1] <= other[0] + 1e-9 for one, other in pairwise(sorted(ends)))
        boxes = [row for row in marks(chart, "job") if row.get("top") == min(tops)]
        assert len(boxes) == sum(profile_of(card, each.profile).compute_slices for each in layout)


@pytest.mark.skipif(not FACTS.exists(), reason="the table of published MIG profiles is not here")
def test_gpus_have_as_many_slices_as_published():
    published = json.loads(FACTS.read_text())["gpus"]
    for facts in published.values():
        known = [card for card in WITH_MIG if set(facts["product_names"]) & set(card.products)]
        for card in known:
            (layout, *_) = layouts(card)
            chart, _ = drawn(card.key, [NAMES[1]] * len(layout), Mig(layout))
            rows = Counter(row["top"] for row in marks(chart, "free") if "start" in row)
            assert sorted(rows.values()) == sorted(
                (facts["compute_slices"], facts["memory_slices"])
            )


def test_a_bar_of_little_memory_is_not_to_scale_and_has_a_break():
    chart, mix = drawn("h200-141gb", NAMES[:3], "naive")
    assert mix.memory_total_mib < 0.15 * mix.memory_capacity_mib
    assert marks(chart, "break")
    chart, mix = drawn("t4-16gb", NAMES[:3], "naive")
    assert mix.memory_total_mib > 0.15 * mix.memory_capacity_mib
    assert not marks(chart, "break")


def test_a_job_of_unknown_memory_leaves_all_of_it_free():
    advisor = advisor_of("h200-141gb")
    mix = advisor.predict(NAMES[:1], "serial").prediction
    unknown = replace(mix, jobs=(replace(mix.jobs[0], memory_mib=0.0),))
    chart = gpu_chart(unknown, advisor.card, NAMES[:1])
    assert wide(marks(chart, "free")) == 1.0
    assert [row["text"] for row in marks(chart, "job") if "text" in row] == ["resnet50"]


def test_jobs_in_turn_are_drawn_at_the_fullest_moment():
    chart, mix = drawn("t4-16gb", NAMES[:3], "serial")
    largest = max(mix.jobs, key=lambda job: job.memory_mib)
    assert memory_by_job(chart) == {largest.job: largest.memory_mib}
    assert any("fullest" in row["text"] for row in marks(chart, "words"))


def test_a_limit_is_a_bar_from_zero_and_equal_jobs_share_one():
    chart, _ = drawn("h200-141gb", [NAMES[0], NAMES[1], NAMES[1]], "mps=86,43,43")
    rows = [row for row in marks(chart, "job") if "memory_mib" not in row and row["start"] == 0]
    limits = {row["job"]: row["end"] for row in rows if row["top"] > 16}
    assert limits == {NAMES[0]: 0.86, NAMES[1]: 0.43}


def test_compute_instances_divide_the_compute_slices_of_their_instance():
    card = gpu("h200-141gb")
    whole = card.mig[-1].name
    for sizes in compute_sets(card, whole):
        parts = tuple(Part((number,), Naive(), size) for number, size in enumerate(sizes, 1))
        (at,) = place(card, parse_sharing(f"mig={whole}").instances)
        names = (NAMES * 2)[: len(sizes)]
        chart, _ = drawn(card.key, names, Hybrid((Place(at, parts),)))
        top = min(row["top"] for row in marks(chart, "frame"))
        slices = Counter(row["job"] for row in marks(chart, "job") if row.get("top") == top)
        expected: Counter = Counter()
        for name, size in zip(names, sizes, strict=True):
            expected[name] += size
        assert slices == expected


def test_groups_with_instances_have_a_drawing_each():
    chart, _ = drawn("a100-40gb", NAMES[:3], "mig=4g.20gb@0[3]+3g.20gb@4[1];naive[2]")
    assert {*memory_by_job(chart)} == {*NAMES[:3]}
    drawing = chart.to_dict(validate=False)
    axis = drawing["layer"][0]["encoding"]["y"]["axis"]["labelExpr"]
    for order in ("first", "then"):
        assert order in axis
        assert f" {order}; " in drawing["description"]


def test_the_same_job_has_the_same_colour_in_every_plan():
    scales = [
        layer["encoding"]["color"]["scale"]
        for sharing in ("serial", "mps=43,43", "mig=3g.71gb,4g.71gb")
        for chart in [drawn("h200-141gb", NAMES[:2], sharing)[0]]
        for layer in chart.to_dict(validate=False)["layer"]
        if "color" in layer["encoding"]
    ]
    assert all(scale == scales[0] for scale in scales)
    assert scales[0]["domain"] == [*NAMES[:2]]


def test_the_description_of_the_drawing_has_its_numbers():
    chart, mix = drawn("h200-141gb", NAMES[:2], "mps=86,43")
    words = chart.to_dict(validate=False)["description"]
    for number in ("86", "43", "free", f"{mix.memory_total_mib / 1024:.1f} of 140 GiB"):
        assert number in words
