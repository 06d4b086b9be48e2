"""Turns a workload into the training step that a measurement repeats. Needs torch and timm."""
