"""Which variables of a job's environment nobody else is to see."""

import re

_SECRET = re.compile("KEY|TOKEN|SECRET|PASSW|CREDENTIAL", re.IGNORECASE)


def is_secret(name: str) -> bool:
    """Whether the name of a variable says that its value is secret."""
    return _SECRET.search(name) is not None
