"""Measures many mixes on all GPUs of a host, or of a Ray cluster, out of one queue."""

from collections.abc import Sequence


def main(argv: Sequence[str]) -> int:
    """Do the campaign that the words `argv` name, under a supervisor; the exit code."""
    from advisor.running.supervisor import supervised

    return supervised("advisor.campaign.command:run", argv)
