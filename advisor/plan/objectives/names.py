"""Names of the objectives, for whoever asks for one; imports nothing heavy."""

from typing import Literal

ObjectiveName = Literal[
    "makespan",
    "throughput",
    "mean-completion",
    "energy",
    "energy-epoch",
    "energy-example",
    "fairness",
    "deadlines",
]
