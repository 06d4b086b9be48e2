"""A plan while it runs: its stages one after another, each job watched, what it held freed.

Nothing here waits: the watching loop calls `advance` again and again. All times are of the
monotonic clock. Each act is written into the run's folder before it is done, so that another
process can go on, or undo it, if this one ends.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from signal import SIGKILL
from time import monotonic

from advisor.errors import AdvisorError
from advisor.measure.execution.execution_plan import ExecutedPartition, ExecutedStage, ExecutionPlan
from advisor.measure.execution.job_process import JobCommand, JobProcess, JobSetting, command_of
from advisor.measure.execution.mps_daemons import MpsDaemons
from advisor.measure.execution.run_folder import RunFolder
from advisor.measure.execution.run_processes import born, send
from advisor.measure.execution.run_site import Site, cores_of_stage, environment_of
from advisor.measure.execution.run_state import JobState, RunState
from advisor.measure.execution.watched_pace import WatchedPace
from advisor.measure.process.progress_file import progress_in


class RunningPlan:
    """A run in its folder.

    Args:
        plan: What is run.
        folder: Created before, and watched by this process alone.
        site: Where it runs.
        say: Takes a line about something that happened.
    """

    def __init__(
        self,
        plan: ExecutionPlan,
        folder: RunFolder,
        site: Site,
        say: Callable[[str], None],
    ) -> None:
        self.plan, self.folder, self.site = plan, folder, site
        self.state = folder.state()
        self.paces = {job.number: WatchedPace() for job in plan.jobs}
        self._say = say
        self.processes = {job.number: JobProcess(job, folder) for job in plan.jobs}
        self._daemons: MpsDaemons | None = None
        self.active_jobs: frozenset[int] = frozenset()
        self._stepping: frozenset[int] = frozenset()
        self.active_since_s = monotonic()
        self._unwritten = False
        self._why_ended: dict[int, str] = {}
        self._servers: dict[int, frozenset[int]] = {}
        self._without_server: set[int] = set()
        self.cores: dict[int, tuple[int, ...]] = {}

    def begin(self) -> None:
        """Take the run over: this process watches it from now on."""
        known, own = self.folder.state(), os.getpid()
        self._write(replace(known, watcher=own, watcher_born=born(own)))

    @property
    def stage(self) -> ExecutedStage:
        """The one that runs, or ran last."""
        return self.plan.stages[min(self.state.stage, len(self.plan.stages) - 1)]

    def advance(self) -> None:
        """Record what happened, start what is due, and end what is no longer needed.

        Raises:
            GpuUnavailable: MPS or MIG cannot be set up for a stage.
            AdvisorError: A job cannot be started.
        """
        if not self.state.over:
            self.observe()
            self._start_due_stage()
            self._note_who_runs()

    def stop(self, numbers: Sequence[int] | None = None) -> None:
        """Ask jobs to end, and start those no more that have not begun; None: all."""
        for state in self.state.jobs:
            if numbers is not None and state.number not in numbers:
                continue
            if state.phase == "running":
                self.processes[state.number].ask_to_end(state)
            elif state.phase == "waiting":
                self._write(self.state.with_job(replace(state, phase="ended", fate="stopped",
                                                        detail="was never started")))  # fmt: skip

    def observe(self) -> None:
        """Record what happened to the jobs that run; start nothing."""
        now_s = monotonic()
        for each in self.state.jobs:
            state = self._found(each)
            if state.phase != "running":
                continue
            process = self.processes[state.number]
            self.paces[state.number].add(progress_in(self.folder.progress(state.number)), now_s)
            self._end_silent(state, now_s)
            found = process.now(state)
            if found.phase == "ended":
                send(process.processes(), SIGKILL)  # left where its keeper was killed
                if (why := self._why_ended.get(state.number)) and found.fate == "stopped":
                    found = replace(found, detail=why)
                self._write(self.state.with_job(found))
                self._announce_end(found)
                self._free(found)

    def _found(self, state: JobState) -> JobState:
        """`state`, or if its starter ended before it noted the process, what became of that."""
        if state.phase != "running" or state.keeper is not None:
            return state
        state = self.processes[state.number].found_again(state)
        self._write(self.state.with_job(state))
        return state

    def _end_silent(self, state: JobState, now_s: float) -> None:
        """Ask a job to end that does no step for longer than it may."""
        patience_s, seen_s = self.site.patience_s, self.paces[state.number].seen_at_s
        if patience_s is None or seen_s is None or state.number in self._why_ended:
            return
        if now_s - seen_s > patience_s:
            self._why_ended[state.number] = f"was ended: no step for {now_s - seen_s:.0f} s"
            self.processes[state.number].ask_to_end(state)

    def _announce_end(self, found: JobState) -> None:
        job = self.plan.job(found.number)
        done = "" if found.steps is None else f" after {found.steps:,} steps"
        detail = f": {found.detail}" if found.detail else ""
        self._say(f"job {found.number}, {job.name}: {found.fate}{done}{detail}")

    def _free(self, ended: JobState) -> None:
        """Give back what a partition had, once none of its jobs runs or waits."""
        part = next(each for each in self.stage.partitions if ended.number in each.jobs)
        if part.under_mps:
            self._note_server_end(part, died=ended.fate == "died")
        if all(self.state.job(each).phase == "ended" for each in part.jobs):
            if self._daemons is not None:
                self._daemons.stop(part)
            self.site.provider.release(part)

    def _start_due_stage(self) -> None:
        """Start the stage that is due, or finish."""
        while all(self.state.job(each).phase == "ended" for each in self.stage.jobs):
            if self.state.stage + 1 >= len(self.plan.stages):
                self.finish()
                return
            self._write(replace(self.state, stage=self.state.stage + 1))
        if any(self.state.job(each).phase == "waiting" for each in self.stage.jobs):
            self._start(self.stage)

    def _start(self, stage: ExecutedStage) -> None:
        self.site.claim.take()
        devices = self.site.provider.provide(stage)
        daemons = self._mps()
        daemons.prepared(stage, devices)
        share = self.site.device.kind == "cpu"
        self.cores |= cores_of_stage(stage, self.plan.jobs, self.site.cores, share=share)
        for part in stage.partitions:
            for number in part.jobs:
                if self.state.job(number).phase == "waiting":
                    self._start_job(number, part, devices[part.number])

    def _start_job(self, number: int, part: ExecutedPartition, uuid: str) -> None:
        job = self.plan.job(number)
        self._write(self.state.with_job(replace(self.state.job(number), phase="running")))
        started = self.processes[number].start(
            self.command(number),
            JobSetting(
                environment=environment_of(job, part, uuid, self._mps()),
                cores=self.cores[number],
                under_mps=part.under_mps,
                lock=self.site.claim.descriptor,
                grace_s=self.site.grace_s,
            ),
        )
        self._write(self.state.with_job(started))

    def command(self, number: int) -> JobCommand:
        """What is run as the job of that number."""
        return command_of(self.plan.job(number), self.site.device.kind)

    def _mps(self) -> MpsDaemons:
        if self._daemons is None:
            self._daemons = MpsDaemons(self.state.id, Path(self.state.pipes))
        return self._daemons

    def finish(self) -> None:
        """End daemons, put the GPU back as it was, and say so in the folder."""
        self._mps().clear()
        self.site.provider.restore()
        self._write(replace(self.state, over=True))
        self.site.claim.give_back()

    def _write(self, state: RunState) -> None:
        """Keep `state` in the folder; where the disk is full now, a later one may find room."""
        self.state = state
        try:
            self.folder.write(state)
        except AdvisorError as error:
            if not self._unwritten:
                self._say(f"{error} Jobs go on; `advisor restore` still finds them.")
            self._unwritten = True

    def _note_who_runs(self) -> None:
        running = frozenset(each.number for each in self.state.jobs if each.phase == "running")
        stepping = frozenset(number for number in running if self.paces[number].steps)
        if (running, stepping) != (self.active_jobs, self._stepping):
            self.active_jobs, self._stepping, self.active_since_s = running, stepping, monotonic()
        for part in self.stage.partitions:
            if part.under_mps and running & set(part.jobs):
                self._note_server_end(part)

    def _note_server_end(self, part: ExecutedPartition, *, died: bool = False) -> None:
        """Say once when a partition's MPS server ended: its clients end with it."""
        now = self._mps().living(part)
        gone = self._servers.get(part.number, frozenset()) - now
        self._servers[part.number] = now
        if (
            gone or (died and not self._mps().served(part))
        ) and part.number not in self._without_server:
            self._without_server.add(part.number)
            jobs = ", ".join(map(str, part.jobs))
            self._say(f"MPS of job {jobs}: its server ended, and with a server end its clients")
