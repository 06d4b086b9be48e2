"""Runs an optuna study on one GPU as advised: so many processes, and how they share it.

Threads, which ``study.optimize(n_jobs=...)`` starts, wait for each other in Python and share one
CUDA stream. These are processes, each with cores, an MPS limit and a memory cap of its own, which
share the study's storage. Needs optuna, and no more than measuring does beside it.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from time import monotonic
from typing import TYPE_CHECKING, Literal
from uuid import uuid4

from advisor.apply.study_crew import MOST_TICKETS, StudyCrew, tickets_for
from advisor.apply.study_worker import RUN, WorkerOrder, storage_of
from advisor.errors import InvalidInput
from advisor.hardware.mps import client_variables
from advisor.measure.process.claimed_device import claimed, device_at_hand
from advisor.measure.process.cores import allowed_cores, cores_of_each
from advisor.measure.process.mps_session import MpsSession, mps_session_on
from advisor.measure.process.run_locks import sweep
from advisor.measure.process.scratch_folders import scratch_folder
from advisor.sharing import Concurrent, Mps, Naive

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import FrozenTrial

    from advisor.plan.trials import Trials


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedProcesses:
    """So many processes of one kind, and how they share a GPU.

    Attributes:
        cores_each: Host cores that each is pinned to.
        memory_cap_mib: What each may allocate under MPS; None: no cap.

    Raises:
        InvalidInput: A number is impossible, or the sharing is for another number of processes.
    """

    processes: int
    sharing: Concurrent
    cores_each: int = 1
    memory_cap_mib: int | None = None

    def __post_init__(self) -> None:
        if self.processes < 1 or self.cores_each < 1:
            raise InvalidInput("trials need at least 1 process, and each at least 1 core")
        limits = self.sharing.limits
        if limits and len(limits) != self.processes:
            raise InvalidInput(
                f"{self.sharing} is for {len(limits)} processes, not for {self.processes}"
            )

    @property
    def cap(self) -> dict[str, str]:
        """The variable that caps what each may allocate."""
        return client_variables(None, self.memory_cap_mib) if self.sharing.under_mps else {}


@dataclass(frozen=True, slots=True)
class StudyRun:
    """What a run of a study did.

    Attributes:
        study: With all its trials, also those of before.
        ended: Trials of this run that have a value or were pruned.
        failed: Trials of this run that raised, or whose process died.
        wall_s: From the start of the first process to the end of the last.
        mps_clients: Processes that the MPS server was seen to serve at once; 0: without MPS.
    """

    study: "Study"
    ended: int
    failed: int
    wall_s: float
    mps_clients: int


def processes_of(advised: "Trials") -> SharedProcesses:
    """As many processes, sharing as `advised` says, each with the cores its profile used."""
    from advisor.launch.launch_plan import launch_plan

    copies, mix = advised.copies, advised.row.prediction
    first, *_ = launch_plan([copies.job] * advised.at_once, copies.gpu, mix).starts
    return SharedProcesses(
        processes=advised.at_once,
        sharing=mix.sharing if isinstance(mix.sharing, Mps) else Naive(),
        cores_each=first.core_count or 1,
        memory_cap_mib=first.memory_cap_mib,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StudySpec:
    """A study: where it is kept, and how it goes on.

    Attributes:
        storage: The file of a journal, which is made where there is none, or a URL for optuna.
        name: Of the study there; made where there is none.
        directions: Of a new study's values.
        sampler: A function, ``"FILE.py:FUNCTION"`` or ``"MODULE:FUNCTION"``, without arguments that
            returns a sampler, one in each process; None: optuna's own.
    """

    storage: str
    name: str
    directions: tuple[Literal["minimize", "maximize"], ...] = ("minimize",)
    sampler: str | None = None

    def opened(self) -> "Study":
        """The study.

        Raises:
            InvalidInput: It cannot be read or made.
        """
        from optuna import create_study

        try:
            return create_study(
                storage=storage_of(self.storage), study_name=self.name, load_if_exists=True,
                directions=self.directions,
            )  # fmt: skip
        except Exception as error:  # of optuna, of its database, or of the database's driver
            first = (str(error).splitlines() or [""])[0]
            raise InvalidInput(
                f"study {self.name!r} in {self.storage}: {type(error).__name__}: {first}. Name a "
                f"journal's file, or a URL that optuna takes."
            ) from error


@dataclass(frozen=True, slots=True)
class SharedGpu:
    """A GPU that processes may share now.

    Attributes:
        environments: Variables to set for each process before it uses CUDA.
        cores: Host cores to pin each to.
    """

    session: MpsSession
    environments: tuple[dict[str, str], ...]
    cores: tuple[tuple[int, ...], ...]


@contextmanager
def gpu_shared_by(how: SharedProcesses, device: str = "0") -> Iterator[SharedGpu]:
    """A GPU, claimed and switched to the sharing of `how` while the block runs; for any launcher.

    Args:
        how: The processes that are to share it; they have to end before the block does.
        device: GPU by its index or UUID, or ``"cpu"``.

    Raises:
        InvalidInput: There is no such device, too few cores, or no MPS on it.
        GpuUnavailable: Another process uses it, or MPS does not start.
    """
    sweep()
    at = device_at_hand(device)
    if at.kind == "cpu" and how.sharing.under_mps:
        raise InvalidInput("a CPU has no MPS. Share it naively, or name a GPU.")
    wanted = [how.cores_each] * how.processes
    cores = cores_of_each(wanted, allowed_cores(), share=at.kind == "cpu")
    with (
        claimed(at, "a study of trials"),
        scratch_folder() as folder,
        mps_session_on(at, folder) as session,
    ):
        session.switch_to(how.sharing)
        setups = session.setups(how.sharing, cores)
        environments = tuple({**each.environment, **how.cap} for each in setups)
        yield SharedGpu(session, environments, cores)


def run_study(
    objective: str, trials: int, how: SharedProcesses, spec: StudySpec, *, device: str = "0"
) -> StudyRun:
    """Run `trials` more trials of a study, and wait for them; however it ends, nothing is left.

    A trial that raises fails, and so does one whose process dies; the others go on, and the next
    has a fresh process. Where as many fail as there are processes, and at least 3, before any ends
    well, the run stops.

    Args:
        objective: ``"FILE.py:FUNCTION"`` or ``"MODULE:FUNCTION"``; takes an optuna trial. It is
            imported in each process: guard what must not run there by ``__main__``.
        trials: How many.
        how: What `processes_of` says, or chosen by hand.
        spec: The study, which may have trials already.
        device: GPU by its index or UUID, or ``"cpu"``.

    Raises:
        InvalidInput: A number, name, storage or function is wrong, or there are too few cores.
        GpuUnavailable: Another process uses the GPU, or MPS does not start.
        AdvisorError: Trials fail, and none ends well.
    """
    if not 1 <= trials <= MOST_TICKETS:
        raise InvalidInput(f"a run has 1 to {MOST_TICKETS:,} trials, got {trials}")
    study, run = spec.opened(), uuid4().hex
    with gpu_shared_by(how, device) as shared, tickets_for(trials) as tickets:
        order = WorkerOrder(
            objective=objective, sampler=spec.sampler, storage=spec.storage, study=spec.name,
            run=run, cores=(), tickets=tickets, parent=os.getpid(),
        )  # fmt: skip
        orders = [replace(order, cores=cores) for cores in shared.cores]
        crew = StudyCrew(shared.session, how.sharing, shared.environments, orders)
        began = monotonic()
        try:
            crew.run(lambda: any(map(_ended_well, _of_run(study, run))))
        finally:
            crew.end()
            _fail_abandoned(study, run)
        wall_s = monotonic() - began
    ended = sum(map(_ended_well, _of_run(study, run)))
    return StudyRun(study, ended, trials - ended, wall_s, crew.mps_clients)


def _of_run(study: "Study", run: str) -> "list[FrozenTrial]":
    """The trials of this run; others may go on in the same study meanwhile."""
    return [each for each in study.get_trials(deepcopy=False) if each.user_attrs.get(RUN) == run]


def _ended_well(trial: "FrozenTrial") -> bool:
    return trial.state.is_finished() and trial.state.name != "FAIL"


def _fail_abandoned(study: "Study", run: str) -> None:
    """Say of trials whose processes died that they failed, or they would be taken to go on."""
    from optuna.trial import TrialState

    for trial in _of_run(study, run):
        if not trial.state.is_finished():
            study.tell(trial.number, state=TrialState.FAIL)
