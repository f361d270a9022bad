"""The command line: parse, call, print. Nothing here computes, and no command imports torch before it runs."""

from hymo.cli.app import main

__all__ = ["main"]
