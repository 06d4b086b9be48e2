"""Profiles of a noisy minute: measured again once, and marked where that did not help."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from advisor.errors import AdvisorError
from advisor.measure.solo import profile_command
from advisor.measure.solo.profile_command import _Batch
from advisor.workload.measured import Window
from advisor.workload.staleness import unsteady_profiles
from advisor.workload.store import read_profile
from tests import synthetic

FIRST, SECOND = "resnet50-imagenet64-bs128", "bert-base-finetune-bs16"


def of_paces(name, *paces):
    windows = tuple(Window(1.0, 100 / pace) for pace in paces)
    return replace(synthetic.profile(name), windows=windows, cores=(0,))


@pytest.fixture
def batch(tmp_path, monkeypatch):
    """Profiles FIRST and others, each of which measures as said, in turn; what was done."""
    done = []

    def measure(answers, names=(FIRST, SECOND), cores=(0, 1)):
        def alone(workload, settings):
            done.append((workload.name, settings.cores[0]))
            found = answers[workload.name].pop(0)
            if isinstance(found, Exception):
                raise found
            return of_paces(workload.name, *found)

        monkeypatch.setattr(profile_command, "profile_alone", alone)
        monkeypatch.setattr(profile_command, "sleep", done.append)
        monkeypatch.setattr("os.sched_setaffinity", lambda *_: None)
        asked = SimpleNamespace(
            workloads=list(names), skip_existing=False, deadline=None, probe=False, data=None
        )
        session = SimpleNamespace(device=SimpleNamespace(kind="cuda"), close=lambda: None)
        settings = profile_command.SoloRunSettings(
            session=session, origin=None, host_cores=cores, cores=cores, probe=False,
            idle_power_w=None,
        )  # fmt: skip
        made = _Batch(asked, tmp_path)
        made.measure(settings)
        assert made.verdict() == 0
        return done, read_profile(tmp_path / f"{names[0]}.json")

    return measure


def test_an_unsteady_one_is_measured_again_after_the_others_on_another_core(batch, capsys):
    done, kept = batch({FIRST: [(1.0, 1.2), (1.0, 1.01)], SECOND: [(1.0, 1.1)]})
    assert done == [(FIRST, 0), (SECOND, 0), (FIRST, 1)]
    assert kept.unsteady is None
    assert f"{FIRST} again: its steps varied by 20%" in capsys.readouterr().err


def test_one_alone_is_measured_again_once_after_a_pause_on_the_only_core(batch, capsys):
    done, kept = batch({FIRST: [(1.0, 1.3), (1.0, 1.2)]}, [FIRST], (0,))
    assert done == [(FIRST, 0), 5.0, (FIRST, 0)]
    assert kept.unsteady == pytest.approx(0.2)
    assert "its steps vary by 20%" in capsys.readouterr().err


@pytest.mark.parametrize("second", [(1.0, 1.5), AdvisorError("out of memory")])
def test_the_first_is_kept_where_the_second_is_no_steadier_or_fails(batch, second, capsys):
    _, kept = batch({FIRST: [(1.0, 1.2), second]}, [FIRST])
    assert kept.unsteady == pytest.approx(0.2)
    assert "kept" in capsys.readouterr().err


def test_a_profile_says_how_its_windows_varied_and_how_fast_the_best_were():
    steady = of_paces(FIRST, *[1.0] * 4, 1.1)
    noisy = of_paces(SECOND, 1.3, 1.0, 1.2, 1.1, 1.2)
    assert (steady.unsteady, noisy.unsteady) == (None, pytest.approx(0.3))
    assert noisy.fastest_step_s == pytest.approx(0.01)
    assert noisy.step_s == pytest.approx(0.012)
    (line,) = unsteady_profiles([steady, noisy, noisy])
    assert line.startswith(f"{SECOND}'s own steps varied by 30% when it was profiled")
