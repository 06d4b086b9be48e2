"""What is said not to fit on emulated slices, beside what does not."""

from advisor.hardware.catalogue import gpu
from advisor.prediction.fit.memory_fit import Trial
from advisor.prediction.memory import Need
from advisor.prediction.memory_edge import Edge
from research.memory_score import ScoredProcess
from research.misfit_score import Judged, by_size, by_trial, scored, scores, slice_sizes_mib
from tests import synthetic
from tests.research.test_memory_score import NAMES

H200 = gpu("h200-141gb")
ALONE = Edge(share=0.5, width=0.1, sigma=0.005, victims=1.0)
PROCESS = ScoredProcess("naive", "r1", "resnet", Need(5000.0, 4000.0), 5000.0, 4000.0)


def taught(_family):
    return {"serial": ALONE}


def test_on_a_slice_that_holds_everything_nothing_is_said_and_on_one_too_small_it_is():
    small, between, large = by_size([PROCESS], taught, [3900, 4600, 5200])
    assert (small.fits, small.said) == (False, True)
    assert between.fits is None
    assert (large.fits, large.said) == (True, False)


def test_close_means_that_the_need_is_about_the_size():
    far, near = by_size([PROCESS], taught, [9000, 4500])
    assert not far.close
    assert near.close


def test_shares_are_of_those_whose_outcome_is_known():
    judged = [Judged(said=True, fits=False), Judged(said=False, fits=False),
              Judged(said=True, fits=True), Judged(said=True, fits=None)]  # fmt: skip
    found = scored(H200, "made up", judged)
    assert (found.misfits, found.recall) == (2, 0.5)
    assert (found.fits, found.false_alarms) == (1, 1.0)
    assert (found.unknown, found.unknown_said) == (1, 1.0)
    assert scored(H200, "none", []).recall is None


def test_a_job_alone_is_judged_apart_from_mixes():
    tried = [
        Trial("serial", frozenset({"resnet"}), (Need(5000.0, 4000.0),), 4200.0, 1),
        Trial("mps", frozenset({"resnet", "vit"}), (Need(5000.0, 4000.0),) * 2, 9000.0, 0),
    ]
    (alone,) = by_trial(tried, taught, alone=True)
    assert (alone.said, alone.fits) == (True, False)
    assert len(list(by_trial(tried, taught, alone=False))) == 2


def test_slices_are_those_of_every_gpu():
    sizes = slice_sizes_mib()
    assert {4864, 9856, 19968, 16384, 71424} <= set(sizes)
    assert list(sizes) == sorted(sizes)


def test_without_trials_nothing_too_large_is_missed():
    profiles = {name: synthetic.profile(name, memory_mib=9000) for name in NAMES}
    runs = [synthetic.run([*profiles.values()], "naive", run_id=f"r{n}") for n in range(3)]
    every, _, alone, mixes = scores([(profiles, runs, H200)])
    assert every.misfits == 2 * 9  # slices of 4864 and 5952 MiB
    assert every.recall == 1.0
    assert every.false_alarms == 0.0
    assert alone.recall is mixes.recall is None
