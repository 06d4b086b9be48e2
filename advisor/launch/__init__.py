"""Plans ready to be applied: shell lines, files, exports for other tools."""

from typing import Literal

ExportFormat = Literal["commands", "mps", "mig-parted", "slurm", "radt", "json"]
"""Formats of a plan; `advisor.launch.exports` has a writer for each."""
