"""Plans as what starts when and where: shell lines, files, exports for other tools."""

from typing import Literal

ExportFormat = Literal["commands", "mps", "mig-parted", "slurm", "radt", "json"]
"""What a plan can be written as; `advisor.launch.exports` has a writer for each."""
