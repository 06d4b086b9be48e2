"""Runs a plan on a Ray cluster: an actor for each GPU starts its script, and watches it.

A script ends with its actor. The unfinished jobs of a lost actor start again, as a plan of the
rest, on the next GPU of that kind that Ray has free.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic, sleep
from typing import Any

from advisor.errors import AdvisorError, GpuUnavailable, InvalidInput
from advisor.launch.launch_plan import LaunchPlan
from advisor.launch.plan_file import SavedPlan
from advisor.measure import runners
from advisor.measure.process import sweep
from advisor.run.start import Say, StartTerms, start
from advisor.run.watch import LOOK_S, Watcher, keep
from advisor.run.watched import Shown
from advisor.workload.run import Run

# An actor's jobs are started again so often.
_MOST_AGAIN = 3
# States of a job that is not started again.
_ENDED = ("done", "stopped", "out-of-memory", "failed")


@dataclass(frozen=True, slots=True)
class Report:
    """The run of an actor at its last look; `jobs` and `states` by the number of the job.

    Attributes:
        head: First line about the run.
        news: Lines about events since the report before.
        code: Exit code, once the run is over; None: it goes on.
        records: Measured for `fit`, once it is over.
    """

    head: str
    jobs: Mapping[int, str]
    states: Mapping[int, str]
    news: tuple[str, ...]
    code: int | None = None
    records: tuple[Run, ...] = ()


class PlanActor:
    """A Ray actor that runs the plan of one GPU."""

    def __init__(self, terms: StartTerms, device: str | None) -> None:
        self._terms, self._device = terms, device
        self._news: list[str] = []
        self._watcher: Watcher | None = None
        self._node = ""

    def start(self, plan: LaunchPlan) -> Report:
        """Start the script of `plan` on the GPU that Ray assigned."""
        sweep()  # removes what killed runs left on this node
        os.environ.pop("OMP_NUM_THREADS", None)  # which Ray sets for its own workers
        self._node = runners.node_name()
        terms = self._terms
        folder = start(plan, self._device or runners.assigned_device(), terms)
        self._watcher = Watcher(folder, self._news.append, terms.deadline_s, terms.patience_s)
        self._news.append(f"{folder.name}: started on node {self._node}, in {folder}")
        return self.look()

    def look(self) -> Report:
        """Return the run as it is a moment later."""
        assert self._watcher is not None
        sleep(LOOK_S)
        over, run = not self._watcher.look(), self._watcher.run
        records = self._watcher.records() if over else ()
        code = self._watcher.exit_code() if over else None
        news, self._news[:] = tuple(self._news), ()
        return Report(
            f"{run.head}, on node {self._node}",
            {job.number: str(job) for job in run.jobs},
            {job.number: job.state for job in run.jobs},
            news,
            code,
            records,
        )

    def end(self) -> None:
        """Ask the jobs to end."""
        if self._watcher is not None:
            self._watcher.end()


class PlacedPlan:
    """The plan of one GPU on the cluster, or the rest of it after an actor was lost.

    Attributes:
        saved: The jobs that had not ended when the last actor was lost.
        launch: The same, ready to be started.
        actor: None: none is made.
        answer: The answer of the actor that the driver waits for.
        started: Whether the actor has started the script.
        lost: How many actors were lost.
        ready_s: When the next may start, on the driver's monotonic clock.
        code: Exit code, once it is over.
    """

    def __init__(self, saved: SavedPlan, launch: LaunchPlan) -> None:
        self.saved, self.launch = saved, launch
        self.name = f"host {saved.host}, GPU {saved.device}"
        self.actor: Any = None
        self.answer: Any = None
        self.started, self.ending = False, False
        self.lost, self.ready_s = 0, 0.0
        self.code: int | None = None
        self._head, self._lines, self._states = "", dict[int, str](), dict[int, str]()
        self._set("waiting", f"waits for a free {saved.gpu}")

    @property
    def states(self) -> tuple[str, ...]:
        return tuple(self._states.values())

    def __str__(self) -> str:
        return "\n".join([f"{self.name}: {self._head}", *self._lines.values()])

    def note(self, report: Report) -> None:
        """Note a report; jobs that ended before an actor was lost stay as they were."""
        self.started, self._head, self.code = True, report.head, report.code
        self._lines |= report.jobs
        self._states |= report.states

    def lose(self, wait_s: float) -> None:
        """Note that the actor is lost: in `wait_s`, jobs that have not ended can start again."""
        saved = self.saved
        left = [at for at, number in enumerate(saved.numbers) if self._goes_on(number)]
        self.lost, self.ready_s = self.lost + 1, monotonic() + wait_s
        self.actor, self.answer, self.started = None, None, False
        if not left:
            self.code = 0
            return
        self.saved = saved.restricted_to(left)
        self._set("waiting", f"waits for a free {saved.gpu}")

    def give_up(self, state: str, code: int) -> None:
        """Note that the jobs that have not ended never will, and are in that `state`."""
        self.code = code
        self._set(state, state)

    def _set(self, state: str, in_words: str) -> None:
        """Set the state of all jobs that have not ended."""
        self._head = f"{self.saved.sharing}, {in_words}"
        for number, job in zip(self.saved.numbers, self.saved.jobs, strict=True):
            if self._goes_on(number):
                self._states[number] = state
                self._lines[number] = f"  {number} {job.name}: {state}"

    def _goes_on(self, number: int) -> bool:
        return self._states.get(number) not in _ENDED


class RayRun:
    """Plans of several GPUs that run on the cluster to which `ray` is connected.

    Args:
        ray: From `advisor.measure.runners.connect`.
        plans: One for each GPU.
        prepare: Makes a plan ready for its start.
        terms: Wishes of the user.
        device: ``"cpu"`` to try the plans out; None: the GPUs that Ray assigns.
        say: Receives a line about something that happened.

    Raises:
        GpuUnavailable: No node of the cluster has a GPU of that kind.
        InvalidInput: Another device is named.
    """

    def __init__(
        self,
        ray: Any,
        plans: Sequence[SavedPlan],
        prepare: Callable[[SavedPlan], LaunchPlan],
        terms: StartTerms,
        device: str | None,
        say: Say,
    ) -> None:
        if device not in (None, "cpu"):
            raise InvalidInput(
                f"--ray and --device {device} exclude each other: Ray chooses the GPUs. Leave "
                f"--device out, or try the plan out by --device cpu."
            )
        self._ray, self._prepare, self._say = ray, prepare, say
        self._terms, self._device = terms, device
        self._nodes = [node for node in ray.nodes() if node["Alive"]]
        self._resources = {
            plan.gpu: runners.gpu_resource(plan.gpu, self._nodes, on_cpu=device is not None)
            for plan in plans
        }
        self.plans = [PlacedPlan(plan, prepare(plan)) for plan in plans]
        self._records: list[Run] = []

    def __str__(self) -> str:
        """Return where Ray may place the plans, a line for each."""
        lines = []
        for plan in (placed.saved for placed in self.plans):
            (name,) = self._resources[plan.gpu]
            having = [node for node in self._nodes if name in node["Resources"]]
            hosts = ", ".join(dict.fromkeys(node["NodeManagerAddress"] for node in having))
            lines.append(
                f"host {plan.host}, GPU {plan.device}: {plan.sharing} of "
                f"{', '.join(map(str, plan.numbers))}, on a GPU with {name} of {hosts}"
            )
        return "\n".join(lines)

    def to_the_end(
        self, show: Callable[[Sequence[Shown]], None], log: Callable[[Run], None] | None
    ) -> int:
        """Run all plans to their end, and return the exit code; Ctrl-C ends all jobs.

        Args:
            show: Takes the plans as they are, again and again.
            log: Takes each record for `fit`, which are stored anyway.

        Raises:
            KeyboardInterrupt: It was interrupted, and all jobs have ended.
        """
        interrupted = False
        while any(plan.code is None for plan in self.plans):
            try:
                self._step()
                show(self.plans)
            except KeyboardInterrupt:
                interrupted = True
                self._say("ending the jobs")
                for plan in self.plans:
                    plan.ending = True
                    if plan.started:
                        plan.actor.end.remote()
                    elif plan.code is None:
                        if plan.actor is not None:
                            self._drop(plan)
                        plan.give_up("stopped", 0)
        show(self.plans)
        if interrupted:
            raise KeyboardInterrupt
        keep(self._records, self._say, log)
        failed = any({*plan.states} - {"done", "stopped"} for plan in self.plans)
        return max([AdvisorError.exit_code * failed, *(plan.code or 0 for plan in self.plans)])

    def _step(self) -> None:
        """Make the actors that lack, wait a moment for answers, and note them."""
        for plan in self.plans:
            if plan.code is None and plan.answer is None and monotonic() >= plan.ready_s:
                plan.actor = runners.make_actor(  # Ray starts it once a GPU is free
                    PlanActor,
                    self._terms,
                    self._device,
                    num_cpus=0,
                    num_gpus=int(self._device is None),
                    resources=self._resources[plan.saved.gpu],
                )
                plan.answer = plan.actor.start.remote(plan.launch)
        waiting = {plan.answer: plan for plan in self.plans if plan.answer is not None}
        if not waiting:
            sleep(LOOK_S)
            return
        answers, _ = self._ray.wait(list(waiting), num_returns=len(waiting), timeout=LOOK_S)
        for answer in answers:
            self._note(waiting[answer])

    def _note(self, plan: PlacedPlan) -> None:
        """Note the answer of the actor of `plan`."""
        try:
            report: Report = runners.result(plan.answer)
        except AdvisorError as error:
            self._drop(plan)
            still_ends = plan.lost and isinstance(error, GpuUnavailable)  # the script that was lost
            if still_ends or isinstance(error, runners.ActorLost):
                self._lose(plan, error)
            else:
                self._refuse(plan, error)
            return
        for line in report.news:
            self._say(f"{plan.name}: {line}")
        plan.note(report)
        if report.code is None:
            plan.answer = plan.actor.look.remote()
        else:
            self._records += report.records
            self._drop(plan)

    def _lose(self, plan: PlacedPlan, error: AdvisorError) -> None:
        if plan.ending:
            plan.give_up("stopped", 0)
        elif plan.lost == _MOST_AGAIN:
            self._say(
                f"{plan.name}: {error}; started {_MOST_AGAIN + 1} times, and not again. See `ray "
                "status`."
            )
            plan.give_up("lost", AdvisorError.exit_code)
        else:
            # Until then, jobs of a node that lives on without Ray have ended.
            plan.lose(self._terms.grace_s)
            again = "all its jobs have ended"
            if plan.code is None:
                numbers = ", ".join(map(str, plan.saved.numbers))
                again = f"of its jobs, {numbers} will start again"
            self._say(f"{plan.name}: {error}; {again}")
            try:
                plan.launch = self._prepare(plan.saved)
            except AdvisorError as refused:
                self._refuse(plan, refused)

    def _refuse(self, plan: PlacedPlan, error: AdvisorError) -> None:
        self._say(f"{plan.name}: {error}")
        plan.give_up("not started", error.exit_code)

    def _drop(self, plan: PlacedPlan) -> None:
        """End the actor, so that Ray can give its GPU to another."""
        self._ray.kill(plan.actor)
        plan.actor = plan.answer = None
