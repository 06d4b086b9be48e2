"""Profiles of a noisy minute: measured again once, and marked where that did not help."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from advisor.errors import AdvisorError
from advisor.measure.solo import solo_run
from advisor.measure.solo.solo_run import SoloRunSettings, profile_alone
from advisor.workload.measured import Window, pace_spread
from advisor.workload.named_workloads import workload
from advisor.workload.staleness import unsteady_profiles
from tests import synthetic

FIRST, SECOND = "resnet50-imagenet64-bs128", "bert-base-finetune-bs16"


def windows_of(*paces):
    return tuple(Window(1.0, 100 / pace) for pace in paces)


def of_paces(name, *paces):
    return replace(synthetic.profile(name), windows=windows_of(*paces), cores=(0,))


@pytest.fixture
def profiled(monkeypatch):
    """Profiles FIRST, whose windows alone are as said, in turn; the profile and what was done."""

    def profiled(*answers, cores=(0, 1)):
        done, left = [], list(answers)

        def alone(asked, settings, _watch):
            done.append(settings.cores[0])
            found = left.pop(0)
            if isinstance(found, Exception):
                raise found
            pace = SimpleNamespace(
                windows=windows_of(*found), meter_s=0.0, mean_step_s=0.01,
                memory=SimpleNamespace(device_mib=900.0),
            )  # fmt: skip
            return solo_run._Alone(asked, settings.cores[:1], pace, None, {})

        def probe(job, *_):
            done.append(("under MPS", job.cores))

        monkeypatch.setattr(solo_run, "_trained_alone", alone)
        monkeypatch.setattr(solo_run, "_report", lambda *_: None)
        monkeypatch.setattr(
            solo_run, "_profile",
            lambda alone, _: replace(synthetic.profile(FIRST), windows=alone.pace.windows),
        )  # fmt: skip
        monkeypatch.setattr(solo_run, "mps_probe", probe)
        monkeypatch.setattr(solo_run, "sleep", done.append)
        monkeypatch.setattr("os.sched_setaffinity", lambda *_: None)
        watch = SimpleNamespace(took=lambda _: None)
        monkeypatch.setattr(solo_run, "Stopwatch", lambda: watch)
        session = SimpleNamespace(
            device=SimpleNamespace(kind="cuda"), close=lambda: done.append("closed"),
            switch_to=lambda _: None,
        )  # fmt: skip
        settings = SoloRunSettings(
            session=session, origin=None, host_cores=cores, cores=cores, probe=True,
            idle_power_w=None,
        )  # fmt: skip
        return profile_alone(workload(FIRST), settings), done

    return profiled


def test_an_unsteady_one_is_measured_again_on_another_core_before_it_is_under_mps(profiled, capsys):
    kept, done = profiled((1.0, 1.2), (1.0, 1.01))
    assert done == [0, 5.0, 1, ("under MPS", (1,))]
    assert kept.unsteady is None
    assert "its steps varied by 20%; measuring it again" in capsys.readouterr().err


def test_a_steady_one_is_measured_once(profiled):
    assert profiled((1.0, 1.1))[1] == [0, ("under MPS", (0,))]


def test_it_is_measured_twice_at_most_on_the_only_core_if_there_is_one(profiled, capsys):
    kept, done = profiled((1.0, 1.3), (1.0, 1.2), cores=(0,))
    assert done == [0, 5.0, 0, ("under MPS", (0,))]
    assert kept.unsteady == pytest.approx(0.2)
    assert "its steps vary by 20%" in capsys.readouterr().err


def test_the_first_is_kept_where_the_second_is_no_steadier(profiled):
    kept, done = profiled((1.0, 1.2), (1.0, 1.5))
    assert pace_spread(kept.windows) == pytest.approx(pace_spread(windows_of(1.0, 1.2)))
    assert done[-1] == ("under MPS", (0,))


def test_the_first_is_kept_where_the_second_fails(profiled, capsys):
    kept, done = profiled((1.0, 1.2), AdvisorError("out of memory"))
    assert kept.unsteady == pytest.approx(0.2)
    assert done == [0, 5.0, 1, "closed", ("under MPS", (0,))]
    assert "out of memory; the first measurement is kept" in capsys.readouterr().err


def test_a_profile_says_how_its_windows_varied_and_how_fast_the_best_were():
    steady = of_paces(FIRST, *[1.0] * 4, 1.1)
    noisy = of_paces(SECOND, 1.3, 1.0, 1.2, 1.1, 1.2)
    assert (steady.unsteady, noisy.unsteady) == (None, pytest.approx(0.3))
    assert noisy.fastest_step_s == pytest.approx(0.01)
    assert noisy.step_s == pytest.approx(0.012)
    (line,) = unsteady_profiles([steady, noisy, noisy])
    assert line.startswith(f"{SECOND}'s own steps varied by 30% when it was profiled")
