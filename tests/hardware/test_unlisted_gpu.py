"""A GPU that the catalogue lacks is read from its driver, and known from then on."""

import json

import pytest

from advisor.errors import InvalidInput, UnknownName
from advisor.hardware.catalogue import gpu, gpu_meant, gpu_of_product, known_gpus
from advisor.hardware.live_gpu import live_gpu
from advisor.hardware.unlisted_gpu import key_of
from advisor.measure.process.claimed_device import device_at_hand
from tests.hardware.nvml import FakeGpu, FakeLibrary

KEY = "rtx-3080-12gb"


def card(**other):
    said = {"mig": None, "gpm": False, "capability": (8, 6), "cores": 8960, "memory_mib": 12288}
    return FakeGpu("NVIDIA GeForce RTX 3080", **said | other)


@pytest.fixture
def at_hand(install, tmp_path, monkeypatch):
    """The file in which what the driver of the GPU at hand says is kept."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr("advisor.hardware.unlisted_gpu._l2_mib", lambda _uuid: 6.0)
    install(FakeLibrary(card()))
    return tmp_path / "advisor" / "gpus" / f"{KEY}.json"


@pytest.mark.usefixtures("at_hand")
def test_its_driver_says_what_it_is():
    assert live_gpu(0).catalogue_key == KEY
    found = gpu(KEY)
    assert (found.sms, found.memory_mib, found.usable_mib) == (70, 12288, 12288 - 346)
    assert found.bandwidth_gb_s == pytest.approx(936, abs=1)
    assert (found.architecture, found.compute_capability) == ("Ampere", "8.6")
    assert (found.power_limit_w, found.power_limit_min_w, found.l2_mib) == (350.0, 100.0, 6.0)
    assert (found.threads_per_sm, found.max_mps_clients) == (1536, 48)
    assert (found.mig, found.memory_slices) == ((), 0)


def test_it_is_known_later_where_there_is_no_driver(at_hand, install):
    live_gpu(0)
    install(FakeLibrary())
    assert at_hand.is_file()
    assert gpu_meant("RTX 3080").key == KEY
    assert gpu_of_product("NVIDIA GeForce RTX 3080") == known_gpus()[KEY]


def test_it_can_be_measured_on(at_hand):
    assert device_at_hand("0").key == KEY
    assert at_hand.is_file()


def test_its_kinds_of_mig_instances_are_the_drivers(at_hand, install):
    rows = {
        0: {"id": 19, "name": b"MIG 1g.6gb", "sliceCount": 1, "memorySizeMB": 5904,
            "multiprocessorCount": 16, "instanceCount": 2, "places": [(0, 1), (1, 1)]},
        1: {"id": 0, "name": b"MIG 2g.12gb", "sliceCount": 2, "memorySizeMB": 11904,
            "multiprocessorCount": 32, "instanceCount": 1, "places": [(0, 2)]},
    }  # fmt: skip
    install(FakeLibrary(card(mig=(0, 0), profiles=rows)))
    live_gpu(0)
    found = gpu(KEY)
    assert [row.name for row in found.mig] == ["1g.6gb", "2g.12gb"]
    assert found.memory_slices == 2
    assert at_hand.is_file()


def test_a_gpu_older_than_volta_is_refused(at_hand, install):
    install(FakeLibrary(card(capability=(6, 1))))
    with pytest.raises(InvalidInput, match="older than Volta"):
        device_at_hand("0")
    assert not at_hand.exists()


@pytest.mark.usefixtures("at_hand")
def test_a_gpu_that_nobody_described_is_told_how_it_would_be():
    with pytest.raises(UnknownName, match="reads the one at hand"):
        gpu("rtx-9999-1gb")


@pytest.mark.parametrize(
    "change",
    [{"sms": 0}, {"sms": "many"}, {"memory_mib": 1e30}, {"schema": 2}, {"key": "other"},
     {"mig": 3}, {"mig": [{}]}, {"surprise": 1}, {"compute_capability": []}, {"l2_mib": -1}],
)  # fmt: skip
def test_a_description_that_cannot_be_is_refused_and_hides_no_other(at_hand, change):
    live_gpu(0)
    at_hand.write_text(json.dumps(json.loads(at_hand.read_text()) | change))
    with pytest.raises(InvalidInput, match=f"{KEY}.json: no description of a GPU"):
        gpu(KEY)
    assert gpu_meant("A30").key == "a30-24gb"


@pytest.mark.parametrize(
    ("product", "memory_mib", "key"),
    [("NVIDIA GeForce RTX 3090 Ti", 24564, "rtx-3090-ti-24gb"), ("Tesla T4", 15360, "t4-15gb"),
     ("NVIDIA A800-SXM4-80GB", 81920, "a800-sxm4-80gb")],
)  # fmt: skip
def test_a_key_says_the_product_and_its_memory(product, memory_mib, key):
    assert key_of(product, memory_mib) == key
