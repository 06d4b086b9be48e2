"""The compiled part of replay: loops over kernels, in numba's subset of Python.

Tenant ``i`` repeats the kernels ``starts[i] .. starts[i + 1]``. Other arrays have a column for each
tenant, but `kernels` one for each kernel. Times are in seconds. Steps are counted with the part of
the last one that was done, after a warm-up, so that a short replay is not biased by its ends. Rows
of `log` are filled with tenant, kernel, start and end of what runs, in the order of the ends, up to
its length; shape (rows, 4).
"""

import llvmlite.binding as llvm
from numba import carray, njit, types

# Rows of `kernels`, shape (7, kernels).
LAUNCH, DURATION, DEMAND, HELD, DRAIN, WAIT, TURN = 0, 1, 2, 3, 4, 5, 6
# Rows of `paces`, shape (3, tenants).
HOST, GAP, LEAD = 0, 1, 2
# Rows of `state`, shape (4, tenants).
LEFT, READY, HOST_START, STEPS = 0, 1, 2, 3

NEVER = 1e30
DUST = 1e-12
WARM_UP = 0.25  # share of the replay after which counting begins
# Share of its block slots that a kernel has, in the mean, while its last wave drains: of 0.5, 0.7,
# 0.8, 0.9 and 1 what fits 626 pairs of kernels on an H200 best.
STILL_HELD = 0.9


def lean(function):
    """Compile `function`, which makes no array: counting references to them doubles its time."""
    return njit(_nrt=False, error_model="numpy")(function)


@lean
def begin(starts, kernels, at, state):
    """Let tenants start at different points of their steps, as real ones do."""
    for i in range(len(at)):
        at[i] = starts[i] + (starts[i + 1] - starts[i]) * i // len(at)
        state[LEFT, i], state[HOST_START, i] = kernels[DURATION, at[i]], -kernels[LAUNCH, at[i]]


@lean
def advance(i, now, starts, kernels, paces, at, state):
    """Point tenant `i`, which has finished its kernel, at the next one."""
    # A host that waited for it is no further than where it waits.
    state[HOST_START, i] = max(state[HOST_START, i], now - kernels[WAIT, at[i]])
    at[i] += 1
    if at[i] == starts[i + 1]:
        at[i] = starts[i]
        state[STEPS, i] += 1
        # The host went on, as far ahead as the launch queue allows.
        next_start = state[HOST_START, i] + paces[HOST, i]
        state[HOST_START, i] = max(next_start, now - paces[LEAD, i])
    state[LEFT, i] = kernels[DURATION, at[i]]
    launched = state[HOST_START, i] + kernels[LAUNCH, at[i]]
    state[READY, i] = max(now + paces[GAP, i], launched)


@lean
def count(starts, kernels, at, state, done):
    """Fill `done` with steps until now; an unfinished step counts by its share of kernel time."""
    for i in range(len(done)):
        before, whole = 0.0, 0.0
        for kernel in range(starts[i], starts[i + 1]):
            whole += kernels[DURATION, kernel]
            if kernel <= at[i]:
                before += kernels[DURATION, kernel]
        done[i] = state[STEPS, i] + (before - state[LEFT, i]) / whole


@lean
def note(log, row, i, kernel, start, end):
    """Log that a kernel ran; return the next free row."""
    if row == len(log):
        return row
    log[row, 0], log[row, 1], log[row, 2], log[row, 3] = i, kernel, start, end
    return row + 1


@lean
def _share_out(left, demand, held, drain, ceded, queue, active, rate):
    """Start blocks along the queue: fill `rate`; return seconds until that changes, and the load.

    All run `load` times slower than `rate`, because together they use that many GPUs.
    """
    waiting = 0.0
    for place in range(active):
        waiting += held[queue[place]]
    free, used, pause = 1.0, 0.0, NEVER
    for place in range(active):
        i = queue[place]
        most = held[i]
        waiting -= most
        running = max(0.0, min(most, free - ceded * min(1.0, waiting)))
        pace = 1.0 if running == most else running / most
        until, still = left[i] - drain[i], 1.0
        if until <= DUST:
            until, still = left[i], STILL_HELD
        elif place == active - 1:  # no other waits for its last blocks to start
            until = left[i]
        free -= still * running
        used += still * pace * demand[i]
        rate[i] = pace
        if until < pause * pace:
            pause = until / pace
    load = max(1.0, used)
    return pause * load, load


