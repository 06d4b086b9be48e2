"""Names stand for workloads; each of the catalogue can be built."""

import tomllib
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import UnknownName
from advisor.workload.catalogue import TASKS, TIMM, workload, zoo
from advisor.zoo.recipes import recipe_of
from advisor.zoo.task import optimizer_for
from tests.zoo.test_training import LARGER

ROOT = Path(__file__).parents[2]
LISTED = tomllib.loads((ROOT / "benchmarks" / "workloads.toml").read_text())
NAMES = LISTED["small"] + LISTED["large"]


def test_the_campaign_lists_enough_of_every_kind_and_each_once():
    workloads = [workload(name) for name in NAMES]
    assert len(set(NAMES)) == len(NAMES) >= 66
    assert len({each.family for each in workloads}) >= 18
    assert {each.execution for each in workloads} == {"eager", "compiled", "graph"}
    assert {each.precision for each in workloads} == {"default", "tf32", "amp", "fp16"}


def tasks():
    """A name for each model of the catalogue; those trained elsewhere are `exhaustive`."""
    models = {*TIMM} - LARGER
    for task, listed in TASKS.items():
        yield pytest.param(task, marks=[pytest.mark.exhaustive] * (listed.model in models))
        models.add(listed.model)


@pytest.mark.parametrize("task", [*tasks()])
def test_each_task_of_the_catalogue_has_a_recipe_a_network_and_an_optimizer(task):
    listed = workload(f"{task}-bs1")
    with torch.device("meta"):
        network = recipe_of(listed).network()
    assert optimizer_for(listed, network).param_groups


@given(
    task=st.sampled_from(sorted(TASKS)),
    batch=st.integers(1, 999_999),
    precision=st.sampled_from(("default", "tf32", "amp", "fp16")),
    execution=st.sampled_from(("eager", "compiled", "graph")),
    workers=st.integers(0, 99),
)
def test_a_name_says_batch_precision_execution_and_loader(
    task, batch, precision, execution, workers
):
    name = f"{task}-bs{batch}"
    name += "" if precision == "default" else f"-{precision}"
    name += "" if execution == "eager" else f"-{execution}"
    name += f"-loader{workers}" if workers else ""
    asked = workload(name)
    assert (asked.name, asked.batch, asked.precision) == (name, batch, precision)
    assert (asked.execution, asked.loader_workers) == (execution, workers)
    assert asked.model == TASKS[task].model


@pytest.mark.parametrize(
    "options", ["bs128-graph-amp", "bs128-compiled-graph", "bs128-loader2-compiled", "bs128-fp8"]
)
def test_options_in_another_order_and_unknown_ones_are_refused(options):
    with pytest.raises(UnknownName):
        workload(f"resnet50-imagenet64-{options}")


def test_the_list_shows_how_options_are_written():
    names = {each.name for each in zoo()}
    assert {f"resnet50-imagenet64-bs128-{way}" for way in ("fp16", "graph", "compiled")} <= names
    assert len(names) == len(zoo())
