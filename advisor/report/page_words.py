"""Sentences that name options of a command, as the page says them: by the field that asks this."""

import re

FIELDS = {
    "--gpus": "How many",
    "--hurt": "May get slower by, %",
    "--memory-margin": "Memory to keep free, %",
    "--now": "as the driver says",
    "--objective": "Best means",
    "--objective deadlines": "Best means: deadlines kept",
    "--running": "Jobs that run already",
    "--running-sharing": "What runs shares the GPU",
    "--running-sharing mps": "What runs shares the GPU: mps",
}
"""What the page calls what these ask; behind a colon stands what to choose there."""

_LONGEST_FIRST = "|".join(sorted(FIELDS, key=len, reverse=True))
_OPTION = re.compile(rf"(?:{_LONGEST_FIRST})(?![\w-])")


def on_the_page(said: str) -> str:
    """`said` with the page's fields, in quotes, where it names options that the page asks too."""
    return _OPTION.sub(lambda option: f"“{FIELDS[option.group()]}”", said)
