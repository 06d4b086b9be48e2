"""A GPU model that a user describes in a file."""

import json

import pytest

from advisor.errors import InvalidInput
from advisor.hardware.gpus import gpu, gpu_meant, gpu_of_product, read_own_gpu
from advisor.hardware.partition import rates_of

OWN = {
    "key": "my-card-20gb",
    "products": ["NVIDIA My Card"],
    "compute_capability": "8.9",
    "sms": 48,
    "memory_mib": 20475,
    "bandwidth_gb_s": 360,
    "clock_mhz": 2175,
    "fp32_tflops": 26.7,
    "fp16_tflops": 106.9,
}
SLICE = {
    "name": "1g.5gb",
    "profile_id": 19,
    "compute_slices": 1,
    "memory_slices": 2,
    "memory_mib": 4864,
    "sms": 14,
    "max_instances": 4,
    "starts": [0, 2, 4, 6],
}


def own_file(folder, document):
    """The file of a user's own card, as TOML; None: without that field."""
    lines = []
    for row in (document, *document.get("mig", ())):
        lines += ["[[mig]]"] if row is not document else []
        own = {name: value for name, value in row.items() if name != "mig" and value is not None}
        lines += [f"{name} = {json.dumps(value)}" for name, value in own.items()]
    (path := folder / "card.toml").write_text("\n".join(lines))
    return path


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    return tmp_path


@pytest.mark.parametrize("more", [{}, {"memory_slices": 8, "mig": [SLICE], "tf32_tflops": 53.4}])
def test_a_card_of_ones_own_is_known_by_its_key_and_its_name_once_its_file_was_read(more, home):
    own = read_own_gpu(own_file(home, OWN | more))
    assert gpu("my-card-20gb") == gpu_meant("NVIDIA My Card") == own
    assert gpu_of_product("NVIDIA My Card") == own
    assert (own.threads_per_sm, own.rates.fp32_tflops, len(own.mig)) == (1536, 26.7, len(own.mig))
    assert rates_of(own).fp16_tflops == pytest.approx(0.94 * 106.9)


@pytest.mark.parametrize(
    ("change", "remedy"),
    [
        ({"key": "h200-141gb"}, "h200-141gb"),
        ({"products": ["Tesla T4"]}, "Tesla T4"),
        ({"key": "../x"}, "key"),
        ({"sms": 0}, "sms"),
        ({"sms": "48"}, "whole number"),
        ({"sms": None}, "sms is missing"),
        ({"smss": 48}, "did you mean sms"),
        ({"compute_capability": "6.1"}, "7.0"),
        ({"memory_mib": 1e9}, "memory_mib"),
        ({"fp32_tflops": -1}, "fp32_tflops"),
        ({"mig": [SLICE]}, "memory_slices"),
        ({"mig": [SLICE | {"sms": 99}], "memory_slices": 8}, "larger"),
    ],
)
def test_a_card_that_cannot_be_is_refused_and_not_kept(change, remedy, home):
    with pytest.raises(InvalidInput, match=remedy) as refusal:
        read_own_gpu(own_file(home, OWN | change))
    assert "advisor init gpu" in str(refusal.value)
    assert not (home / "home").exists()
