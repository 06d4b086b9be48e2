"""Measures what is the machine's and not a workload's, for predictions to be taken there."""

from collections.abc import Sequence


def main(argv: Sequence[str]) -> int:
    """Calibrate as the words `argv` ask, under a supervisor that cleans up; the exit code."""
    from advisor.running.supervisor import supervised

    return supervised("advisor.calibration.command:run", argv)
