"""What runs inside a measured program: the standard library and torch 2.1 on, Python 3.10 on.

A program finds this package as `advisor_inside`, by a link on its PYTHONPATH, so its modules import
each other relatively and nothing else of `advisor`.
"""
