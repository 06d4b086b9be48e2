"""Predict how training jobs will share a GPU."""

__version__ = "0.1.0"
