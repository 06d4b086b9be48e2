"""One data loader for all jobs that read the same data; `tensorsocket` carries the batches.

Source: Robroek, Nielsen, Tözün, "TensorSocket: Shared Data Loading for Deep Learning Training".
"""

import logging
import os
import signal
import sys
import tempfile
from contextlib import suppress
from multiprocessing.util import get_temp_dir
from pathlib import Path
from typing import Any, NoReturn, TypeVar, cast

from advisor.errors import AdvisorError, InvalidInput, require_extra
from advisor.shared_loader.folder import PRODUCER, REASON, hold, valid_folder, write

FOLDER, JOBS = "ADVISOR_LOADER", "ADVISOR_LOADER_JOBS"

_Loader = TypeVar("_Loader")
_CALLED: list[Any] = []


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
        raise InvalidInput("A shared loader needs a DataLoader with a batch size. Set batch_size=.")
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
    _at_signals(lambda number, _: sys.exit(128 + number))
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
        _at_signals(signal.SIG_IGN)  # CUDA removes its shared memory while Python ends
        for left in Path("/dev/shm").glob(f"cuda.shm.{os.getuid()}.{os.getpid():x}.*"):
            left.unlink(missing_ok=True)  # CUDA leaves the memory of events that were shared
    raise SystemExit(0)


def _at_signals(do: Any) -> None:
    with suppress(ValueError):  # only the main thread can
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, do)


def _import_engine(folder: Path) -> None:
    require_extra("A shared loader", "loader", "tensorsocket")
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    from tensorsocket import consumer, producer

    root.handlers[:] = handlers  # the import made all messages of level DEBUG go to the output
    root.setLevel(level)
    producer.LOCALHOST = consumer.LOCALHOST = f"ipc://{folder}/loader"  # never TCP
