"""What CUDA graphs and torch's compiler bring, foretold from eager profiles."""

from dataclasses import asdict, replace

import pytest

from advisor.prediction.execution_transfer import CAPTURED, COMPILED
from research.execution_effects import Pair, all_pairs, effects_of
from research.execution_score import alone, foretold, lines, together
from research.script_table import committed
from tests import synthetic
from tests.plan.test_shared_cores import Apart

EAGER = synthetic.profile("resnet26-cifar10-bs128", host_s=0.010, gpu_s=0.002)
GRAPH = synthetic.profile("resnet26-cifar10-bs128-graph", host_s=0.0001, gpu_s=0.0022)
PAIR = Pair(execution="graph", eager=EAGER, changed=GRAPH)


@pytest.fixture(scope="module")
def pairs():
    return all_pairs()


@pytest.mark.parametrize(("execution", "shipped"), [("graph", CAPTURED), ("compiled", COMPILED)])
def test_what_advice_assumes_of_an_execution_is_what_the_shipped_pairs_show(
    pairs, execution, shipped
):
    for ours, theirs in zip(shipped, effects_of(execution, pairs), strict=True):
        for part, share in asdict(theirs).items():
            assert getattr(ours, part) == pytest.approx(share, abs=0.012), part


def test_a_job_that_is_scored_has_taught_nothing(pairs):
    other = replace(PAIR, changed=synthetic.profile("resnet26-cifar10-bs128-graph", gpu_s=0.05))
    without = effects_of("graph", pairs, EAGER.name)
    assert effects_of("graph", [*pairs, other], EAGER.name) == without
    assert effects_of("graph", [*pairs, other]) != effects_of("graph", pairs)


def test_a_captured_step_is_scored_alone_and_in_each_run_that_it_shared():
    effects = effects_of("graph", [PAIR])
    (found,) = [alone(PAIR, effects)]
    assert found.predicted_s == pytest.approx(found.measured_s)
    assert found.eager_s / found.measured_s == pytest.approx(0.010 / 0.0022)
    run = synthetic.run([GRAPH, EAGER], slowdown=1.5)
    profiles = {each.name: each for each in (EAGER, GRAPH)}
    (shared,) = together(PAIR, effects, [run, synthetic.run([EAGER] * 2)], profiles, Apart())
    assert shared.run == run.id
    assert shared.measured_s == pytest.approx(1.5 * GRAPH.step_s)
    assert shared.predicted_s == pytest.approx(shared.own_s) == pytest.approx(GRAPH.step_s)
    alone_line, shared_line = lines([found, shared])
    assert (alone_line.where, alone_line.own, alone_line.mape) == ("alone", None, pytest.approx(0))
    assert shared_line.mape == pytest.approx(1 / 3)


def test_the_committed_score_is_of_every_pair(pairs):
    scored = committed("executions")["alone"]
    named = {(each["gpu"], each["workload"], each["execution"]) for each in scored}
    assert named == {(each.eager.gpu, each.eager.name, each.execution) for each in pairs}
    for each in scored[::6]:
        pair = next(p for p in pairs if (p.eager.gpu, p.eager.name, p.execution)
                    == (each["gpu"], each["workload"], each["execution"]))  # fmt: skip
        again = alone(pair, effects_of(pair.execution, pairs, pair.eager.name))
        assert again.predicted_s == pytest.approx(each["predicted_s"], rel=1e-3)


def test_what_was_foretold_of_jobs_drawn_later_is_kept_as_it_was():
    said = committed("executions")["foretold"]
    assert len(said) == 11
    for now, then in zip(foretold(), said, strict=True):
        assert now.workload == then["workload"]
        assert now.predicted_s == pytest.approx(then["predicted_s"], rel=1e-3)
