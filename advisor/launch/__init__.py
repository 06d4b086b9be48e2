"""Plans ready to be applied: shell lines, files, exports for other tools."""

from typing import Literal

ExportFormat = Literal[
    "commands", "mps", "mig-parted", "kubernetes", "kubernetes-script", "slurm", "radt", "json"
]
"""Formats of a plan; `advisor.launch.exports` has a writer for each."""
