"""Measuring: accuracy, time per stage, other runtimes beside."""
