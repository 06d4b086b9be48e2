"""Plans ready to be applied: shell lines, files, exports for other tools."""

from typing import Literal

ExportFormat = Literal["commands", "mps", "mig-parted", "kubernetes", "slurm", "radt", "json"]
"""Names of the formats of a plan, in the table of `advisor.launch.exports`."""
