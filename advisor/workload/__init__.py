"""Jobs, profiles and their files; the traces of clusters."""

from typing import Literal

TraceFormat = Literal["csv", "philly", "helios", "pai"]
"""Formats of jobs that arrive over time: our own table, and three public traces."""
