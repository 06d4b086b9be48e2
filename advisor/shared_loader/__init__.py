"""One data loader for all jobs that read the same data; `tensorsocket` carries the batches.

Source: Robroek, Nielsen, Tözün, "TensorSocket: Shared Data Loading for Deep Learning Training".
"""

import logging
import os
import signal
import tempfile
from multiprocessing.util import get_temp_dir
from pathlib import Path
from typing import Any, NoReturn, TypeVar, cast

from advisor.errors import AdvisorError, InvalidInput, require_extra
from advisor.shared_loader.folder import PRODUCER, REASON, hold, valid_folder, write

FOLDER, JOBS = "ADVISOR_LOADER", "ADVISOR_LOADER_JOBS"

_Loader = TypeVar("_Loader")
_CALLED: list[Any] = []
_ENDING = signal.SIGINT, signal.SIGTERM


def shared(loader: _Loader) -> _Loader:
    """Return `loader`, or the one that all jobs of its group share; two variables choose.

    Without ``ADVISOR_LOADER`` it returns the loader as it is. With this folder, the process is a
    job, and gets the batches of the producer: a pass ends with the epoch, and `len` is the number
    of batches that reach the job. With ``ADVISOR_LOADER_JOBS`` too, it is the producer: it serves
    so many jobs, and does not return.

    Raises:
        AdvisorError: The producer has ended, or does not come; or this job came too late.
        InvalidInput: A variable or the loader is not valid.
        SystemExit: In the producer, once all jobs have ended.
    """
    if FOLDER not in os.environ:
        return loader
    folder = valid_folder(os.environ[FOLDER])
    if getattr(loader, "batch_size", None) is None:
        raise InvalidInput("A shared loader is a DataLoader with a batch size. Set batch_size=.")
    if jobs := os.environ.get(JOBS):
        if not jobs.isdecimal() or not int(jobs):
            raise InvalidInput(f"{JOBS} is {jobs!r}. Set it to the number of jobs, 1 or more.")
        _produce(loader, folder, int(jobs))
    if _CALLED:
        raise InvalidInput("shared() was called twice. Share the loader of the training only.")
    _CALLED.append(loader)
    _import_engine(folder)
    from advisor.shared_loader.consumer import connect

    return cast("_Loader", connect(folder, cast("Any", loader).batch_size))


def _produce(loader: Any, folder: Path, jobs: int) -> NoReturn:
    hold(folder / PRODUCER)
    for number in _ENDING:
        signal.signal(number, lambda number, _: _end(128 + number))
    own, tempfile.tempdir = tempfile.tempdir, str(folder)
    get_temp_dir()  # of all workers: what killed ones leave is removed with the folder
    tempfile.tempdir = own
    try:
        _import_engine(folder)
        from advisor.shared_loader.producer import serve

        serve(loader, folder, jobs)
    except Exception as error:
        (*_, cause) = str(error).strip().splitlines() or [""]  # last in a worker's error
        kind = "" if isinstance(error, AdvisorError) else f"{type(error).__name__}: "
        write(folder / REASON, f"{kind}{cause}")
        raise
    finally:
        for left in Path("/dev/shm").glob(f"cuda.shm.{os.getuid()}.{os.getpid():x}.*"):
            left.unlink(missing_ok=True)  # CUDA leaves the memory of events that were shared
    _end(0)


def _end(code: int) -> NoReturn:
    """End as Python does, whatever comes, so that CUDA removes the rest of its shared memory."""
    for number in _ENDING:
        signal.signal(number, signal.SIG_IGN)
    raise SystemExit(code)


def _import_engine(folder: Path) -> None:
    require_extra("A shared loader", "loader", "tensorsocket")
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    from tensorsocket import consumer, producer

    root.handlers[:] = handlers  # the import made all messages of level DEBUG go to the output
    root.setLevel(level)
    producer.LOCALHOST = consumer.LOCALHOST = f"ipc://{folder}/loader"  # never TCP
