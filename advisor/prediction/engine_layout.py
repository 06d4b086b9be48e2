"""What the compiled replay is given: the rows of its arrays, and its arguments.

Times are in seconds. Arrays have a column for each tenant, but `kernels` one for each kernel.
"""

# Rows of `kernels`, shape (7, kernels).
LAUNCH, DURATION, DEMAND, HELD, DRAIN, WAIT, TURN = 0, 1, 2, 3, 4, 5, 6
# Rows of `paces`, shape (3, tenants).
HOST, GAP, LEAD = 0, 1, 2
# Rows of `state`, shape (4, tenants).
LEFT, READY, HOST_START, STEPS = 0, 1, 2, 3
# Rows of `current`, what runs: what its kernel needs, as `kernels` has it from `DEMAND` to `DRAIN`,
# its rate, and since when it runs; shape (5, tenants).
RATE, SINCE = 3, 4

NEVER = 1e30
DUST = 1e-12

# The arguments of each loop: addresses of arrays of floats (F), integers (I) and natural numbers
# (U), numbers (f) and whole ones (n). All are of 64 bits.
_OF_ALL = "IFFnnFnnfIFF"
LOOPS = {
    "mps": _OF_ALL + "fUF",
    "naive": _OF_ALL + "fff",
}
