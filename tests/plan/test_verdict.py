from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.plan.host_bound import same_work, variants_of
from advisor.plan.objectives import cost, tied
from advisor.plan.ranking import ranked
from advisor.plan.reasons import verdict
from advisor.report.answer_text import answer
from advisor.sharing import Mps, Serial
from advisor.workload.job import Job
from advisor.workload.spec import Script, Workload
from advisor.workload.writing import profile_text
from tests import synthetic
from tests.plan.stand_in import H200, StandIn

RESNET = synthetic.profile("resnet26-cifar10-bs128", host_s=0.007, gpu_s=0.002)
GRAPH = synthetic.profile("resnet26-cifar10-bs128-graph", host_s=0.0001, gpu_s=0.003)
LOADED = synthetic.profile("resnet26-cifar10-bs128-loader2", host_s=0.014, gpu_s=0.002)
BETTER_LOADED = synthetic.profile("resnet26-cifar10-bs128-loader4", host_s=0.007, gpu_s=0.002)
HOST_BOUND = Job(RESNET)
GPU_BOUND = Job(synthetic.profile("resnet152-imagenet-bs128", host_s=0.01, gpu_s=0.2))


class Hurting(StandIn):
    """Sharing costs a third more than it gives."""

    def _steps(self, profiles, sharing):
        if isinstance(sharing, Serial):
            return super()._steps(profiles, sharing)
        return [1.3 * sum(each.step_s for each in profiles)] * len(profiles)


class Plain(StandIn):
    """Every sharing but plain MPS costs a third more than it gives."""

    def _steps(self, profiles, sharing):
        steps = super()._steps(profiles, sharing)
        return steps if sharing in (Serial(), Mps()) else [1.3 * each for each in steps]


class Apart(StandIn):
    """Under plain MPS nobody is in anybody's way."""

    def _steps(self, profiles, sharing):
        if sharing == Mps():
            return [each.step_s for each in profiles]
        return [2 * each for each in super()._steps(profiles, sharing)]


def advised(jobs, predictor=None, variants=()):
    return replace(ranked(jobs, H200, predictor or StandIn(), "makespan"), variants=variants)


def test_sharing_that_pays_is_the_answer():
    found = advised([GPU_BOUND] * 3, Plain(wide=0.01))
    assert verdict(found).answers == ("share",)
    assert "The next, 2 (phases), is 8% behind, more than our error." in answer(found)


def test_dont_share_says_by_how_much():
    found = advised([GPU_BOUND] * 3, Hurting(wide=0.01))
    assert verdict(found).answers == ("dont-share",)
    assert verdict(found).runner_up.behind == pytest.approx(0.2, abs=0.01)
    assert answer(found).startswith("Don't share, one after another on an h200-141gb: ")
    assert "Sharing at its best, 2 (phases), is 20% behind, more than our error." in answer(found)


def test_plans_that_the_error_does_not_tell_apart_are_equal():
    found = advised([GPU_BOUND] * 2, StandIn(wide=0.5))
    assert verdict(found).answers == ("share", "equal")
    assert verdict(found).runner_up.within_error
    assert "Maybe as good, within our error: 2 (" in answer(found)
    assert "(serial)" in answer(found)  # named, however many there are


def test_the_host_path_comes_first_where_it_holds_back_every_job():
    found = advised([HOST_BOUND] * 3, variants=(GRAPH,))
    assert verdict(found).answers[:2] == ("fix-host-first", "share")
    (slow,) = verdict(found).host_bound
    assert (slow.job, slow.variant, slow.variant_step_s) == (RESNET.name, GRAPH.name, GRAPH.step_s)
    assert answer(found).startswith(
        "Make the host's part faster first: kernels run in 29% of a step of "
        "resnet26-cifar10-bs128 alone (resnet26-cifar10-bs128-graph was measured at 3.00 ms a step "
        "instead of 7.00 ms)."
    )


def test_one_job_alone_has_a_host_path_to_mend_too():
    assert verdict(advised([HOST_BOUND])).answers == ("fix-host-first", "nothing-to-share")


def test_the_host_path_is_named_but_not_first_where_others_wait_for_the_gpu():
    found = advised([HOST_BOUND, GPU_BOUND], Apart())
    assert "fix-host-first" not in verdict(found).answers
    assert "The host holds jobs back: kernels run in 29%" in answer(found)


def test_a_job_whose_gpu_is_nearly_busy_has_no_host_path_worth_mending():
    near = Job(synthetic.profile("resnet26-cifar10-bs128", host_s=0.007, gpu_s=0.006))
    assert verdict(advised([near])).host_bound == ()


def test_a_job_that_loads_its_input_is_not_told_to_stop_loading():
    variants = (RESNET, GRAPH, BETTER_LOADED)
    (slow,) = verdict(advised([Job(LOADED)], variants=variants)).host_bound
    assert slow.variant == BETTER_LOADED.name


def test_a_slower_variant_or_other_work_is_no_remedy():
    slower = synthetic.profile("resnet26-cifar10-bs128-graph", host_s=0.0001, gpu_s=0.008)
    other = synthetic.profile("resnet26-cifar10-bs32", host_s=0.001, gpu_s=0.001)
    (slow,) = verdict(advised([HOST_BOUND], variants=(slower, other))).host_bound
    assert (slow.variant, slow.variant_step_s) == (None, None)
    assert "was measured" not in answer(advised([HOST_BOUND]))


def test_variants_are_found_beside_the_profile_by_their_names(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "nobody"))
    folder = tmp_path / "profiles" / "h200-141gb"
    folder.mkdir(parents=True)
    for each in (RESNET, GRAPH, LOADED, GPU_BOUND.profile):
        (folder / f"{each.name}.json").write_text(profile_text(each))
    found, refused = variants_of([HOST_BOUND] * 2, "h200-141gb", tmp_path / "profiles")
    assert {each.name for each in found} == {GRAPH.name, LOADED.name}
    assert refused == ()


def test_a_script_is_known_by_its_name_when_its_user_compiled_it():
    def of(name, execution="eager", batch=64):
        script = Script(command=("python", "train.py"), folder="/home/me")
        return Workload(name=name, source="script", model=name, family=name, batch=batch,
                        execution=execution, script=script)  # fmt: skip

    assert same_work(of("train"), of("train-compiled", "compiled"))
    for other in (of("train2-compiled", "compiled"), of("train-compiled", "compiled", batch=32)):
        assert not same_work(of("train"), other)


def test_a_variant_whose_file_is_no_profile_is_named_and_left_out(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "nobody"))
    folder = tmp_path / "profiles" / "h200-141gb"
    folder.mkdir(parents=True)
    (folder / f"{LOADED.name}.json").write_text(profile_text(LOADED))
    (folder / f"{GRAPH.name}.json").write_text("{}")
    found, (why,) = variants_of([HOST_BOUND], "h200-141gb", tmp_path / "profiles")
    assert found == (LOADED,)
    assert f"{GRAPH.name}.json" in why


@settings(deadline=None)
@given(st.floats(min_value=0.0, max_value=0.9), st.sampled_from([StandIn, Hurting, Plain, Apart]))
def test_the_answer_claims_no_difference_that_the_intervals_do_not_support(wide, predictor):
    found = advised([HOST_BOUND, GPU_BOUND], predictor(wide=wide))
    best, *others = (cost(plan, "makespan") for plan in found.plans)
    equal = any(tied(best, other) for other in others)
    assert ("equal" in verdict(found).answers) == equal
    assert ("more than our error" in answer(found)) == (not equal)
