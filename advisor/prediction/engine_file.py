"""The compiled loops of replay, from a file that outlives the process which compiled them.

numba compiles them in seconds, and needs half a second of each later process to find again what it
compiled. llvmlite, which numba compiles with, loads an object file by itself in a tenth of that.
"""

import os
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from ctypes import CFUNCTYPE, byref, c_double, c_int32, c_int64, c_void_p
from functools import partial
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from threading import Lock
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from numpy.typing import NDArray

from advisor.errors import AdvisorError
from advisor.prediction.engine_layout import (
    DEMAND,
    DURATION,
    DUST,
    HOST_START,
    LAUNCH,
    LEFT,
    LOOPS,
    NEVER,
    RATE,
    SINCE,
)
from advisor.prediction.trace import Floats
from advisor.workload.reading import cache_folder

_SOURCES = ("engine_layout.py", "engine.py")
_HERE = Path(__file__).parent
_CHECKSUM_BYTES = sha256().digest_size
_ARGUMENTS = {"F": c_void_p, "I": c_void_p, "U": c_void_p, "f": c_double, "n": c_int64}

_loaded: dict[str, Callable[..., float]] = {}
_loading = Lock()


def loops() -> Mapping[str, Callable[..., float]]:
    """Return each of `LOOPS` by its name, as a function of addresses and numbers.

    They are compiled if no file has them for this processor and these versions; if no file can be
    written, in each process again.
    """
    with _loading:
        if not _loaded:
            _loaded.update(_load())
    return _loaded


def _load() -> dict[str, Callable[..., float]]:
    folders = [_HERE / "__pycache__"]  # for all users of this installation, then the user's own
    with suppress(RuntimeError):  # this user has no home
        folders.append(cache_folder("engine"))
    paths = [folder / f"engine-{_key()}.o" for folder in folders]
    for code in filter(None, map(_read, paths)):
        try:
            return _linked(code)
        except RuntimeError:  # LLVM rejects the file, whatever the reason: compile
            continue
    from advisor.prediction.engine import machine_code

    code = machine_code()
    _keep(code, paths)
    return _linked(code)


def _key() -> str:
    """A digest of everything that machine code depends on."""
    digest = sha256()
    for each in _SOURCES:
        digest.update((_HERE / each).read_bytes())
    versions = version("numba"), version("llvmlite")
    processor = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    digest.update("\n".join((*versions, llvm.get_process_triple(), *processor)).encode())
    return digest.hexdigest()[:32]


def _read(path: Path) -> bytes | None:
    """The code in `path`; None if it is missing, damaged, or if other users could have written it.

    This user, root and the owner of this package may.
    """
    owners = {0, os.geteuid(), Path(__file__).stat().st_uid}
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            writable = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
            if not stat.S_ISREG(status.st_mode) or status.st_uid not in owners or writable:
                return None
            content = file.read()
    except OSError:
        return None
    checksum, code = content[:_CHECKSUM_BYTES], content[_CHECKSUM_BYTES:]
    return code if sha256(code).digest() == checksum else None


def _keep(code: bytes, paths: list[Path]) -> None:
    """Write `code` to the first of `paths` that can be written."""
    from advisor.workload.writing import write_whole

    for path in paths:
        with suppress(AdvisorError, OSError):
            path.unlink(missing_ok=True)  # its mode would stay
            write_whole(path, sha256(code).digest() + code)
            return


def _linked(code: bytes) -> dict[str, Callable[..., float]]:
    """The functions of an object file, in memory; RuntimeError for another processor's."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    builder = llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
    for name in LOOPS:
        builder.export_symbol(name)
    jit = llvm.create_lljit_compiler()
    library = builder.link(jit, "replay")
    return {
        name: partial(_call, _function(library[name], kinds), (jit, library))
        for name, kinds in LOOPS.items()
    }


def _function(address: int, kinds: str) -> Callable[..., int]:
    return CFUNCTYPE(c_int32, c_void_p, c_void_p, *(_ARGUMENTS[kind] for kind in kinds))(address)


def _call(function: Callable[..., int], _kept_alive: object, *arguments: Any) -> float:
    result, error = c_double(), c_void_p()
    if function(byref(result), byref(error), *arguments):
        raise AssertionError("a loop of replay has nothing to raise")
    return result.value


_Indices = NDArray[np.int64]
_DTYPES = {"F": np.dtype(np.float64), "I": np.dtype(np.int64), "U": np.dtype(np.uint64)}


def mps(
    starts: _Indices,
    kernels: Floats,
    paces: Floats,
    ceded: float,
    horizon_s: float,
    max_events: int,
    log: Floats,
) -> Floats:
    """Replay seconds of a step when kernels run side by side, shape (tenants,).

    Blocks start in the order in which their kernels became ready, where slots for them are free;
    of these a kernel leaves the share `ceded` to those after it. In the last `DRAIN` seconds of a
    kernel all its blocks have started. Kernels that are on the SMs together share what these do.
    """
    at, state = _begin(starts, kernels)
    current = np.zeros((5, len(at)))
    current[:RATE], current[SINCE] = kernels[DEMAND : DEMAND + RATE, at], NEVER
    # No tenant runs, all sleep.
    queues = np.stack([np.zeros(len(at), np.uint64), np.arange(len(at), dtype=np.uint64)])
    return _steps_s(
        "mps", starts, kernels, paces, log, max_events, horizon_s, at, state, ceded, queues, current
    )


def naive(
    starts: _Indices,
    kernels: Floats,
    paces: Floats,
    slicing: tuple[float, float, float],
    horizon_s: float,
    max_events: int,
    log: Floats,
) -> Floats:
    """Replay seconds of a step when one tenant owns the GPU at a time, shape (tenants,).

    `slicing` holds the seconds of a slice, of the wait for an idle owner, and of a change.
    """
    at, state = _begin(starts, kernels)
    return _steps_s(
        "naive", starts, kernels, paces, log, max_events, horizon_s, at, state, *slicing
    )


def _begin(starts: _Indices, kernels: Floats) -> tuple[_Indices, Floats]:
    """Let tenants start at different points of their steps, as real ones do."""
    tenants = len(starts) - 1
    at = starts[:-1] + np.diff(starts) * np.arange(tenants) // tenants
    state = np.zeros((4, tenants))
    state[LEFT], state[HOST_START] = kernels[DURATION, at], -kernels[LAUNCH, at]
    return at, state


def _steps_s(
    loop: str,
    starts: _Indices,
    kernels: Floats,
    paces: Floats,
    log: Floats,
    max_events: int,
    horizon_s: float,
    at: _Indices,
    state: Floats,
    *rest: Any,
) -> Floats:
    done = np.zeros((2, len(at)))
    values = (
        starts, kernels, paces, len(at), kernels.shape[1], log, len(log), max_events, horizon_s,
        at, state, done, *rest,
    )  # fmt: skip
    arguments = [_argument(*each) for each in zip(LOOPS[loop], values, strict=True)]
    elapsed_s = loops()[loop](*arguments)
    return np.asarray(elapsed_s / np.maximum(done[1] - done[0], DUST))


def _argument(kind: str, value: Any) -> Any:
    """A number as it is, an array as its address."""
    if kind not in _DTYPES:
        return value
    assert value.dtype == _DTYPES[kind], "compiled for another type"
    assert value.flags.c_contiguous, "compiled for another layout"
    return value.ctypes.data
