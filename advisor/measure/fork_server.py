"""Modules that the fork server loads once, so that a tenant starts without imports.

Only the fork server imports this module. Nothing here may initialise CUDA: a fork cannot use a
context that was made before it.
"""

from contextlib import suppress
from importlib import import_module

from advisor.measure.pdeathsig import die_with_parent

# The server lives as long as its tenants do, and they die with it: so it must die with us.
die_with_parent()

with suppress(Exception):  # a missing or broken package is reported where it is needed
    import_module("torch")
    import_module("advisor.zoo.task")
    import_module("advisor.zoo.vision").import_timm()
