"""Measures of a model, and of what it is compared with."""
