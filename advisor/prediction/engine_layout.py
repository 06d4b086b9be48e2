"""What the compiled replay is given: the rows of its arrays, and its arguments.

Times are in seconds. Arrays have a column for each tenant, but `kernels` one for each kernel.
"""

# Rows of `kernels`, shape (8, kernels).
LAUNCH, DURATION, DEMAND, HELD, DRAIN, WAVE, WAIT, TURN = 0, 1, 2, 3, 4, 5, 6, 7
# Rows of `paces`, shape (3, tenants).
HOST, GAP, LEAD = 0, 1, 2
# Rows of `state`, shape (4, tenants).
LEFT, READY, HOST_START, STEPS = 0, 1, 2, 3
# Rows of `current`, what runs: what its kernel needs, as `kernels` has it from `DEMAND` to before
# `WAVE`, its rate, and since when it runs; shape (5, tenants).
RATE, SINCE = 3, 4
# The same where tenants differ in priority: `WAVE` too, the slots that its running blocks keep, and
# seconds until these end; shape (8, tenants).
LATE_RATE, LATE_SINCE, KEPT, BLOCK = 4, 5, 6, 7
# Where blocks start strictly in order: the row of `kernels` that has the slots which all blocks of
# a kernel would fill at once, instead of its last wave; and the slots for which blocks of a
# tenant's kernel wait, and which they have, shape (2, tenants).
BLOCKS = DRAIN
WAITING, RUNNING = 0, 1
# How many cohorts of blocks, each with an end of its own, a kernel may have.
COHORTS = 32

NEVER = 1e30
DUST = 1e-12

# The arguments of each loop: addresses of arrays of floats (F), integers (I) and natural numbers
# (U), numbers (f) and whole ones (n). All are of 64 bits.
_OF_ALL = "IFFnnFnnfIFF"
LOOPS = {
    "mps": _OF_ALL + "fUF",
    "naive": _OF_ALL + "fff",
    "mps_by_priority": _OF_ALL + "fUFI",
    "mps_in_order": _OF_ALL + "UFIIFF",
}
