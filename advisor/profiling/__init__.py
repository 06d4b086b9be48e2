"""Measures workloads alone on a GPU, for predictions to start from."""

from collections.abc import Sequence


def main(argv: Sequence[str]) -> int:
    """Profile what the words `argv` name, under a supervisor that cleans up; the exit code."""
    from advisor.running.supervisor import supervised

    return supervised("advisor.profiling.batch:run", argv)
