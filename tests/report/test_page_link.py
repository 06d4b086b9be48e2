"""A link that asks what was asked on the page."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.plan.rules import Conditions
from advisor.report.page_jobs import WantedJob
from advisor.report.page_link import LinkedQuestion, linked_question, parameters

JOBS = st.builds(
    WantedJob,
    name=st.from_regex(r"[a-z][a-z0-9_-]{0,20}( \(jobs:%[0-9]\.toml, [0-9]\))?", fullmatch=True),
    copies=st.integers(1, 40),
    epochs=st.integers(1, 999).map(float),
    batch=st.none() | st.integers(1, 9999),
    user=st.none() | st.text(min_size=1, max_size=8),
    isolated=st.booleans(),
    deadline_min=st.none() | st.integers(1, 999).map(float),
)


def read(found):
    return linked_question({name: [each] if isinstance(each, str) else each
                            for name, each in found.items()})  # fmt: skip


CONDITIONS = st.builds(
    Conditions,
    root=st.booleans(),
    memory_margin=st.sampled_from([0.0, 0.1, 0.125]),
    power_caps=st.booleans(),
)


ASKED = st.builds(
    LinkedQuestion,
    gpu=st.just("a100-40gb"),
    objective=st.just("energy"),
    jobs=st.lists(JOBS, max_size=5).map(tuple),
    cap_w=st.none() | st.integers(1, 999).map(float),
    conditions=CONDITIONS,
    level=st.sampled_from(["p50", "p95"]),
    plan=st.none() | st.sampled_from(["mps=50,50", "mig=3g.20gb@4[2,3]/mps=50,50+4g.20gb@0[1]"]),
    trials=st.none() | st.just("bert"),
    files=st.lists(st.sampled_from(["mine.json", "jobs (2).toml"]), max_size=2).map(tuple),
    question=st.none() | st.just("Several GPUs?"),
    gpus=st.none() | st.integers(1, 64),
    policy=st.none() | st.sampled_from(["first-come", "shortest-first", "best-fit"]),
    view=st.none() | st.just("Beside another plan"),
    beside=st.none() | st.sampled_from(["serial", "mps=50,50 at most 400 W"]),
    form=st.none() | st.just("slurm"),
    running=st.lists(st.integers(1, 40), max_size=3).map(tuple),
    running_sharing=st.none() | st.sampled_from(["naive", "mps=50,50", "mig=3g.71gb@0"]),
    hurt=st.none() | st.sampled_from([0.0, 0.05, 4.0]),
    added=st.none() | st.just("bert, resnet x2"),
    sharing=st.none() | st.just("mps"),
    at_once=st.none() | st.integers(1, 8),
    price=st.none() | st.sampled_from([0.0, 2.5]),
).filter(lambda asked: asked.cap_w is None or not asked.conditions.power_caps)


@given(ASKED)
def test_a_link_asks_what_was_asked(asked):
    assert read(parameters(asked)) == asked


def test_a_link_says_only_what_is_not_so_anyway():
    assert parameters(LinkedQuestion(gpu="a100-40gb")) == {"job": [], "gpu": "a100-40gb"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("power-cap", "nan"),
        ("power-cap", "-5"),
        ("power-cap", "inf"),
        ("power-cap", "1e999"),
        ("power-cap", "<b>9</b>"),
        ("memory-margin", "nan"),
        ("memory-margin", "-1"),
        ("memory-margin", "1"),
        ("memory-margin", ""),
        ("root", "maybe"),
        ("gpus", "0"),
        ("gpus", "65"),
        ("gpus", "2.5"),
        ("gpus", "nan"),
        ("policy", "magic"),
        ("running", "0,x,2.5"),
        ("running-sharing", "![](http://example.com)"),
        ("hurt", "-1"),
        ("sharing", "magic"),
        ("at-once", "0"),
        ("price", "nan"),
        ("pessimistic", "<script>"),
        ("file", "`**mine**`.json"),
        ("file", "a\nb"),
        ("file", "x" * 1000),
        ("who", "knows"),
    ],
)
def test_conditions_that_cannot_be_are_as_if_a_link_did_not_name_them(name, value):
    assert linked_question({name: [value, value]}) == LinkedQuestion()


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":2",
        "a:x",
        "a:0",
        "a:1:-1",
        "a:1:nan",
        "a:1:1e9",
        "a:1:1:1:1",
        "a:9999999",
        "a:1.5",
        "a:1:1:batch=2.5",
        "`a`",
        "a%0Ab",
        "a:1:1:batch=x",
        "a:1:1:due=",
        "a:1:1:who=b",
    ],
)
def test_what_nobody_can_have_meant_is_left_out(text):
    assert linked_question({"job": [text]}) == LinkedQuestion()


def test_a_name_alone_is_one_copy_for_one_epoch():
    assert linked_question({"job": ["bert"]}).jobs == (WantedJob("bert"),)
