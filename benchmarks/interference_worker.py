"""The requests that a process of `kernel_interference.py` answers: trace, load and loop kernels."""

import json
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

from interference_kinds import BY_NAME, Op

from advisor.measure.process.tenant_verbs import synchronise
from advisor.measure.process.worker import TenantState, Verb
from advisor.measure.solo.chrome_trace import steps_of_trace
from advisor.measure.solo.trace_events import MARK
from advisor.measure.solo.traced_step import sm_limits

# Graphs that are queued while one is waited for, so that the GPU never waits for the host.
_QUEUED = 2

_WARM_CALLS = 3


def interference_verbs() -> Mapping[str, Verb]:
    """`trace`, `load` and `loop`."""
    return {"trace": trace, "load": load, "loop": loop}


def trace(state: TenantState, tries: Sequence[tuple[str, int]]) -> dict[str, Any]:
    """The kernels that each kind launches in each size.

    Args:
        state: Of this process.
        tries: Names of kinds with sizes.

    Returns:
        ``found``: for each of `tries` the kernels as plain values, or a text that says why there
        are none; ``sms``: of the GPU, None on a CPU.
    """
    ops: dict[tuple[str, int], Op] = {}
    failed: dict[tuple[str, int], str] = {}
    for name, size in tries:
        try:
            ops[name, size] = _warmed(state, name, size)
        except Exception as error:  # one kind that this torch cannot do does not stop the others
            failed[name, size] = f"{type(error).__name__}: {error}"[:300]
    if state.device == "cpu":
        return {"found": [failed.get(each, []) for each in map(tuple, tries)], "sms": None}
    import torch

    properties = torch.cuda.get_device_properties(0)
    seen = _traced(state, ops, f"{properties.major}.{properties.minor}")
    found = [failed.get(each) or seen[each] for each in map(tuple, tries)]
    return {"found": found, "sms": properties.multi_processor_count}


def _traced(
    state: TenantState, ops: Mapping[tuple[str, int], Op], capability: str
) -> Mapping[tuple[str, int], list[dict[str, Any]]]:
    from torch.profiler import ProfilerActivity, profile, record_function

    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    with profile(activities=activities):  # the first session is slow, and may miss kernels
        next(iter(ops.values()))()
        synchronise(state)
    with profile(activities=activities) as seen:
        for (name, size), op in ops.items():
            with record_function(f"{MARK}{name}/{size}"):
                op()
            synchronise(state)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        seen.export_chrome_trace(str(path))
        document = json.loads(path.read_text(errors="replace"))
    marks = [f"{name}/{size}" for name, size in ops]
    (step,) = steps_of_trace(document, marks, sm_limits(capability))
    kernels = defaultdict(list)
    for work in step.work:
        kernels[work.phase].append(
            {"class": work.kind, "blocks": work.blocks, "threads": work.threads,
             "resident_blocks": work.resident_blocks, "duration_us": work.duration_us}
        )  # fmt: skip
    return {each: kernels[place] for place, each in enumerate(ops)}


def load(state: TenantState, key: str, name: str, size: int, launches: int) -> dict[str, Any]:
    """Make a CUDA graph of `launches` calls of a kind, kept as `key`; on a CPU just the calls.

    Returns:
        ``error``: None, or why that did not work.
    """
    try:
        op = _warmed(state, name, size)
        state.notes[key] = _captured(op, launches) if state.device == "cuda" else op
        state.notes[f"{key} inputs"] = op  # a graph does not keep alive what it reads
    except Exception as error:  # the others go on without it
        return {"error": f"{type(error).__name__}: {error}"[:300]}
    return {"error": None}


def _warmed(state: TenantState, name: str, size: int) -> Op:
    op = BY_NAME[name].build(state.device, size)
    for _ in range(_WARM_CALLS):
        op()
    synchronise(state)
    return op


def _captured(op: Op, launches: int) -> Op:
    import torch

    side: Any = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # libraries make their workspaces for this stream
        op()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        for _ in range(launches):
            op()
    graph.replay()
    torch.cuda.synchronize()
    return graph.replay


def loop(
    state: TenantState, key: str, start_at: float, window: tuple[float, float], stop_at: float
) -> dict[str, Any]:
    """Run what was loaded as `key` from one moment to another.

    Args:
        state: Of this process.
        key: As in `load`.
        start_at: Monotonic seconds, as all moments.
        window: First and last moment of what is counted.
        stop_at: When to stop.

    Returns:
        ``late_s``: how late it began; ``calls``: whole calls between the first and the last end
        inside `window`; ``seconds``: between these two.
    """
    call, late_s = state.notes[key], monotonic() - start_at
    while monotonic() < start_at:
        pass
    ends = _ends(call, stop_at, state.device)
    synchronise(state)
    inside = [end for end in ends if window[0] <= end <= window[1]]
    seconds = inside[-1] - inside[0] if len(inside) > 1 else 0.0
    return {"late_s": max(0.0, late_s), "calls": max(0, len(inside) - 1), "seconds": seconds}


def _ends(call: Op, stop_at: float, device: str) -> list[float]:
    """When each call was done on the device."""
    import torch

    ends: list[float] = []
    queued: deque[Any] = deque()
    while monotonic() < stop_at:
        call()
        if device == "cuda":
            event: Any = torch.cuda.Event()
            event.record()
            queued.append(event)
            if len(queued) <= _QUEUED:
                continue
            queued.popleft().synchronize()
        ends.append(monotonic())
    return ends
