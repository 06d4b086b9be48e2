"""The words behind commands that measure: their parser, and the kinds of their values.

Each error is one sentence.
"""

from argparse import Action, ArgumentParser, ArgumentTypeError, HelpFormatter
from collections.abc import Callable, Iterable
from math import inf
from typing import Any, NoReturn

from advisor.errors import InvalidInput
from advisor.workload import units


class _Help(HelpFormatter):
    """Help that looks as that of the other commands."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=34)

    def add_usage(self, usage: Any, actions: Any, groups: Any, prefix: Any = None) -> None:
        super().add_usage(usage, actions, groups, prefix or "Usage: ")

    def add_arguments(self, actions: Iterable[Action]) -> None:
        super().add_arguments(sorted(actions, key=lambda each: each.dest == "help"))

    def start_section(self, heading: str | None) -> None:
        name = (heading or "").removeprefix("positional ")
        super().start_section(name[:1].upper() + name[1:])

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return super()._fill_text(text, width, f"{indent}  ")


class Parser(ArgumentParser):
    """A parser that raises InvalidInput for wrong words instead of printing its usage."""

    def __init__(self, **texts: Any) -> None:
        super().__init__(formatter_class=_Help, add_help=False, **texts)
        self.add_argument("-h", "--help", action="help", help="Show this message and exit.")

    def error(self, message: str) -> NoReturn:
        """Raise InvalidInput with the `message` and the command for help."""
        raise InvalidInput(f"{message.removesuffix('.')}. See `{self.prog} -h`.")


def in_units(read: Callable[[str], float]) -> Callable[[str], float]:
    """Return `read` for an option of argparse, which adds the option's name to its errors."""

    def quantity(text: str) -> float:
        try:
            return read(text)
        except InvalidInput as error:
            raise ArgumentTypeError(str(error)) from None

    return quantity


def above_0(text: str) -> float:
    """Return the seconds above 0 in the `text` of an option."""
    value = in_units(units.seconds)(text)
    if not 0 < value < inf:
        raise ArgumentTypeError(f"{text} is not above 0")
    return value


def variable(text: str) -> tuple[str, str]:
    """Return the name and the value of an environment variable, written NAME=VALUE."""
    name, equals, value = text.partition("=")
    if not equals:
        raise ArgumentTypeError(f"{text}: write NAME=VALUE")
    return name, value
