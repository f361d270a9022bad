"""`python -m hymo`: the command line without an installed script."""

import sys

from hymo.cli import main

sys.exit(main())
