"""Check the built site by itself: every link and anchor resolves, and nothing is taken from another origin."""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

from docs.tools.paths import SITE

_LOADED = {"script": "src", "img": "src", "link": "href", "source": "src", "iframe": "src", "video": "src"}


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.untitled: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        for key in ("id", "name"):
            if given.get(key):
                self.ids.add(str(given[key]))
        if tag == "a" and given.get("href") is not None:
            self.links.append(str(given["href"]))
        place = given.get(_LOADED.get(tag, ""))
        if place and not (tag == "link" and given.get("rel") in ("canonical", "prev", "next", "alternate")):
            self.loaded.append(place)
        if tag == "img" and not given.get("alt"):
            self.untitled.append(str(given.get("src")))


def problems(site: Path = SITE) -> list[str]:
    """Everything wrong with the site, one line each."""
    pages: dict[Path, _Page] = {}
    for path in sorted(site.rglob("*.html")):
        pages[path] = page = _Page()
        page.feed(path.read_text(encoding="utf-8"))
    found = []
    for path, page in pages.items():
        if path.name == "404.html":
            continue
        name = path.relative_to(site)
        found += [f"{name}: image without a text: {place}" for place in page.untitled]
        for place in page.loaded:
            if urlsplit(place).netloc:
                found.append(f"{name}: loads {place}")
            elif not place.startswith("data:") and not _target(path, place).is_file():
                found.append(f"{name}: loads {place}, which does not exist")
        for link in page.links:
            if urlsplit(link).scheme or urlsplit(link).netloc:
                continue
            bare, anchor = urldefrag(link)
            target = path if not bare else _target(path, bare)
            if not target.is_file():
                found.append(f"{name}: link to {link}, which does not exist")
            elif anchor and target in pages and unquote(anchor) not in pages[target].ids | {"__skip"}:
                found.append(f"{name}: link to {link}, whose anchor does not exist")
    for style in sorted(site.rglob("*.css")):
        for place in re.findall(r"url\(([^)]+)\)", style.read_text(encoding="utf-8")):
            if re.match(r"[\"']?(https?:)?//", place):
                found.append(f"{style.relative_to(site)}: loads {place}")
    return found


def _target(page: Path, link: str) -> Path:
    path = unquote(urlsplit(link).path)
    target = (page.parent / path).resolve()
    return target / "index.html" if target.is_dir() or path.endswith("/") else target


def main() -> int:
    """Print the problems; exit code 1 if there are any."""
    found = problems()
    for problem in found:
        print(f"error: {problem}", file=sys.stderr)
    print(f"{len(list(SITE.rglob('*.html')))} pages, {len(found)} problems", file=sys.stderr)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
