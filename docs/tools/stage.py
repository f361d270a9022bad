"""Stage the pages for the site generator: `docs/` to `build/docs`.

Pages stay plain Markdown in the repository. Staging adds reading times, turns links to files of the repository into
pages of the site that show them, copies assets, and refuses numbers in prose that no code or result file wrote.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

import yaml

from docs.tools import numbers, values
from docs.tools.paths import DOCS, ROOT, STAGED, page_files

_WORDS_PER_MINUTE = 200
_ASSETS = ("assets", "stylesheets", "javascripts")
_LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
_LANGUAGES = {
    ".py": "python",
    ".yaml": "yaml",
    ".toml": "toml",
    ".json": "json",
    ".md": "markdown",
    ".ts": "typescript",
}


def stage() -> list[str]:
    """Write build/docs and return what is wrong with the pages."""
    shutil.rmtree(STAGED, ignore_errors=True)
    STAGED.mkdir(parents=True)
    for name in _ASSETS:
        shutil.copytree(DOCS / name, STAGED / name)
    sources: set[Path] = set()
    problems = []
    checked = set(values.pages())
    for name in ("claims", "decisions", "risks", "references"):
        text = (DOCS / "data" / f"{name}.yaml").read_text(encoding="utf-8")
        problems += [f"docs/{line}" for line in numbers.source_problems(f"{name}.yaml", yaml.safe_load(text))]
    for page in page_files():
        text = (DOCS / page).read_text(encoding="utf-8")
        if DOCS / page in checked:
            problems += [f"docs/{line}" for line in numbers.problems(page.as_posix(), text)]
        place = STAGED / page
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(_staged(text, page, sources), encoding="utf-8")
    for source in sorted(sources):
        _write_source(source)
    return problems


def _staged(text: str, page: Path, sources: set[Path]) -> str:
    meta, body = _front_matter(text)
    body = numbers.MARK.sub(r"\2", body)
    prose = re.sub(r"```.*?```|<[^>]+>|\$\$?[^$]+\$\$?", " ", body, flags=re.DOTALL)
    minutes = max(1, round(len(prose.split()) / _WORDS_PER_MINUTE))
    meta.append(f"reading_minutes: {minutes}")
    lab = re.search(r"<(hymo-[\w-]+)", body)
    if lab:
        script = lab_script(lab[1])
        meta.append(f"lab: {script}")
        meta.append(f"lab_modules: [{', '.join(lab_modules(script))}]")
    source = Path("source") / "docs" / page.with_name(page.name + ".md")
    meta.append(f"source_page: {source.with_suffix('').as_posix()}/")
    sources.add(Path("docs") / page)
    lines = [_linked(line, page, sources) for line in _outside_code(body)]
    return "---\n" + "\n".join(meta) + "\n---\n" + "".join(lines)


def lab_script(element: str) -> str:
    """Name of the script that defines an element, by the table of labs.js."""
    table = (DOCS / "assets" / "labs" / "labs.js").read_text(encoding="utf-8")
    (name,) = re.findall(rf"""["']{element}["']: \(\) => import\(["']\./([\w-]+)\.js["']\)""", table)
    return str(name)


def lab_modules(lab: str) -> list[str]:
    """Names of what a lab's script imports, and their imports: the page asks for all at once, not one after another."""
    found, waiting = [], [lab]
    for name in waiting:
        text = (DOCS / "assets" / "labs" / f"{name}.js").read_text(encoding="utf-8")
        new = re.findall(r"""^import [^;]*?["']\./([\w-]+)\.js["']""", text, re.MULTILINE)
        waiting += [other for other in new if other not in waiting]
        found += [other for other in new if other not in found]
    return found


def _front_matter(text: str) -> tuple[list[str], str]:
    match = re.match(r"---\n(.*?)\n---\n", text, re.DOTALL)
    return (match[1].splitlines(), text[match.end() :]) if match else ([], text)


def _outside_code(body: str) -> list[str]:
    """Pieces of the page; fenced blocks are pieces of their own, which `_linked` leaves alone."""
    return re.split(r"(```.*?```)", body, flags=re.DOTALL)


def _linked(piece: str, page: Path, sources: set[Path]) -> str:
    if piece.startswith("```"):
        return piece

    def rewrite(match: re.Match[str]) -> str:
        label, target = match[1], match[2]
        if re.match(r"[a-z]+:|#|/", target):
            return match[0]
        path, _, anchor = target.partition("#")
        place = Path(os.path.normpath(DOCS / page.parent / path))
        if place.is_relative_to(DOCS) and place.suffix == ".md" and place.name != "README.md":
            return match[0]
        if place.is_relative_to(DOCS) and place.relative_to(DOCS).parts[0] in _ASSETS:
            return match[0]
        if not place.is_file() or not place.is_relative_to(ROOT):
            return match[0]  # the generator reports it
        sources.add(place.relative_to(ROOT))
        up = "../" * (len(page.parts) - 1)
        fragment = f"#{anchor}" if anchor else ""
        return f"[{label}]({up}source/{place.relative_to(ROOT).as_posix()}.md{fragment})"

    return _LINK.sub(rewrite, piece)


def _write_source(source: Path) -> None:
    """A page that shows one file of the repository; out of the search index."""
    text = (ROOT / source).read_text(encoding="utf-8")
    place = STAGED / "source" / source.with_name(source.name + ".md")
    place.parent.mkdir(parents=True, exist_ok=True)
    language = _LANGUAGES.get(source.suffix, "text")
    fence = "`" * max(4, 1 + max((len(run) for run in re.findall(r"`+", text)), default=0))
    head = f"---\nsearch:\n  exclude: true\nhide:\n  - toc\n  - navigation\nplain: true\n---\n# {source.as_posix()}\n\n"
    place.write_text(f'{head}{fence}{{ .{language} linenums="1" }}\n{text.rstrip()}\n{fence}\n', encoding="utf-8")


def main() -> int:
    """Stage, and fail with every problem named."""
    problems = stage()
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
