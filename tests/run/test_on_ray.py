"""Plans that run on a Ray cluster: what a lost node leaves undone is done elsewhere, once."""

import json
import signal
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import AdvisorError, GpuUnavailable, InvalidInput
from advisor.hardware.gpus import known_gpus
from advisor.launch.plan_file import SavedPlan, prepare
from advisor.measure import runners
from advisor.measure.process import processes_of
from advisor.run.on_ray import RayRun, Report
from advisor.run.start import StartTerms
from advisor.sharing import parse_sharing
from tests.handed import H200, RESNET, predicted
from tests.measure.shared.real_command import Started
from tests.ray_nodes import NEEDS_RAY, cluster
from tests.waiting import PATIENCE_S, until

__all__ = ["cluster"]

TERMS = StartTerms(grace_s=0.0, tied=True)


class Ray:
    """A cluster that loses an actor where `losses` has True, at each answer in turn.

    Each look ends the first job that runs, with the status that `dies` has for it.
    """

    def __init__(self, losses=(), dies=(), resources=("advisor:h200-141gb",)):
        self._losses, self._dies = iter(losses), dies
        self._resources = dict.fromkeys(resources, 1.0)
        self.begun, self.ended = [], []

    def nodes(self):
        return [
            {"Alive": True, "Resources": self._resources, "NodeManagerAddress": "10.0.0.1"},
            {"Alive": False, "Resources": {"advisor:a100-40gb": 1}, "NodeManagerAddress": "gone"},
        ]

    def make_actor(self, _kind, *_terms, **options):
        assert options["resources"] == {"advisor:h200-141gb": 1}
        return Actor(self)

    def wait(self, answers, **_):
        return answers, []

    def kill(self, actor):
        actor.lives = False

    def result(self, answer):
        if next(self._losses, False):
            raise runners.ActorLost("its Ray actor is lost (as the test wants)")
        return answer()

    def end_one(self, states):
        number = next((n for n, state in states.items() if state == "running"), None)
        if number is not None:
            self.ended.append(number)
            states[number] = "failed" if number in self._dies else "done"


class Actor:
    def __init__(self, ray):
        self.lives = True
        self._ray, self._states = ray, {}
        for name in ("start", "look", "end"):
            setattr(self, name, SimpleNamespace(remote=getattr(self, f"_{name}")))

    def _start(self, plan):
        assert self.lives
        self._ray.begun.append(plan)
        self._states = dict.fromkeys((start.number for start in plan.starts), "running")
        return self._report

    def _look(self):
        assert self.lives
        return self._report

    def _end(self):
        self._states = {n: "stopped" if s == "running" else s for n, s in self._states.items()}

    def _report(self):
        states = dict(self._states)
        self._ray.end_one(self._states)
        over = "running" not in states.values()
        code = int("failed" in states.values()) if over else None
        return Report("a run", {n: f"  {n}: {s}" for n, s in states.items()}, states, (), code)


def saved(sharing, numbers, device=0):
    return SavedPlan(
        gpu="h200-141gb",
        sharing=parse_sharing(sharing),
        jobs=(RESNET,) * len(numbers),
        numbers=tuple(numbers),
        power_cap_w=None,
        device=device,
    )


def run_on(ray, plans, monkeypatch, show=lambda _: None):
    """Run `plans` on `ray`; return the exit code, what was said, and the run."""

    def prepared(plan):
        return prepare(plan, H200, predicted(str(plan.sharing), plan.jobs))

    said = []
    monkeypatch.setattr(runners, "make_actor", ray.make_actor)
    monkeypatch.setattr(runners, "result", ray.result)
    run = RayRun(ray, plans, prepared, TERMS, "cpu", said.append)
    return run.to_the_end(show, None), said, run


