"""The refusals of measuring commands, without the processes that these would start."""

from importlib import import_module
from unittest.mock import patch

from advisor.cli import main
from advisor.errors import AdvisorError
from advisor.measure import process


def supervise_here(entry, document):
    """Do the same as `advisor.measure.process.supervise`, in this process."""
    module, function = entry.split(":")
    try:
        return getattr(import_module(module), function)(document)
    except AdvisorError as error:
        process.say(f"error: {error}")
        return error.exit_code


def refused(command, words, capsys):
    """Exit code of ``advisor COMMAND WORDS``, and what it prints on stderr."""
    with patch.object(process, "supervise", supervise_here):
        try:
            main([*command.split(), *map(str, words)])
        except SystemExit as end:
            code = end.code or 0
    return code, capsys.readouterr().err
