"""The compiled loops of replay, from a file that outlives the process which compiled them.

numba compiles them in seconds, and needs half a second of each later process to find again what it
compiled. llvmlite, which numba compiles with, loads an object file by itself in a tenth of that.
"""

import os
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from ctypes import CFUNCTYPE, byref, c_double, c_int32, c_int64, c_void_p
from functools import cache, partial
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from threading import Lock
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from numpy.typing import NDArray

from advisor.errors import AdvisorError
from advisor.prediction.trace import Floats
from advisor.workload.reading import cache_folder

# Arguments of the loops of `engine`: addresses of arrays of floats (F), of integers (I) and of
# natural numbers (U), numbers (f) and whole numbers (n). All are of 64 bits.
_OF_BOTH = "IFFnnFnnfIFF"
LOOPS = {"mps": _OF_BOTH + "fUF", "naive": _OF_BOTH + "fff"}
_LEAST_STEPS = 1e-12

_HERE = Path(__file__).parent
_CHECKSUM_BYTES = sha256().digest_size
_ARGUMENTS = {"F": c_void_p, "I": c_void_p, "U": c_void_p, "f": c_double, "n": c_int64}

_loading = Lock()


def loops() -> Mapping[str, Callable[..., float]]:
    """Return `LOOPS` by name, as functions of addresses and numbers.

    They are compiled if no file has them for this processor and these versions; if no file can be
    written, in each process again.
    """
    with _loading:
        return _load()


@cache
def _load() -> dict[str, Callable[..., float]]:
    folders = [_HERE / "__pycache__"]  # for all users of this installation, then the user's own
    with suppress(RuntimeError):  # this user has no home
        folders.append(cache_folder("engine"))
    # Everything that machine code depends on.
    versions = version("numba"), version("llvmlite")
    processor = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    inputs = "\n".join((str(LOOPS), *versions, llvm.get_process_triple(), *processor))
    key = sha256((_HERE / "engine.py").read_bytes() + inputs.encode()).hexdigest()[:32]
    paths = [folder / f"engine-{key}.o" for folder in folders]
    for code in filter(None, map(_read, paths)):
        try:
            return _linked(code)
        except RuntimeError:  # LLVM rejects the file, whatever the reason: compile
            continue
    from advisor.prediction.engine import machine_code
    from advisor.workload.writing import write_whole

    code = machine_code(LOOPS)
    for path in paths:
        with suppress(AdvisorError, OSError):
            path.unlink(missing_ok=True)  # its mode would stay
            write_whole(path, sha256(code).digest() + code)
            break
    return _linked(code)


def _read(path: Path) -> bytes | None:
    """Return the code in `path`; None if it is missing or damaged, or others may have written it.

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


def _linked(code: bytes) -> dict[str, Callable[..., float]]:
    """Load the functions of an object file; RuntimeError if it is of another processor."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    builder = llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
    for name in LOOPS:
        builder.export_symbol(name)
    jit = llvm.create_lljit_compiler()
    library = builder.link(jit, "replay")
    functions: dict[str, Callable[..., float]] = {}
    for name, kinds in LOOPS.items():
        function = CFUNCTYPE(c_int32, c_void_p, c_void_p, *(_ARGUMENTS[kind] for kind in kinds))
        functions[name] = partial(_call, function(library[name]), (jit, library))
    return functions


def _call(function: Callable[..., int], _kept_alive: object, *arguments: Any) -> float:
    result, error = c_double(), c_void_p()
    if function(byref(result), byref(error), *arguments):
        raise AssertionError("a loop of replay has nothing to raise")
    return result.value


_Indices = NDArray[np.int64]
_DTYPES = {"F": np.dtype(np.float64), "I": np.dtype(np.int64), "U": np.dtype(np.uint64)}


def mps(
    starts: _Indices, kernels: Floats, paces: Floats, ceded: float, horizon_s: float,
    max_events: int, log: Floats,
) -> Floats:  # fmt: skip
    """Replay seconds of a step when kernels run side by side, shape (tenants,).

    Blocks start in the order in which their kernels became ready, where slots for them are free; of
    these a kernel leaves the share `ceded` to those after it. In the last `DRAIN` seconds of a
    kernel all its blocks have started.
    """
    tenants = len(starts) - 1
    rest = ceded, np.zeros((2, tenants), np.uint64), np.zeros((5, tenants))
    return _steps_s("mps", starts, kernels, paces, log, max_events, horizon_s, *rest)


def naive(
    starts: _Indices, kernels: Floats, paces: Floats, slicing: tuple[float, float, float],
    horizon_s: float, max_events: int, log: Floats,
) -> Floats:  # fmt: skip
    """Replay seconds of a step when one tenant owns the GPU at a time, shape (tenants,).

    `slicing` holds the seconds of a slice, of the wait for an idle owner, and of a change.
    """
    return _steps_s("naive", starts, kernels, paces, log, max_events, horizon_s, *slicing)


def _steps_s(
    loop: str, starts: _Indices, kernels: Floats, paces: Floats, log: Floats, max_events: int,
    horizon_s: float, *rest: Any,
) -> Floats:  # fmt: skip
    tenants = len(starts) - 1
    done = np.zeros((2, tenants))
    values = (
        starts, kernels, paces, tenants, kernels.shape[1], log, len(log), max_events, horizon_s,
        np.zeros(tenants, np.int64), np.zeros((4, tenants)), done, *rest,
    )  # fmt: skip
    arguments = [_argument(*each) for each in zip(LOOPS[loop], values, strict=True)]
    elapsed_s = loops()[loop](*arguments)
    return np.asarray(elapsed_s / np.maximum(done[1] - done[0], _LEAST_STEPS))


def _argument(kind: str, value: Any) -> Any:
    """Return a number as it is, an array as its address."""
    if kind not in _DTYPES:
        return value
    assert value.dtype == _DTYPES[kind], "compiled for another type"
    assert value.flags.c_contiguous, "compiled for another layout"
    return value.ctypes.data