@given(losses=st.lists(st.booleans(), max_size=12), dies=st.sets(st.integers(1, 6)))
def test_every_job_ends_once_whatever_actors_are_lost(losses, dies):
    shared = {(1, 4, 6): "naive[2,3];mps[1]", (2, 5): "mps=40,60", (3,): "naive"}
    plans = [saved(sharing, numbers) for numbers, sharing in shared.items()]
    plans = [replace(plan, device=at) for at, plan in enumerate(plans)]
    ray = Ray(losses, dies)
    with pytest.MonkeyPatch.context() as patch:
        code, said, run = run_on(ray, plans, patch)
    states = {
        number: state
        for numbers, plan in zip(shared, run.plans, strict=True)
        for number, state in zip(numbers, plan.states, strict=True)
    }
    lost = {number for number, state in states.items() if state == "lost"}
    for number in {*states} - lost:
        assert states[number] == ("failed" if number in dies else "done")
    assert bool(lost) == any("and not again" in line for line in said)
    assert code == AdvisorError.exit_code * bool(lost or dies & {*states})
    for plan in ray.begun:  # what a report named as ended is never started again
        later = ray.begun[ray.begun.index(plan) + 1 :]
        assert all(
            {s.number for s in each.starts} <= {s.number for s in plan.starts}
            for each in later
            if each.device == plan.device
        )


def test_the_rest_of_a_plan_shares_as_before(monkeypatch):
    ray = Ray([False, False, True])  # after the second report, in which a job has ended
    code, said, _ = run_on(ray, [saved("mps=20,30,50", (3, 7, 9))], monkeypatch)
    assert code == 0
    assert [str(plan.sharing) for plan in ray.begun] == ["mps=20,30,50", "mps=30,50"]
    assert [start.number for start in ray.begun[1].starts] == [7, 9]
    assert any("7, 9 will start again" in line for line in said)


def test_actors_that_are_lost_again_and_again_are_given_up_with_a_sentence(monkeypatch):
    code, said, run = run_on(Ray([True] * 4), [saved("naive", (1, 2))], monkeypatch)
    assert (code, run.plans[0].states) == (AdvisorError.exit_code, ("lost", "lost"))
    assert sum("will start again" in line for line in said) == 3
    assert "4 times" in said[-2]


def test_a_gpu_on_which_a_lost_script_still_ends_is_tried_again(monkeypatch):
    ray = Ray()
    answers = iter([runners.ActorLost("lost"), GpuUnavailable("in use"), None])

    def result(answer):
        if (error := next(answers, None)) is not None:
            raise error
        return answer()

    monkeypatch.setattr(ray, "result", result)
    code, said, _ = run_on(ray, [saved("naive", (1, 2))], monkeypatch)
    assert (code, sum("will start again" in line for line in said)) == (0, 2)
    refused = Ray()
    monkeypatch.setattr(refused, "result", lambda _: (_ for _ in ()).throw(GpuUnavailable("busy")))
    code, said, run = run_on(refused, [saved("naive", (1, 2))], monkeypatch)
    assert (code, run.plans[0].states) == (GpuUnavailable.exit_code, ("not started",) * 2)


def test_ctrl_c_ends_the_jobs_that_run_and_those_that_wait(monkeypatch):
    calls = []

    def show(plans):
        calls.append([plan.states for plan in plans])
        if len(calls) == 2:
            raise KeyboardInterrupt

    ray = Ray()
    monkeypatch.setattr(ray, "wait", lambda answers, **_: (answers[:1], []))
    plans = [saved("naive", (1, 2, 4)), replace(saved("naive", (3,)), device=1)]
    with pytest.raises(KeyboardInterrupt):
        run_on(ray, plans, monkeypatch, show)
    assert calls[1] == [("done", "running", "running"), ("waiting",)]
    assert calls[-1] == [("done", "done", "stopped"), ("stopped",)]


def test_a_plan_for_a_gpu_that_no_node_has_is_refused_by_its_resource():
    for key, named in (("h100-sxm-80gb", "advisor:h100"), ("a100-40gb", "a100")):
        with pytest.raises(GpuUnavailable, match=f"no node.*{named}.*ray start"):
            RayRun(Ray(), [replace(saved("naive", (1,)), gpu=key)], None, TERMS, "cpu", print)


def test_the_name_that_ray_has_for_a_gpu_is_understood():
    for mark, keys in (
        ("A100", {"a100-40gb", "a100-80gb"}),
        ("L4", {"l4-24gb"}),
        ("GeForce-RTX-4090", {"rtx-4090-24gb"}),
        ("RTX-PRO-6000", {"rtx-pro-6000-96gb"}),
    ):
        nodes = Ray(resources=(f"accelerator_type:{mark}", "CPU")).nodes()[:1]
        marked = set()
        for key in known_gpus():
            with suppress(GpuUnavailable):
                assert runners.gpu_resource(key, nodes) == {f"accelerator_type:{mark}": 0.001}
                marked.add(key)
        assert marked == keys


