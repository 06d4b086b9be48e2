"""What runs inside a user's script, whose Python may be older than the advisor's."""

import ast
import subprocess
import sys
from pathlib import Path

from advisor.measure.process import hook_folder

# What came with Python 3.11, taken away before the hook is imported as in a script.
WITHOUT = """\
import datetime, enum, sys
sys.path.insert(0, sys.argv[1])
sys.modules["tomllib"] = None
del enum.StrEnum, datetime.UTC
from advisor.measure.process import script_hook, script_patches, side_thread, step_counter
from advisor.measure.solo import profiling_verbs, recorded_window, trace_events, traced_step
print(*(each.__file__ for name, each in sys.modules.items() if name.startswith("advisor")))
"""
NEW_IN_TYPING = {"LiteralString", "Never", "NotRequired", "Self", "Unpack", "assert_never"}


def typing_names(file):
    """What a module takes from `typing`."""
    for node in ast.walk(ast.parse(file.read_text(), feature_version=(3, 10))):
        if isinstance(node, ast.ImportFrom) and node.module == "typing":
            yield from (each.name for each in node.names)


def test_the_hook_in_a_script_needs_nothing_that_came_after_python_3_10(tmp_path):
    hook_folder.hooked(tmp_path / "hook", {}, None)
    words = [sys.executable, "-I", "-c", WITHOUT, str(tmp_path / "hook")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    modules = [Path(each) for each in done.stdout.split()]
    assert len(modules) > 10
    for module in modules:
        assert NEW_IN_TYPING.isdisjoint(typing_names(module)), module
