"""How far each column may differ before two jobs in mixes no longer tell of each other.

In standard deviations of the column; at 100 it says nothing. `benchmarks/likeness.py` finds them:
they stand here because such a search ends elsewhere after a rounding error.
"""

_MODES = ("naive", "mps", "mps-limits")
_FOUND = {
    "dram": (100, 35, 67),
    "occupancy": (28, 47, 17),
    "host": (9.1, 11, 100),
    "wide": (4.4, 48, 11),
    "log_kernel_us": (22, 9.2, 14),
    "log_kernels": (26, 100, 9.7),
    "log_step_ms": (100, 100, 9.6),
    "log_alone_under_mps": (100, 100, 30),
    "log_degree": (1.7, 4.8, 20),
    "mates_busy": (24, 100, 100),
    "mates_sms": (10, 13, 2.6),
    "mates_dram": (29, 100, 33),
    "mates_occupancy": (100, 67, 40),
    "mates_wide": (38, 3.7, 14),
    "mates_log_kernel_us": (87, 100, 23),
    "mates_log_step_ms": (14, 61, 70),
    "busiest_mate": (5.7, 100, 100),
    "longest_mate_log_kernel_us": (100, 100, 84),
    "log_wait": (100, 4.5, 7.9),
    "log_wait_wide": (100, 3, 2.5),
    "log_wait_long": (100, 49, 64),
    "log_alone": (6, 6, 4.6),
    "busy": (1.5, 2, 19),
    "sms": (75, 4, 4.7),
}

# By column and mode.
LENGTHS = {column: dict(zip(_MODES, found, strict=True)) for column, found in _FOUND.items()}
