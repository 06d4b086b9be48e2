"""Numbers that options of the measuring commands take, checked where argparse reads them."""

from argparse import ArgumentTypeError
from collections.abc import Callable
from typing import TypeVar

_Number = TypeVar("_Number", int, float)


def option_number(
    kind: type[_Number], fits: Callable[[_Number], bool], what: str
) -> Callable[[str], _Number]:
    """Reads a number of `kind`; says of one that does not fit that it "is not" `what`."""

    def read(text: str) -> _Number:
        value = kind(text)
        if not fits(value):
            raise ArgumentTypeError(f"{text} is not {what}")
        return value

    read.__name__ = kind.__name__  # argparse names it where the text is no number at all
    return read


ABOVE_0 = option_number(float, lambda value: 0 < value < float("inf"), "above 0")
