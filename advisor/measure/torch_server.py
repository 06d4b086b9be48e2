"""What the fork server loads for tenants that check the host alone: torch, and nothing else.

As `fork_server`, which loads timm and the zoo too: that takes twice as long where the host is slow.
"""

from contextlib import suppress
from importlib import import_module

from advisor.measure.pdeathsig import die_with_parent

die_with_parent()

with suppress(Exception):
    import_module("torch")
