"""MIG instances as blocks: each where it lies, and what is left."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.hardware.catalogue import gpu
from advisor.hardware.mig_layouts import layouts
from advisor.report.chart_parts import ESTIMATE_COLOUR, FREE_COLOUR, job_colours
from advisor.report.charts import slices_chart
from advisor.report.mig_blocks import blocks
from advisor.sharing import Mig, parse_sharing
from tests.report.test_plan_charts import drawn as charted

H200 = gpu("h200-141gb")


def drawn(words):
    return [(each.label, each.start, each.end) for each in blocks(parse_sharing(words), H200)]


@pytest.mark.parametrize("words", ["serial", "naive", "mps=43,57", "naive[1,2];serial[3]"])
def test_without_mig_nothing_is_cut(words):
    assert drawn(words) == []


def test_an_instance_says_whose_it_is():
    assert drawn("mig=3g.71gb@4,4g.71gb@0") == [("3g.71gb: job 1", 4, 8), ("4g.71gb: job 2", 0, 4)]


def test_what_no_instance_takes_is_free():
    free = [each for each in drawn("mig=3g.71gb@4,1g.35gb@0") if each[0] == "free"]
    assert free == [("free", 2, 3), ("free", 3, 4)]


def test_jobs_that_share_an_instance_are_named_with_how_they_do():
    assert ("3g.71gb: jobs 2, 3 by mps=60,80", 4, 8) in drawn(
        "mig=4g.71gb@0[1]+3g.71gb@4[2,3]/mps=60,80"
    )


def test_compute_instances_lie_side_by_side_in_their_instance():
    assert drawn("mig=7g.141gb/ci=4c[2]+3c[1,3]/naive") == [
        ("7g.141gb", 0, 8),
        ("4c: job 2", 0, pytest.approx(8 * 4 / 7)),
        ("3c: jobs 1, 3 by naive", pytest.approx(8 * 4 / 7), pytest.approx(8)),
    ]


def test_groups_one_after_another_have_rows_of_their_own():
    cut = blocks(parse_sharing("mig=4g.71gb[1]+3g.71gb[2];mig=7g.141gb[3]"), H200)
    assert [each.row for each in cut] == [
        "set 1: instances",
        "set 1: instances",
        "set 2: instances",
    ]


def test_what_a_job_has_alone_has_its_colour_and_what_jobs_share_or_nobody_has_is_grey():
    cut = blocks(parse_sharing("mig=4g.71gb@0[2]+2g.35gb@4[1,3]/mps"), H200)
    rows, _ = charted(slices_chart(cut, H200.memory_slices, ["one", "two", "three"]))
    colours = {row["label"].partition(":")[0]: row["fill"] for row in rows}
    assert colours["4g.71gb"] == job_colours(["one", "two", "three"])["two"]
    assert {colours["2g.35gb"], colours["free"]} == {ESTIMATE_COLOUR, FREE_COLOUR}


@given(st.sampled_from(layouts(H200)))
def test_instances_and_what_is_free_fill_the_gpu_and_overlap_nowhere(layout):
    cut = sorted((each.start, each.end) for each in blocks(Mig(layout), H200))
    assert (cut[0][0], cut[-1][1]) == (0, H200.memory_slices)
    assert all(left[1] == right[0] for left, right in pairwise(cut))
