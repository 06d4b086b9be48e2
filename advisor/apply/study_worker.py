"""A process of a study: runs one trial after another until no ticket is left.

Started by `advisor.apply.study` as ``python -m``, with one JSON object as its only word. A ticket
is a byte in a pipe that all processes of the study read: whoever takes it runs a trial.
"""

import importlib
import importlib.util
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advisor.errors import AdvisorError, InvalidInput
from advisor.measure.process.pdeathsig import die_with_parent
from advisor.terminal import clean

if TYPE_CHECKING:
    from optuna import Study, Trial
    from optuna.storages import BaseStorage

RUN = "advisor:run"
"""User attribute of a trial: which run of the study it belongs to."""

FAILED = 1
"""Exit code after a trial that failed: a process that ran out of memory, or met an error of CUDA,
holds on to both, so the next trial has a fresh one."""


_END = {signal.SIGTERM}


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOrder:
    """What a process of a study does.

    Attributes:
        objective: ``"FILE.py:FUNCTION"`` or ``"MODULE:FUNCTION"``.
        sampler: Likewise, a function without arguments that returns a sampler; None: optuna's own.
        storage: As `storage_of` takes it.
        study: Its name there.
        run: What tells its trials from others.
        cores: Host cores to be pinned to; empty: all.
        tickets: Descriptor of the pipe of tickets.
        parent: The process that ends this one when it ends.
    """

    objective: str
    sampler: str | None
    storage: str
    study: str
    run: str
    cores: tuple[int, ...]
    tickets: int
    parent: int


def main(argv: Sequence[str]) -> int:
    """Run trials as the order in `argv` says; the exit code."""
    order = WorkerOrder(**json.loads(argv[0]))
    die_with_parent()
    os.register_at_fork(after_in_child=die_with_parent)  # loaders
    if os.getppid() != order.parent:
        return FAILED  # it died before that took effect
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    if order.cores:
        os.sched_setaffinity(0, order.cores)
    try:
        return _run(order)
    except AdvisorError as error:
        print(clean(f"error: {error}"), file=sys.stderr, flush=True)
        return error.exit_code


def _run(order: WorkerOrder) -> int:
    from optuna import load_study
    from optuna.trial import TrialState

    objective = named_function(order.objective)
    sampler = None if order.sampler is None else named_function(order.sampler)()
    study = load_study(study_name=order.study, storage=storage_of(order.storage), sampler=sampler)
    while os.read(order.tickets, 1):
        if _one_trial(study, objective, order.run) == TrialState.FAIL:
            return FAILED
    return 0


def _one_trial(study: "Study", objective: Callable[["Trial"], Any], run: str) -> Any:
    """The state in which the trial ended."""
    numbers = []

    def owned(trial: "Trial") -> Any:
        trial.set_user_attr(RUN, run)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _END)
        numbers.append(trial.number)
        return objective(trial)

    # Ended before it says whose it is, a trial would be taken to go on for ever.
    signal.pthread_sigmask(signal.SIG_BLOCK, _END)
    study.optimize(owned, n_trials=1, catch=(Exception,), gc_after_trial=True)
    return study.get_trials(deepcopy=False)[numbers[0]].state


def named_function(name: str) -> Callable[..., Any]:
    """The function that ``"FILE.py:FUNCTION"`` or ``"MODULE:FUNCTION"`` names.

    Raises:
        InvalidInput: There is none.
    """
    where, colon, function = name.rpartition(":")
    if not (colon and where and function.isidentifier()):
        raise InvalidInput(f"{name!r}: write FILE.py:FUNCTION or MODULE:FUNCTION.")
    try:
        module = _of_file(Path(where)) if where.endswith(".py") else importlib.import_module(where)
        found = getattr(module, function)
    except (ImportError, OSError, AttributeError, SyntaxError) as error:
        raise InvalidInput(
            f"{name}: {type(error).__name__}: {error}. Say where the function is."
        ) from error
    if not callable(found):
        raise InvalidInput(f"{name} is no function. Name one.")
    return found  # type: ignore[no-any-return]


def _of_file(path: Path) -> Any:
    """The file's module, which imports its neighbours as it does when it is run."""
    sys.path.insert(0, str(path.resolve().parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # loaders that spawn look for it there
    spec.loader.exec_module(module)
    return module


def storage_of(word: str) -> "str | BaseStorage":
    """The storage of a study: a URL as optuna takes it, else the file of a journal."""
    if "://" in word:
        return word
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    return JournalStorage(JournalFileBackend(word))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
