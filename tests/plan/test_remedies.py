"""What would help jobs that wait for their hosts, and by how much."""

from dataclasses import replace
from pathlib import Path

import pytest

from advisor.plan.bottlenecks import HOST_BOUND
from advisor.plan.remedies import remedies
from advisor.plan.shared_cores import SharedCores
from advisor.prediction.execution_transfer import COMPILED
from advisor.prediction.stretched_profile import at_pace
from advisor.sharing import Mps, parse_sharing
from advisor.workload.host_side import HostSide
from advisor.workload.job import Job
from advisor.workload.measured import Window
from advisor.workload.store import read_profile
from tests import synthetic
from tests.plan.stand_in import H200
from tests.plan.test_shared_cores import Apart

PROFILES = Path(__file__).parents[2] / "profiles"
LAUNCHES = synthetic.profile("resnet26-cifar10-bs128", host_s=0.010, gpu_s=0.002)
BUSY = synthetic.profile("resnet50-imagenet64-bs128", host_s=0.004, gpu_s=0.010)


def loading(workers, *, main_s=0.004, each_s=0.04, gpu_s=0.002, batch=128):
    """A job whose loader's workers take `each_s` for a batch."""
    name = f"resnet26-imagenet64-bs{batch}-loader{workers}"
    pace_s = each_s / workers
    job = synthetic.profile(name, host_s=max(main_s, pace_s), gpu_s=gpu_s)
    return replace(job, host=HostSide(main_s=main_s, loader_s=pace_s, loader_cpu_s=each_s))


def found_for(*profiles, sharing=None, variants=()):
    jobs = [Job(each) for each in profiles]
    mix = Apart().predict(list(profiles), sharing or Mps())
    return remedies(jobs, H200, mix, Apart(), variants)


def test_a_job_that_waits_for_its_launches_is_captured_and_then_waits_for_the_gpu():
    found = found_for(LAUNCHES)[0]
    assert (found.kind, found.workers) == ("CUDA graph", None)
    assert found.gain.p50 == pytest.approx(0.010 / (1.09 * 0.002))
    assert found.gain.p05 < found.gain.p50 < found.gain.p95


def test_of_torchs_compiler_it_is_said_that_launches_take_as_long():
    _, found = found_for(LAUNCHES)
    assert found.kind == "torch.compile"
    worst, usual, best = (1 / each.host for each in reversed([*COMPILED]))
    assert (found.gain.p05, found.gain.p95) == (pytest.approx(worst), pytest.approx(best))
    assert found.gain.p50 == pytest.approx(usual)
    untraced = replace(LAUNCHES, trace=None)
    assert {each.kind for each in found_for(untraced)} == {"CUDA graph"}


def test_beside_mates_a_captured_job_gains_less_than_alone():
    class Halves(Apart):
        """The GPU part of each job takes as often as long as there are jobs."""

        def predict(self, profiles, sharing):
            steps = (max(each.host_s, len(profiles) * each.gpu_s) for each in profiles)
            windows = [(Window(step_s, 1),) for step_s in steps]
            slow = [replace(each, windows=own) for each, own in zip(profiles, windows, strict=True)]
            return super().predict(slow, sharing)

    jobs = [LAUNCHES, BUSY]
    mix = Halves().predict(jobs, Mps())
    found = next(each for each in remedies([Job(each) for each in jobs], H200, mix, Halves())
                 if (each.job, each.kind) == (LAUNCHES.name, "CUDA graph"))  # fmt: skip
    assert found.alone.p50 == pytest.approx(0.010 / (1.09 * 0.002))
    assert found.gain.p50 == pytest.approx(0.010 / (2 * 1.09 * 0.002))


def test_a_job_that_reads_its_loss_in_every_step_is_told_what_that_costs():
    late = (4000.0,) * len(BUSY.trace.launch_us)
    reads = replace(BUSY, trace=replace(BUSY.trace, launch_us=late, waits_us=(0.0,)))
    found = found_for(at_pace(reads, 1.4))[0]
    assert found.kind == "no waits"
    assert found.gain.p50 == pytest.approx(1.4, rel=0.02), "the kernels set the pace then"
    silent = replace(reads, trace=replace(reads.trace, waits_us=()))
    assert found_for(at_pace(silent, 1.4)) == (), "nobody knows what else it waits for"


def test_a_job_whose_waits_cost_nothing_is_told_nothing():
    waits = replace(BUSY, trace=replace(BUSY.trace, waits_us=(1.0,)))
    assert found_for(waits) == ()


