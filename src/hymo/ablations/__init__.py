"""Comparisons of variants, trained by the same code on the same data."""
