"""Executes a step: eagerly, compiled, or captured once and replayed as a CUDA graph."""

import os
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from shutil import which
from typing import cast

import torch
from torch import nn

from advisor.errors import InvalidInput
from advisor.workload.data_folders import cache_folder
from advisor.workload.spec import Workload

# What is captured must have run before, so that nothing is first made while capturing.
_STEPS_BEFORE_CAPTURE = 3

_COMPILERS = ("c++", "g++", "clang++", "cc", "gcc", "clang")
_BACKEND = "inductor"


def check_device(workload: Workload, device: torch.device) -> None:
    """Refuse what only a GPU can do, and compilation where nothing compiles.

    Raises:
        InvalidInput: `workload` cannot run like this on `device`.
    """
    if device.type != "cuda":
        if workload.execution == "graph":
            _refuse(workload, "CUDA graphs need a GPU", "graph")
        if workload.precision == "fp16":
            _refuse(workload, "fp16 with scaled gradients needs a GPU", "fp16")
    if workload.execution == "compiled":
        if device.type == "cuda" and find_spec("triton") is None:
            _refuse(workload, "torch.compile needs triton, which is not installed", "compiled")
        if not any(map(which, _COMPILERS)):
            _refuse(workload, "torch.compile needs a C compiler, and none is found", "compiled")


def _refuse(workload: Workload, why: str, option: str) -> None:
    raise InvalidInput(f"{workload.name}: {why}. Leave out -{option}, or run it elsewhere.")


def compiled(network: nn.Module) -> nn.Module:
    """`network`, compiled when it is first called; later processes find most of it in a cache.

    Compiles in this process alone: a tenant has one core, and its children would outlast nothing.
    """
    import torch._inductor.config as inductor

    inductor.compile_threads = 1
    _keep_what_is_compiled()
    return cast("nn.Module", torch.compile(network, dynamic=False, backend=_BACKEND))


def _keep_what_is_compiled() -> None:
    """Set a cache that outlives this run, unless the user has one.

    Torch sets its own default, a temporary folder, as soon as it looks for one.
    """
    from torch._inductor.runtime.cache_dir_utils import default_cache_dir

    if os.environ.get("TORCHINDUCTOR_CACHE_DIR") in (None, default_cache_dir()):
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(cache_folder("inductor"))


def captured(step: Callable[[], None]) -> torch.cuda.CUDAGraph:
    """All that `step` enqueues, as a graph; what it reads and leaves must stay where it is.

    Args:
        step: Takes a few steps for real first, then one that is only recorded.
    """
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream), warnings.catch_warnings():
        # An optimizer made for capture warns when it steps without.
        warnings.filterwarnings("ignore", message=".*capturable=True")
        for _ in range(_STEPS_BEFORE_CAPTURE):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    # A loader's thread that pins memory may go on meanwhile.
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        step()
    return graph
