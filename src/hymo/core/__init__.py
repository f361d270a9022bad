"""Configuration, accounting and errors. Nothing below this package imports torch."""
