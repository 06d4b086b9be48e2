"""The parser of the words behind commands that measure: its errors are one sentence."""

import argparse
import re
from typing import NoReturn

from advisor.errors import InvalidInput

_NOT_WHOLE = re.compile(r"invalid int value: ")


class Parser(argparse.ArgumentParser):
    """A parser that raises InvalidInput for wrong words instead of printing its usage."""

    def error(self, message: str) -> NoReturn:
        """Raise InvalidInput with the `message` and the command for help."""
        text = _NOT_WHOLE.sub("expected a whole number without a unit, got ", message)
        raise InvalidInput(f"{text.removesuffix('.')}. See `{self.prog} -h`.")
