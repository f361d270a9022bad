"""Write everything that is generated and committed: references, figures in pages, lab data, golden vectors.

python -m docs.tools.generate            # writes
python -m docs.tools.generate --check    # writes nothing, exit code 1 with the names of files that would change
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from typing import Any

from docs.tools import claims, figures, golden, references, values
from docs.tools.paths import DOCS, as_json


def generated() -> dict[str, str]:
    """Path below docs/ -> text of every generated file."""
    files = {path: write() for path, write in (references.PAGES | claims.PAGES).items()}
    files |= {path: as_json(write()) for path, write in golden.VECTORS.items()}
    files |= {path: write() for path, write in figures.FIGURES.items()}
    facts = values.facts()
    for page in values.pages():
        files[str(page.relative_to(DOCS))] = values.filled(page.read_text(encoding="utf-8"), facts, page.name)
    return files


def stale() -> list[str]:
    """Generated files that differ from what is committed."""
    found = []
    for path, text in generated().items():
        place = DOCS / path
        if not place.exists() or not same(path, place.read_text(encoding="utf-8"), text):
            found.append(f"docs/{path}")
    return found


def same(path: str, committed: str, text: str) -> bool:
    """Byte for byte; vectors from torch within rounding, because processors round the last digit differently."""
    if path.startswith("labs/golden"):
        return _close(json.loads(committed), json.loads(text))
    return committed == text


def _close(a: Any, b: Any) -> bool:
    if isinstance(a, float) or isinstance(b, float):
        return (
            isinstance(a, int | float) and isinstance(b, int | float) and math.isclose(a, b, rel_tol=1e-5, abs_tol=1e-6)
        )
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_close(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_close, a, b))
    return bool(a == b)


def main() -> int:
    """Write or check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if anything would change")
    if parser.parse_args().check:
        differing = stale()
        for path in differing:
            print(f"{path}: is not what the code says now. Run `make docs-generate`.", file=sys.stderr)
        return int(bool(differing))
    for path, text in generated().items():
        place = DOCS / path
        place.parent.mkdir(parents=True, exist_ok=True)
        if not place.exists() or not same(path, place.read_text(encoding="utf-8"), text):
            place.write_text(text, encoding="utf-8")
            print(f"docs/{path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
