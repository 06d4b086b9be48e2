"""What a plan can be best at: the names here, for the command line, and a class for each.

`objective` and `fleet_objective` say what an objective answers; `completion`, `pace` and `energy`
hold the objectives, and `table` finds them by name. A new objective is a name here and a class in
one of these three files.
"""

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