def test_rays_own_resource_marks_a_kind_of_gpu():
    ray = Ray(resources=("accelerator_type:H200",))
    plans = [saved("naive", (1, 2))]
    run = RayRun(ray, plans, lambda _: None, TERMS, None, print)
    assert "accelerator_type:H200 of 10.0.0.1" in str(run)
    with pytest.raises(InvalidInput, match="--device"):
        RayRun(ray, plans, lambda _: None, TERMS, "1", print)


COUNTS = """
me=$ADVISOR_JOB n=$(cat count-$me 2> /dev/null || echo 0)
echo "started at $n" >> log-$me
while [ $n -lt 40 ]; do sleep 0.1; n=$((n + 1)); echo $n > new-$me; mv new-$me count-$me; done
echo ended >> log-$me
"""


class Driver(Started):
    """``advisor run --ray`` of a plan for three jobs on two GPUs, which count to a file."""

    def __init__(self, folder, code=COUNTS):
        super().__init__(folder, "-m", "advisor")
        (self.folder / "count.sh").write_text(code)
        entry = f'[[job]]\nprofile = "{{}}"\ncommand = ["bash", "count.sh"]\nfolder = "{folder}"\n'
        names = ("resnet50-imagenet64-bs128", "bert-base-finetune-bs32-amp") * 2
        (self.folder / "jobs.toml").write_text("".join(map(entry.format, names[:3])))
        self.plan = self.folder / "plan.json"
        code, said = self.finish(
            *("export", "--jobs", self.folder / "jobs.toml", "--gpus", "2x1"),
            *("--format", "json", "--out", self.plan),
        )
        assert code == 0, said
        document = json.loads(self.plan.read_text())
        for plan in document["plans"]:
            plan["sharing"] = "naive"  # a CPU has no MPS
        self.plan.write_text(json.dumps(document))
        self.numbers = [[job["number"] for job in plan["jobs"]] for plan in document["plans"]]

    def run(self, address, **pipes):
        """Return the command once it has started both plans, and what it said."""
        words = ("run", self.plan, "--ray", address, "--device", "cpu", "--apply", "--grace", "1")
        process, said = self.start(*words, **pipes), ""
        while said.count("started on node") < 2:
            line = process.stderr.readline()
            assert line, said
            said += line
        return process, said

    def log(self, number):
        path = self.folder / f"log-{number}"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def driver(tmp_path_factory):
    made = Driver(tmp_path_factory.mktemp("driver"))
    yield made
    made.clear()


@NEEDS_RAY
@pytest.mark.exhaustive
def test_all_jobs_end_where_a_node_is_lost_and_go_on_from_their_checkpoints(cluster, driver):
    with (driver.folder / "table").open("w") as table:
        process, said = driver.run(cluster.address, stdout=table)
        cluster.lose_the_second()
        said += process.communicate(timeout=PATIENCE_S)[1]
    assert process.returncode == 0, said
    assert "will start again" in said
    logs = {number: driver.log(number) for number in (1, 2, 3)}
    assert [log.count("ended") for log in logs.values()] == [1, 1, 1]
    again = [log for log in logs.values() if len(log) == 3]
    assert again
    assert all(int(log[1].split()[-1]) > 0 for log in again)
    shown = (driver.folder / "table").read_text()
    last = shown[shown.rindex("host 0, GPU 0") :]
    assert (last.count(": done"), "host 1, GPU 0" in last) == (3, True)
    assert all(line.startswith(("host", "  ")) for line in shown.splitlines()), shown


@NEEDS_RAY
@pytest.mark.exhaustive
def test_no_job_outlives_a_driver_that_is_interrupted_or_killed(cluster, driver):
    (driver.folder / "count.sh").write_text(COUNTS.replace("-lt 40", "-lt 4000"))
    for how, code in ((signal.SIGINT, 130), (signal.SIGKILL, -9)):
        process, _ = driver.run(cluster.address)
        assert processes_of("ADVISOR_RUN", f"{cluster.folder}/state/*")
        process.send_signal(how)
        assert process.wait(PATIENCE_S) == code
        until(lambda: not processes_of("ADVISOR_RUN", f"{cluster.folder}/state/*"))
