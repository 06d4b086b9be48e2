"""Code that runs inside a measured program, on the standard library, torch 2.1 and Python 3.10 on.

A program finds this package as `advisor_inside`, by a link on its PYTHONPATH, so its modules import
each other relatively and nothing else of `advisor`.
"""
