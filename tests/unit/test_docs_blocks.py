"""Every block of every page is run by a test, or says above it why not."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))  # the tools live beside the pages, outside the package

from docs.tools import values  # noqa: E402

DOCS = ROOT / "docs"
FOLDERS = ("concepts", "labs")  # tests/integration/test_docs_guides.py runs every page in them
RUN_BY = {
    "ablate.md": "tests/integration/test_ablations_runner.py",
    "data.md": "tests/integration/test_docs_data.py",
    "distributed.md": "tests/integration/test_ranks_faults.py",
    "evaluate.md": "tests/integration/test_docs_evaluate.py",
    "generation.md": "tests/integration/test_docs_generation.py",
    "guides/quickstart.md": "tests/integration/test_docs_guides.py",
    "guides/train.md": "tests/integration/test_docs_guides.py",
    "humaneval.md": "tests/integration/test_docs_recall.py",
    "operate.md": "tests/integration/test_docs_operate.py",
    "recall.md": "tests/integration/test_docs_recall.py",
    "serving.md": "tests/integration/test_docs_generation.py",
    "tokenizer.md": "tests/integration/test_tokenizer_run.py",
    "transformers.md": "tests/integration/test_docs_transformers.py",
}
PAGES = {page.relative_to(DOCS).as_posix(): page for page in values.pages()}
PROGRAM = re.compile(r"^\s*(\$ |\w+=\S+ )*(hymo|python3?|pip|torchrun|make|curl|lm_eval|launch/\S+)\b", re.MULTILINE)
RUN = ("sh", "python", "yaml")


def problems(name: str, text: str) -> list[str]:
    """Blocks that no test runs, and commands in blocks that look as if they need none."""
    found = []
    blocks = re.findall(r"((?:^<!--[^\n]*-->\n)?)^```(\S*)[^\n]*\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    for above, language, body in blocks:
        if language in RUN:
            if name not in RUN_BY and name.partition("/")[0] not in FOLDERS:
                found.append(f"{name}: no test runs its blocks")
        elif language != "text":
            found.append(f"{name}: a block of {language or 'no language'}")
        elif PROGRAM.search(body) and not above.startswith("<!-- not run: "):
            found.append(f"{name}: a command that is not run and does not say why")
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    indented = re.findall(r"^\n {4}(.*)", prose, re.MULTILINE)
    return found + [f"{name}: indented code, which no test finds: {line}" for line in indented if PROGRAM.match(line)]


@pytest.mark.parametrize("name", PAGES)
def test_every_block_is_run_or_says_why_not(name: str) -> None:
    assert problems(name, PAGES[name].read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("name", RUN_BY)
def test_the_test_that_runs_a_page_names_it(name: str) -> None:
    assert name in PAGES
    assert f'"{Path(name).name}"' in (ROOT / RUN_BY[name]).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "text",
    [
        "```sh\nhymo eval RUN\n```\n",
        "```bash\nhymo eval RUN\n```\n",
        "```\nhymo eval RUN\n```\n",
        "```text\nhymo eval RUN\n```\n",
        "so:\n\n    hymo eval RUN\n",
    ],
)
def test_a_block_that_nothing_runs_is_found(text: str) -> None:
    assert len(problems("new.md", text)) == 1
    assert problems("new.md", "<!-- not run: takes days -->\n```text\nhymo train X\n```\n") == []
