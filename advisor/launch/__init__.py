"""Plans ready to be applied: shell lines, files, exports for other tools."""

from typing import Literal

ExportFormat = Literal[
    "commands", "mps", "mig-parted", "kubernetes", "kubernetes-script", "kubernetes-dra", "kai",
    "hami", "slurm", "submitit", "radt", "json",
]  # fmt: skip
"""Formats of a plan; `advisor.launch.exports` has a writer for each."""