@lean
def _wake(now, ready, queue, active, asleep, sleeping):
    """Append the ready tenants to the queue; return both lengths and when the next is ready."""
    next_ready, still = NEVER, 0
    for place in range(sleeping):
        i = asleep[place]
        if ready[i] <= now:
            queue[active] = i
            active += 1
        else:
            asleep[still] = i
            still += 1
            next_ready = min(next_ready, ready[i])
    return active, still, next_ready


@lean
def _side_by_side(
    starts, kernels, paces, ceded, horizon_s, max_events, log, at, state, queues, current, done
):
    """Run the loop of `mps`; return the seconds between its two counts, the rows of `done`.

    `queues` holds the running tenants, in order, and the sleeping ones; `current` the demand, the
    slots and the drain of each tenant's kernel, its rate, and since when it runs.
    """
    left, ready = state[LEFT], state[READY]
    queue, asleep = queues[0], queues[1]
    demand, held, drain, rate, since = current[0], current[1], current[2], current[3], current[4]
    begin(starts, kernels, at, state)
    for i in range(len(at)):
        demand[i], held[i] = kernels[DEMAND, at[i]], kernels[HELD, at[i]]
        drain[i], since[i], asleep[i] = kernels[DRAIN, at[i]], NEVER, i
    now, began, events, active, sleeping, row = 0.0, -1.0, 0, 0, len(at), 0
    while now < horizon_s and events < max_events:
        if began < 0 and (now > WARM_UP * horizon_s or events > WARM_UP * max_events):
            began = now
            count(starts, kernels, at, state, done[0])
        active, sleeping, next_ready = _wake(now, ready, queue, active, asleep, sleeping)
        pause, load = _share_out(left, demand, held, drain, ceded, queue, active, rate)
        pause = min(pause, next_ready - now)
        done_s = pause / load
        running = 0
        for place in range(active):
            i = queue[place]
            if rate[i] > DUST and since[i] > now:
                since[i] = now
            left[i] -= rate[i] * done_s
            if left[i] > DUST:
                queue[running] = i
                running += 1
            else:
                row = note(log, row, i, at[i] - starts[i], since[i], now + pause)
                since[i] = NEVER
                advance(i, now + pause, starts, kernels, paces, at, state)
                demand[i], held[i] = kernels[DEMAND, at[i]], kernels[HELD, at[i]]
                drain[i] = kernels[DRAIN, at[i]]
                asleep[sleeping] = i
                sleeping += 1
        now += pause
        events += active - running
        active = running
    count(starts, kernels, at, state, done[1])
    return now - began


def mps(
    starts, kernels, paces, tenants, total, log, rows, max_events, horizon_s, at, state, done,
    ceded, queues, current,
):  # fmt: skip
    """Call `_side_by_side` with the arrays at these addresses."""
    return _side_by_side(
        carray(starts, tenants + 1), carray(kernels, (7, total)), carray(paces, (3, tenants)),
        ceded, horizon_s, max_events, carray(log, (rows, 4)), carray(at, tenants),
        carray(state, (4, tenants)), carray(queues, (2, tenants)), carray(current, (5, tenants)),
        carray(done, (2, tenants)),
    )  # fmt: skip


@lean
def _next_owner(owner, now, state):
    """Return the next tenant in turn that can run now, or else the one that can run first."""
    tenants = state.shape[1]
    soonest = (owner + 1) % tenants
    for step in range(1, tenants):
        i = (owner + step) % tenants
        if state[READY, i] <= now:
            return i
        if state[READY, i] < state[READY, soonest]:
            soonest = i
    return soonest


@lean
def _past_copies(i, row, starts, kernels, paces, log, at, state):
    """Let tenant `i` run all that needs no turn; return the next free row of `log`."""
    while kernels[TURN, at[i]] == 0.0:
        end = state[READY, i] + state[LEFT, i]
        row = note(log, row, i, at[i] - starts[i], state[READY, i], end)
        advance(i, end, starts, kernels, paces, at, state)
    return row


