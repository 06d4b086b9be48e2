"""Sharings: as words, and what is left of them for some of their jobs."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import InvalidInput
from advisor.sharing import (
    Group,
    Hybrid,
    Instance,
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
from advisor.sharing.groups import (
    check_count,
    groups,
    in_turn,
    kind_of,
    memories,
    most_at_once,
    mps_servers,
    named_jobs,
    relabelled,
    restricted,
    running_together,
    without_ended,
    without_idle_queue,
)

LIMITS = st.integers(1, 100).map(float)
INSTANCES = st.builds(
    Instance,
    st.sampled_from(["1g.18gb", "1g.18gb+me", "1g.24gb-me", "1g.24gb+me.all", "3g.71gb"]),
    st.none() | st.integers(0, 11),
)


@st.composite
def _shared(draw, jobs, kinds):
    kind = draw(st.sampled_from(kinds))
    if kind is not Mps:
        return kind()
    return Mps(tuple(draw(LIMITS) for _ in jobs) if draw(st.booleans()) else ())


@st.composite
def _dealt(draw, jobs):
    """`jobs` in one or more groups."""
    order = draw(st.permutations(jobs))
    ends = sorted(draw(st.sets(st.integers(1, len(jobs)), max_size=len(jobs)))) or [len(jobs)]
    if ends[-1] != len(jobs):
        ends.append(len(jobs))
    return [tuple(order[a:b]) for a, b in zip([0, *ends], ends, strict=False)]


@st.composite
def _place(draw, jobs):
    instance = draw(INSTANCES)
    if draw(st.booleans()):
        kinds = [Naive, Mps, Serial] if len(jobs) > 1 else [Naive, Mps]
        return Place(instance, (Part(jobs, draw(_shared(jobs, kinds))),))
    parts = draw(_dealt(jobs))
    return Place(
        instance,
        tuple(Part(p, draw(_shared(p, [Naive, Mps])), draw(st.integers(1, 7))) for p in parts),
    )


@st.composite
def _hybrid(draw, jobs):
    return Hybrid(tuple(draw(_place(group)) for group in draw(_dealt(jobs))))


PLAIN_QUEUES = st.builds(Queue, st.sampled_from([Naive(), Mps()]), st.integers(2, 9999))


@st.composite
def _queue(draw, jobs):
    at_once = draw(st.integers(2, len(jobs) - 1))
    return Group(jobs, Queue(draw(st.sampled_from([Naive(), Mps()])), at_once))


@st.composite
def _ordered_queue(draw):
    jobs = draw(st.permutations(range(1, draw(st.integers(3, 9)) + 1)))
    return Phases((draw(_queue(tuple(jobs))),))


@st.composite
def _phases(draw):
    first, *rest = draw(_dealt(tuple(range(1, draw(st.integers(2, 8)) + 1))))
    groups = [first, *rest] if rest else [first[:1], first[1:]]
    return Phases(
        tuple(
            draw(_hybrid(jobs))
            if draw(st.booleans())
            else draw(_queue(jobs))
            if len(jobs) > 2 and draw(st.booleans())
            else Group(jobs, draw(_shared(jobs, [Serial, Naive, Mps])))
            for jobs in groups
        )
    )


SHARINGS = st.one_of(
    st.sampled_from([Serial(), Naive(), Mps()]),
    st.integers(1, 6).flatmap(lambda jobs: _shared(range(jobs), [Mps])),
    st.lists(INSTANCES, min_size=1, max_size=7).map(lambda each: Mig(tuple(each))),
    st.integers(1, 8).flatmap(lambda jobs: _hybrid(tuple(range(1, jobs + 1)))),
    PLAIN_QUEUES,
    _ordered_queue(),
    _phases(),
)


@given(SHARINGS)
def test_what_a_sharing_is_called_names_it(sharing):
    assert parse_sharing(str(sharing)) == sharing


NO_SHARINGS = """
mpss mps= mps=200 mps=0 mps=nan mps=50, mig=9g 1g mig=3g.71gb[1 mig=3g.71gb[0]
mig=3g.71gb[1,1] mig=3g.71gb[1]+3g.71gb[1] mig=3g.71gb[1]+ mig=7g.141gb/ci=3c[1,2]/serial+4c[3]
mig=3g.71gb[1,2]/mps=50 mig=3g.71gb,4g.71gb[1] 3c[1] mig=3g.71gb[1]+3c[2]
mig=7g.141gb/ci=0c[1] mig=7g.141gb/ci=3c mig=7g.141gb/ci=3c[1]+4c[1] naive[1] naive[1];
naive[1];mps naive[1];mps[1] naive;mps naive[1];mps=50[2,3] naive[1];mig=3g.71gb timeslice=2
naive[1,2] mig=7x1g.18gb mps/ mps/1 mps/x mps/99999 serial/2 mps=50,50/2
mps=50,50,50/2[1,2,3] mps/2[] mps/2[1,1,2] mps/2[0,1,2] mps/2[1,2,3]; mps/2;naive[1]
mps/3[2,5] mig=3g.71gb[1,2]/mps/2 mps/3[2,1,3] mps/priority=0,1
mig=3g.71gb[1]+4g.71gb[2,3]/mps/priority=1,0
"""


@pytest.mark.parametrize(
    "text", [*NO_SHARINGS.split(), "", "mps=50 50", "mig=3g.71gb[" + "9" * 5000 + "]"]
)
def test_what_names_no_sharing_is_refused(text):
    with pytest.raises(InvalidInput):
        parse_sharing(text)


@given(st.text("migps=0123456789[]+,;/.@c gbnavelroty", max_size=40))
def test_no_text_makes_anything_but_a_sharing_or_a_refusal(text):
    try:
        found = parse_sharing(text)
    except InvalidInput:
        return
    assert parse_sharing(str(found)) == found


@pytest.mark.parametrize(
    "word",
    ["time-slicing", "timeslice", "time_slicing", "time slicing", "Timesliced", "NAIVE"],
)
def test_time_slicing_is_naive_sharing_whatever_it_is_called(word):
    assert str(parse_sharing(word)) == "naive"
    assert str(parse_sharing(f"{word}[1,2];MPS[3]")) == "naive[1,2];mps[3]"
    inside = f"mig=4g.71gb[1]+3g.71gb[2,3]/{word}"
    assert str(parse_sharing(inside)) == "mig=4g.71gb[1]+3g.71gb[2,3]/naive"


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("mps = 50, 50", "mps=50,50"),
        ("mps=50%, 50 %", "mps=50,50"),
        ("mps: 50,50", "mps=50,50"),
        ("mps 50,50", "mps=50,50"),
        ("mig=3g,4g", "mig=3g.71gb,4g.71gb"),
        ("MIG 3g.71gb", "mig=3g.71gb"),
        ("3g.71gb@4, 4g@0", "mig=3g.71gb@4,4g.71gb@0"),
        ("7g / ci = 3c[1] + 4c[2]", "mig=7g.141gb/ci=3c[1]+4c[2]"),
        ("naive [1, 2]; mps [3]", "naive[1,2];mps[3]"),
        ("mps/2[1,2];naive/5[3,4]", "mps[1,2];naive[3,4]"),  # room for all of the group at once
        ("naive/2[3];mps/2[1,2,4]", "naive[3];mps/2[1,2,4]"),
    ],
)
def test_spaces_units_and_an_instance_without_its_memory_do_not_change_a_sharing(text, plain):
    assert parse_sharing(text) == parse_sharing(plain)


@pytest.mark.parametrize(
    ("text", "offered", "named"),
    [
        ("mig", ("1g.6gb", "2g.12gb", "4g.24gb"), "mig=2g.12gb,2g.12gb"),
        ("mig=1g", ("1g.10gb", "1g.20gb"), "1g.10gb or 1g.20gb"),
        ("mig=3g", (), "serial, naive, mps"),
        ("mig=4g[1]+", ("1g.6gb", "2g.12gb", "4g.24gb"), "mig=4g.24gb/ci=2c[1]+2c[2]"),
        ("mps=50 50", (), "mps=50,50"),
    ],
)
def test_a_refused_sharing_is_answered_with_one_that_this_gpu_has(text, offered, named):
    with pytest.raises(InvalidInput, match=re.escape(named)):
        parse_sharing(text, offered)


@pytest.mark.parametrize(
    ("text", "jobs", "named"),
    [("mps=43", 3, "mps=43,43,43"), ("mig=1g.18gb", 2, "mig=1g.18gb,1g.18gb")],
)
def test_one_setting_for_several_jobs_is_answered_with_one_for_each(text, jobs, named):
    with pytest.raises(InvalidInput, match=named):
        check_count(parse_sharing(text), jobs)


@pytest.mark.parametrize(("limit", "meant"), [("0.5", "50"), ("0.57", "57"), ("0.07", "7")])
def test_a_limit_that_was_meant_as_a_share_is_refused_with_the_per_cent(limit, meant):
    with pytest.raises(InvalidInput, match=rf"{limit} % is less .* Did you mean {meant}\?$"):
        parse_sharing(f"mps={limit},40")


@pytest.mark.parametrize(
    ("text", "running", "left"),
    [
        ("naive", [1, 2], "naive"),
        ("mps=10,20,30", [0, 2], "mps=10,30"),
        ("mig=3g.71gb[1]+4g.71gb[2,3]/mps", [1], "mig=4g.71gb[1]/mps"),
        ("mig=1g.18gb,2g.35gb", [1], "mig=2g.35gb"),
        ("mig=4g.71gb[1]+3g.71gb[2,3]/mps=50,60", [0, 2], "mig=4g.71gb[1]+3g.71gb[2]/mps=60"),
        ("mig=4g.71gb[3]+3g.71gb[1,2]/mps", [2], "mig=4g.71gb[1]"),
        ("mig=7g.141gb/ci=3c[1]+4c[2,3]/naive", [1, 2], "mig=7g.141gb/ci=4c[1,2]/naive"),
        ("mps=10,20[3,1];naive[2]", [0, 2], "mps=20,10"),
        ("naive[2];mig=3g.71gb[1]+3g.71gb[3]", [2], "mig=3g.71gb[1]"),
        ("mps/2", [0, 2], "mps"),
        ("mps/2[3,1,2,4];naive[5]", [2, 3], "mps"),
        ("mps/2[3,1,2,4];naive[5]", [4], "naive"),
        ("mig=3g.71gb[4,1]/serial+4g.71gb[2,3]/serial", [2, 3], "mig=3g.71gb[2]+4g.71gb[1]"),
    ],
)
def test_who_still_runs_keeps_what_it_had(text, running, left):
    assert str(restricted(parse_sharing(text), running)) == left


@given(SHARINGS, st.data())
def test_jobs_that_start_again_are_with_those_that_they_were_with(sharing, data):
    jobs = len(named_jobs(sharing)) or 4
    left = sorted(data.draw(st.sets(st.integers(0, jobs - 1), min_size=1)))
    rest = without_ended(sharing, jobs, left)
    check_count(rest, len(left))
    assert parse_sharing(str(rest)) == rest
    before = [
        {left.index(at) for at in run if at in left} for run in running_together(sharing, jobs)
    ]
    after = map(set, running_together(rest, len(left)))
    assert sorted(map(sorted, after)) == sorted(map(sorted, filter(None, before)))


@pytest.mark.parametrize(
    ("text", "jobs", "left", "rest"),
    [
        ("mps=10,20,30", 3, [0, 2], "mps=10,30"),
        ("naive", 3, [1, 2], "naive"),
        ("naive[2,3];mps=40,60[1,4]", 4, [1, 3], "serial[1];mps=60[2]"),
        ("mig=1g.18gb@0,2g.35gb@2", 2, [1], "mig=2g.35gb@2[1]"),
        ("mps/2[3,1,2,4]", 4, [1, 2], "mps"),
        ("mig=3g.71gb[4,1]/serial+4g.71gb[3,2]/serial", 4, [0, 3], "mig=3g.71gb[2,1]/serial"),
    ],
)
def test_the_rest_of_a_plan_shares_as_planned(text, jobs, left, rest):
    assert str(without_ended(parse_sharing(text), jobs, left)) == rest


@pytest.mark.parametrize(
    ("text", "sets"),
    [
        ("serial", [[0], [1], [2]]),
        ("mps", [[0, 1, 2]]),
        ("mig=3g.71gb[2]+4g.71gb[1,3]", [[0, 1, 2]]),
        ("serial[1,3];mps[2]", [[0], [2], [1]]),
        ("mps[1,3];naive[2]", [[0, 2], [1]]),
        ("naive/2[3,1,2]", [[2, 0, 1]]),
    ],
)
def test_jobs_hold_memory_together_with_those_of_their_group(text, sets):
    assert running_together(parse_sharing(text), 3) == sets


@pytest.mark.parametrize(
    ("text", "servers"),
    [
        ("naive", []),
        ("mps=50,50,50", [[0, 1, 2]]),
        ("mig=3g.71gb[1,2]/mps+3g.71gb[3]", [[0, 1]]),
        ("mig=7g.141gb/ci=3c[1,2]/mps+4c[3]/mps", [[0, 1], [2]]),
        ("mps[2,3];mig=3g.71gb[1]/mps", [[1, 2], [0]]),
        ("mps/2", [[0, 1, 2]]),
    ],
)
def test_each_instance_has_an_mps_server_of_its_own(text, servers):
    assert mps_servers(parse_sharing(text), 3) == servers


@pytest.mark.parametrize(
    "text",
    [
        "mps=50,50",
        "mig=3g.71gb",
        "mig=3g.71gb[1,2]",
        "mig=3g.71gb[1,2,4]",
        "naive[1];mps[2,3,4]",
        "mps/2[1,2,3,4]",
        "mps/2[1,2,4]",
    ],
)
def test_a_sharing_of_other_jobs_is_refused(text):
    with pytest.raises(InvalidInput):
        check_count(parse_sharing(text), 3)


@pytest.mark.parametrize(
    ("text", "sharing"),
    [
        (
            "mig=4g.71gb@0[1]+3g.71gb@4[2,3]/mps=50,50",
            Hybrid(
                (
                    Place(Instance("4g.71gb", 0), (Part((1,)),)),
                    Place(Instance("3g.71gb", 4), (Part((2, 3), Mps((50.0, 50.0))),)),
                )
            ),
        ),
        (
            "7g.141gb@0/ci=3c[1]+4c[2]",
            Hybrid((Place(Instance("7g.141gb", 0), (Part((1,), slices=3), Part((2,), slices=4))),)),
        ),
        ("naive[1,2];mps[3]", Phases((Group((1, 2), Naive()), Group((3,), Mps())))),
        ("mps / 3", Queue(Mps(), 3)),
        ("Time-slicing/2[3,1,2]", Phases((Group((3, 1, 2), Queue(Naive(), 2)),))),
    ],
)
def test_a_sharing_puts_jobs_where_its_words_say(text, sharing):
    assert parse_sharing(text) == sharing


def test_a_queue_of_some_jobs_is_one_of_several_groups():
    assert parse_sharing("mps/2[1,2,4];naive[3]").mode == "phases"
    assert parse_sharing("mps/2[1,2,3]").mode == parse_sharing("mps/2").mode == "queue"


@given(PLAIN_QUEUES, st.integers(1, 12))
def test_a_plain_queue_of_few_jobs_is_how_they_share_all_at_once(queue, jobs):
    plain = without_idle_queue(queue, jobs)
    assert plain == (queue.sharing if queue.at_once >= jobs else queue)
    assert groups(plain, jobs) == groups(queue, jobs)
    assert most_at_once(queue, jobs) == min(queue.at_once, jobs)


@given(_ordered_queue())
def test_a_queue_keeps_its_order_when_jobs_are_renumbered_and_joined(queue):
    (group,) = queue.groups
    jobs = len(group.jobs)
    (back,) = relabelled(queue, range(jobs, 0, -1))
    assert back.jobs == tuple(jobs + 1 - job for job in group.jobs)
    joined = in_turn([group])
    assert groups(joined, jobs) == (group,)
    assert isinstance(joined, Queue) == (sorted(group.jobs) == list(group.jobs))


def test_jobs_in_line_on_an_instance_have_it_one_after_another():
    lines = parse_sharing("mig=3g.71gb[3,1]/serial+4g.71gb[2]/serial+1g.18gb[4,5]/mps")
    assert str(lines) == "mig=3g.71gb[3,1]/serial+4g.71gb[2]+1g.18gb[4,5]/mps"
    assert most_at_once(lines, 5) == 4
    assert [sum(len(part.jobs) for part in each) for each in memories(lines, 5)] == [1, 1, 1, 2]
    assert kind_of(lines) == "hybrid"
    assert kind_of(parse_sharing("mig=3g.71gb[3,1]/serial+4g.71gb[2]")) == "mig"
    with pytest.raises(InvalidInput, match="undivided MIG instances"):
        parse_sharing("mig=7g.141gb/ci=3c[1,2]/serial+4c[3]")


def test_the_memory_of_a_queue_is_for_so_many_of_its_jobs():
    (((queued,), (other,))) = memories(parse_sharing("mps/2[4,1,2];naive[3]"), 4)
    assert (queued.jobs, queued.sharing, queued.at_once) == ((4, 1, 2), Mps(), 2)
    assert (other.jobs, other.at_once) == ((3,), None)
