"""Sentences that name options of a command, as the page says them: by the field that asks this."""

import re

from advisor.plan.objectives import OBJECTIVES

FIELDS = {
    "deadline_s in a file of jobs": "due, min",
    "--gpus": "How many",
    "--hurt": "May get slower by, %",
    "--memory-margin": "Memory to keep free, %",
    "--now": "as the driver says",
    "--objective": "Best means",
    "--running": "Jobs that run already",
    "--running-sharing": "What runs shares the GPU",
    "--running-sharing mps": "What runs shares the GPU: mps",
    **{f"--objective {name}": f"Best means: {each.choice}" for name, each in OBJECTIVES.items()},
}
"""What the page calls what these ask for; behind a colon stands what to choose there."""

_CALLED = FIELDS | {name: each.choice for name, each in OBJECTIVES.items()}
_OPTIONS, _NAMES = (
    "|".join(sorted(words, key=len, reverse=True)) for words in (FIELDS, OBJECTIVES)
)
_OF_COMMANDS = re.compile(
    rf"(?:{_OPTIONS})(?![\w-])|(?<=anked by )(?:{_NAMES})\b|\b(?:{_NAMES})(?= needs)"
)


def on_the_page(said: str) -> str:
    """`said` with the page's words, in quotes, for options that it has too, and for objectives."""
    return _OF_COMMANDS.sub(lambda found: f"“{_CALLED[found.group()]}”", said)
