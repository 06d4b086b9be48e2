"""Scripts that were measured on an H200 beside the workloads of the zoo that they equal."""

from pathlib import Path

import pytest

from advisor.workload.store import read_profile

MEASURED = Path(__file__).parents[3] / "benchmarks" / "scripts" / "measured" / "profiles"


def measured(name):
    return read_profile(MEASURED / "h200-141gb" / f"{name}.json")


def test_a_plain_script_shows_what_the_same_model_of_the_zoo_shows():
    script, zoo = measured("plain_loop"), measured("resnet50-imagenet64-bs32")
    assert script.trace.class_of == zoo.trace.class_of  # kernel by kernel
    assert script.gpu_s == pytest.approx(zoo.gpu_s, rel=0.02)
    assert script.host_s == pytest.approx(zoo.host_s, rel=0.05)
    assert script.step_s == pytest.approx(zoo.step_s, rel=0.05)
    assert script.memory.device_mib == pytest.approx(zoo.memory.device_mib, rel=0.02)


@pytest.mark.parametrize(
    ("script", "zoo"),
    [
        ("timm_style", "vit_small_patch16_224-imagenet-bs32-amp"),
        ("lightning_style", "mobilenetv3_large_100-imagenet64-bs128-loader2"),
    ],
)
def test_styles_hold_as_much_memory_and_as_many_cores_as_the_zoo(script, zoo):
    own, same = measured(script), measured(zoo)
    assert own.memory.device_mib == pytest.approx(same.memory.device_mib, rel=0.02)
    assert len(own.cores) == len(same.cores)
    assert own.workload.precision == same.workload.precision


def test_what_prints_its_pace_and_what_hides_its_loop_are_measured_too():
    trainer, evolution = measured("trainer"), measured("evolution")
    assert (trainer.workload.batch, trainer.workload.loader_workers) == (8, 1)
    assert trainer.workload.steps_per_epoch == 1020
    assert trainer.trace is not None
    assert len(evolution.mps.limited) == 3
    assert evolution.memory.allocated_mib is None