def test_products_that_the_gpu_holds_back_need_nothing():
    assert found_for(BUSY) == ()


def test_of_what_the_gpu_holds_back_kernels_that_can_be_fused_are_worth_compiling():
    norms = replace(BUSY, trace=replace(BUSY.trace, classes=("elementwise",)))
    (found,) = found_for(norms, norms)
    assert (found.kind, found.job) == ("torch.compile", BUSY.name)
    assert found.gain.p50 == pytest.approx(1 / COMPILED.usual.of_kernel("elementwise"))
    assert 1.1 < found.gain.p05 < found.gain.p50 < found.gain.p95
    compiled = replace(norms, workload=replace(norms.workload, execution="compiled"))
    assert found_for(compiled) == ()


def test_a_job_that_was_measured_compiled_gains_what_was_measured():
    fusible = replace(BUSY, trace=replace(BUSY.trace, classes=("elementwise",)))
    name = f"{BUSY.name}-compiled"
    compiled = synthetic.profile(name, host_s=0.004, gpu_s=0.005)
    other = synthetic.profile("resnet26-cifar10-bs128-compiled", host_s=0.004, gpu_s=0.001)
    (found,) = found_for(fusible, variants=[other, compiled])
    assert found.gain.p50 == pytest.approx(fusible.step_s / compiled.step_s)
    assert found_for(fusible, variants=[other]) == found_for(fusible)
    slower = synthetic.profile(name, host_s=0.004, gpu_s=0.011)
    assert found_for(fusible, variants=[slower]) == ()


def test_a_slow_loader_gets_as_many_workers_as_no_longer_hold_it_back():
    (found,) = found_for(loading(4))
    assert (found.kind, found.workers) == ("loader workers", 10)
    assert found.gain.p50 == pytest.approx(0.010 / 0.004)


def test_no_more_workers_are_advised_than_four_times_as_many_as_were_measured():
    (found,) = found_for(loading(1))
    assert found.workers == 4
    assert found.gain.p50 == pytest.approx(4.0)


def test_jobs_that_read_the_same_share_a_loader_and_others_do_not():
    same = {each.kind: each for each in found_for(loading(4), loading(4))}
    assert same["shared loading"].gain.p50 == pytest.approx(2.0)
    other = found_for(loading(4), loading(4, batch=64))
    assert {each.kind for each in other} == {"loader workers"}


def test_copies_that_wait_for_cores_pay_for_launches_once_in_one_process():
    copies = [LAUNCHES] * 3
    jobs, short = [Job(each) for each in copies], SharedCores(Apart(), 1)
    mix = short.predict(copies, Mps())
    found = {each.kind: each for each in remedies(jobs, H200, mix, short)}
    assert found["fusing"].gain.p50 == pytest.approx(3.0)
    assert "fusing" not in {each.kind for each in found_for(*copies)}, "with cores it is no faster"


def test_a_graph_is_not_captured_again_and_an_old_profile_tells_nothing_of_its_loader():
    graph = synthetic.profile("resnet26-cifar10-bs128-graph", host_s=0.010, gpu_s=0.002)
    assert "CUDA graph" not in {each.kind for each in found_for(graph)}
    old = replace(loading(4), host=None)
    assert "loader workers" not in {each.kind for each in found_for(old)}


def test_groups_one_after_another_are_not_looked_at():
    mix = replace(Apart().predict([LAUNCHES] * 2, Mps()), sharing=parse_sharing("naive[1];mps[2]"))
    jobs = [Job(LAUNCHES)] * 2
    assert remedies(jobs, H200, mix, Apart()) == ()


@pytest.mark.parametrize("gpu", ["h200-141gb", "h100-sxm-80gb"])
def test_steps_that_were_captured_took_what_is_foretold_of_them(gpu):
    pairs = 0
    for path in sorted((PROFILES / gpu).glob("*-graph.json")):
        captured = read_profile(path)
        eager = read_profile(path.with_name(path.name.replace("-graph", "")))
        if eager.host_s < HOST_BOUND * eager.step_s:
            continue
        foretold = [each for each in found_for(eager) if each.kind == "CUDA graph"]
        measured = eager.step_s / captured.step_s
        assert foretold[0].gain.p50 == pytest.approx(measured, rel=0.12), path.name
        pairs += 1
    assert pairs >= 3
