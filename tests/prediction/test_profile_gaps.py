"""Which parts a profile lacks, and what they would tell."""

from dataclasses import replace

import pytest

from advisor.hardware.catalogue import gpu
from advisor.prediction.profile_gaps import why_wide
from advisor.sharing import parse_sharing
from advisor.workload.measured import Counters
from tests import synthetic

WHOLE = synthetic.profile()
DARK = replace(synthetic.profile("bert-base-finetune-bs16"), trace=None)
LOADS = "how it loads SMs and memory, by GPM or, before Hopper, by DCGM"
NO_GPM = replace(DARK, trace=WHOLE.trace, counters=Counters(source="nvml", gract=0.8))
BARE = replace(DARK, counters=None, mps=None)
SILENT = replace(BARE, gpu_s=None)
TRACE = "no kernel trace (how many SMs it leaves to others)"


def said(profiles, sharing, on="h200-141gb"):
    return why_wide(profiles, parse_sharing(sharing), gpu(on))


@pytest.mark.parametrize("sharing", ["naive", "mps", "mps=50,50", "mig=3g.71gb,4g.71gb"])
def test_of_whole_profiles_there_is_nothing_to_say(sharing):
    assert said([WHOLE, WHOLE], sharing) is None


def test_each_part_that_is_lacking_is_named_with_what_it_would_tell():
    assert said([WHOLE, SILENT], "mps") == (
        f"ranges are wide, for {BARE.name} has no utilisation (how long it keeps the GPU busy), "
        f"{TRACE}, no counters of SMs ({LOADS}), no MPS probe (what MPS and its limits cost it "
        "alone)"
    )


def test_only_parts_that_bear_on_the_way_of_sharing_are_named():
    assert said([WHOLE, BARE], "naive") == f"ranges are wide, for {BARE.name} has {TRACE}"
    assert said([WHOLE, BARE], "mig=3g.71gb,4g.71gb") == said([WHOLE, BARE], "naive")
    assert said([BARE], "mps=50") == said([WHOLE, BARE], "naive")
    assert said([NO_GPM, WHOLE], "naive") is None
    assert said([BARE], "mps") is None
    assert said([BARE, BARE], "serial") is None


def test_with_a_trace_ranges_are_wider_but_not_wide():
    assert said([NO_GPM, WHOLE], "mps=50,50") == (
        f"ranges are somewhat wider, for {NO_GPM.name} has no counters of SMs ({LOADS})"
    )


def test_jobs_that_lack_the_same_are_named_together_and_once():
    other = replace(DARK, workload=WHOLE.workload)
    assert said([DARK, other, DARK], "mps") == (
        f"ranges are wide, for {DARK.name}, {WHOLE.name} has {TRACE}"
    )


def test_on_slices_of_an_a100_memory_utilisation_tells_what_a_trace_would():
    watched = replace(BARE, counters=Counters(source="nvml", gract=0.8, memory_utilization=0.3))
    slices = "mig=3g.20gb,4g.20gb"
    assert said([WHOLE, watched], slices, "a100-40gb").startswith("ranges are narrower than under")
    assert said([WHOLE, BARE], slices, "a100-40gb") == (
        f"ranges are wide, for {BARE.name} has no memory utilisation (what a slice costs it)"
    )
    assert TRACE in said([WHOLE, watched], "mig=3g.71gb,4g.71gb")