@lean
def _in_turn(starts, kernels, paces, slicing, horizon_s, max_events, log, at, state, done):
    """Run the loop of `naive`; return the seconds between its two counts, the rows of `done`."""
    begin(starts, kernels, at, state)
    slice_s, patience_s, switch_s = slicing
    tenants = len(at)
    now, began, events, owner, slice_end, row = 0.0, -1.0, 0, 0, slice_s, 0
    for i in range(tenants):
        row = _past_copies(i, row, starts, kernels, paces, log, at, state)
    while now < horizon_s and events < max_events:
        if began < 0 and (now > WARM_UP * horizon_s or events > WARM_UP * max_events):
            began = now
            count(starts, kernels, at, state, done[0])
        events += 1
        waiting = NEVER  # when the first of the others can run
        for i in range(tenants):
            if i != owner:
                waiting = min(waiting, state[READY, i])
        start = max(now, state[READY, owner])
        # No host launches more after a wait as soon as the GPU finds that there is nothing left.
        before = at[owner] - 1 if at[owner] > starts[owner] else starts[owner + 1] - 1
        waited = kernels[WAIT, before] < NEVER
        patience = 0.0 if waited else max(patience_s, paces[GAP, owner] + DUST)
        idle = start - now > patience and waiting < start
        evicted = max(now + min(patience, patience_s) if idle else max(now, slice_end), waiting)
        if start + state[LEFT, owner] <= evicted:
            now = start + state[LEFT, owner]
            row = note(log, row, owner, at[owner] - starts[owner], start, now)
            advance(owner, now, starts, kernels, paces, at, state)
            row = _past_copies(owner, row, starts, kernels, paces, log, at, state)
        else:
            if evicted > start:
                row = note(log, row, owner, at[owner] - starts[owner], start, evicted)
            state[LEFT, owner] -= max(0.0, evicted - start)
            owner = _next_owner(owner, evicted, state)
            now = evicted + switch_s
            slice_end = now + slice_s
    count(starts, kernels, at, state, done[1])
    return now - began


def naive(
    starts, kernels, paces, tenants, total, log, rows, max_events, horizon_s, at, state, done,
    slice_s, patience_s, switch_s,
):  # fmt: skip
    """Call `_in_turn` with the arrays at these addresses."""
    return _in_turn(
        carray(starts, tenants + 1), carray(kernels, (7, total)), carray(paces, (3, tenants)),
        (slice_s, patience_s, switch_s), horizon_s, max_events, carray(log, (rows, 4)),
        carray(at, tenants), carray(state, (4, tenants)), carray(done, (2, tenants)),
    )  # fmt: skip


_COMPILED = {"mps": mps, "naive": naive}
_TYPES = {
    "F": types.CPointer(types.float64),
    "I": types.CPointer(types.int64),
    "U": types.CPointer(types.uint64),
    "f": types.float64,
    "n": types.int64,
}


def machine_code(loops) -> bytes:
    """Return an object file with `loops` under their names, called as numba calls functions.

    `loops` are as in `engine_file`. First come the address of the result, a float, and that of an
    error; 0 is returned if there is none. The code needs nothing of numba or Python, so that it can
    be loaded without them.
    """
    target = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(),
        opt=3, reloc="pic", codemodel="small", jit=True,
    )  # fmt: skip
    module, *others = [_module(name, kinds) for name, kinds in loops.items()]
    for other in others:
        module.link_in(other)
    builder = llvm.create_pass_builder(target, llvm.create_pipeline_tuning_options(speed_level=3))
    builder.getModulePassManager().run(module, builder)
    return target.emit_object(module)


def _module(name, kinds):
    """Compile the loop called `name`, which alone can be seen from outside."""
    arguments = tuple(_TYPES[kind] for kind in kinds)
    loop = njit(
        types.float64(*arguments), error_model="numpy", no_cpython_wrapper=True,
        no_cfunc_wrapper=True,
    )(_COMPILED[name])  # fmt: skip
    module = llvm.parse_assembly(loop.inspect_llvm(arguments))
    for symbol in (*module.functions, *module.global_variables):
        if not symbol.is_declaration:
            symbol.linkage = "internal"
    own = module.get_function(loop.overloads[arguments].fndesc.llvm_func_name)
    own.linkage, own.name = "external", name
    return module
