"""Code that runs inside a measured program, on the standard library, torch 2.1 and Python 3.10 on.

A program finds this package as `advisor_inside`, by a link on its PYTHONPATH, so its modules import
each other relatively and nothing else of `advisor`.
"""

import sys

_OLDEST = (3, 10)

if sys.version_info < _OLDEST:
    here = ".".join(map(str, sys.version_info[:2]))
    raise ImportError(f"its Python is {here}, and steps are seen from 3.10 on")
