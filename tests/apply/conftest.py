import pytest


@pytest.fixture(autouse=True)
def _no_measurement_was_killed(monkeypatch):
    """What other tests leave in the folder of temporary files is none of these tests' business."""
    monkeypatch.setattr("advisor.apply.restore.sweep_folders", tuple)
    monkeypatch.setattr("advisor.apply.restore.sweep_locks", tuple)
