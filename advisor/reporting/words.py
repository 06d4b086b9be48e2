"""The unit in which a length of time reads best."""

# Up to which length a unit is used, its name, and its seconds.
_UNITS = (
    (0.1, "ms", 1e-3),
    (120.0, "s", 1.0),
    (7_200.0, "min", 60.0),
    (172_800.0, "h", 3_600.0),
    (float("inf"), "d", 86_400.0),
)


def time_unit(seconds: float) -> tuple[str, float]:
    """Its name, and its length in seconds."""
    return next((name, length_s) for bound, name, length_s in _UNITS if seconds < bound)
