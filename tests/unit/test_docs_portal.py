"""The portal's generated parts are what the code says now, its numbers are marked, its pages are in the navigation."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))  # the tools live beside the pages, outside the package

from docs.tools import generate, numbers, paths, sources, stage, values  # noqa: E402


def test_every_generated_file_is_what_the_code_says() -> None:
    """References byte for byte, golden vectors within rounding."""
    assert generate.stale() == []


def test_a_changed_vector_is_noticed() -> None:
    text = (ROOT / "docs/labs/golden/recurrence.json").read_text()
    assert generate.same("labs/golden/recurrence.json", text, text)
    case = json.loads(text)
    case[1]["linear"]["o"][0][0] += 1e-3
    assert not generate.same("labs/golden/recurrence.json", text, json.dumps(case))
    assert not generate.same("reference/config.md", "a", "a ")


@pytest.mark.parametrize("page", list(values.pages()), ids=lambda page: str(page.relative_to(ROOT / "docs")))
def test_every_number_has_a_source(page: Path) -> None:
    name = page.relative_to(ROOT / "docs").as_posix()
    assert numbers.problems(name, page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("name", ["claims", "decisions", "risks", "references"])
def test_every_number_of_a_generated_page_has_a_source(name: str) -> None:
    rows = yaml.safe_load((ROOT / f"docs/data/{name}.yaml").read_text(encoding="utf-8"))
    assert numbers.source_problems(f"{name}.yaml", rows) == []
    assert numbers.source_problems(f"{name}.yaml", {**rows, "intro": "A third of 0.31."})


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a model of 434 M", 1),
        ("a model of <!--=active-->434 M<!--/-->", 0),
        ("<!--=recall copy | 32 symbols | attention-->100<!--/--> %", 0),
        ("<!--table loader-cpu-->\n| 4 |\n<!--/table-->", 0),
        ("in fp32 on an H200, `x = 3`, $y = 4$, [five](5.md)", 0),
        ("| layers | 32 |", 1),
        ("```sh\nhymo plan --gpus 4\n```\n", 0),
        ("arXiv 2412.06464, section 3.2", 0),
        ("exit code 2, or it ends with 143 or 130, and 17 times", 1),
    ],
)
def test_typed_numbers(text: str, found: int) -> None:
    assert len(numbers.typed_numbers(text)) == found


def test_exceptions_cover_what_they_say_and_nothing_else() -> None:
    allowed = {
        "phrases": [{"page": "a.md", "text": ["400"]}],
        "sections": [{"page": "a.md", "section": "Record"}],
    }
    page = "# A\n\nanswered with 400\n\n## Record\n\n17 ms\n\n## Next\n\n{}\n"
    assert numbers.problems("a.md", page.format("x"), allowed) == []
    assert len(numbers.problems("a.md", page.format("18 or 1400"), allowed)) == 2
    assert len(numbers.problems("b.md", page.format("x"), allowed)) == 2
    gone = numbers.problems("a.md", "# A\n", allowed)
    assert [line.partition(":")[0] for line in gone] == ["numbers.yaml", "numbers.yaml"]


@pytest.mark.parametrize(
    ("entry", "wrong"),
    [
        ("## 2026-11-29: title\n\n`hymo eval RUN` gave 3.\n", 0),
        ("## 2026-11-29: title\n\nbenchmarks/results/x-cpu.json\n", 0),
        ("## 2026-11-29: title\n\nIt gave 3.\n", 1),
        ("## title\n\nIt gave 3.\n", 2),
    ],
)
def test_a_log_entry_has_a_date_and_a_command(entry: str, wrong: int) -> None:
    assert len(numbers.problems("log.md", "# Log\n\n" + entry)) == wrong


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        ("field hymo_750m model.vocab_size", "64,256"),
        ("field default training.hang_minutes", "30"),
        ("const hymo.data.shards:DEFAULT_SHARD_TOKENS short", "50 M"),
        ("arg hymo.evaluation.sandbox:Limits disk_bytes size", "16 MiB"),
        ("len hymo.data.bpe:SPECIALS", "16"),
        ("anything else", None),
    ],
)
def test_a_source_by_name(key: str, shown: str | None) -> None:
    assert sources.value(key) == shown


def test_a_constant_of_a_module_that_cannot_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(sources.importlib, "import_module", refuse)
    assert sources.value("const hymo.data.shards:DEFAULT_SHARD_TOKENS short") == "50 M"
    with pytest.raises(LookupError, match="assigns no GONE"):
        sources.value("const hymo.data.shards:GONE")


def test_a_measured_value_is_that_of_the_result_file() -> None:
    rows = json.loads((ROOT / "benchmarks/results/recall-cpu.json").read_text(encoding="utf-8"))["rows"]
    (row,) = (row for row in rows if row["task"] == "copy" and row["model"] == "attention")
    first, second = row["accuracy"]["32 symbols"]
    assert sources.value("recall copy | 32 symbols | attention") == f"{50 * (first + second):.0f}"


def test_an_unknown_value_stops_the_build() -> None:
    facts = {"stored": "5"}
    assert values.filled("{{stored}}", facts, "page") == "<!--=stored-->5<!--/-->"
    assert values.filled("<!--=stored-->4<!--/-->", facts, "page") == "<!--=stored-->5<!--/-->"
    assert values.filled("```yaml\n{{stored}}\n```\n", facts, "page") == "```yaml\n{{stored}}\n```\n"
    with pytest.raises(SystemExit, match="nothing is no fact"):
        values.filled("{{nothing}}", facts, "page")
    with pytest.raises(SystemExit, match="has no attribute"):
        values.filled("{{const hymo.data.shards:GONE}}", facts, "page")
    with pytest.raises(SystemExit, match="gone is no table"):
        values.filled("<!--table gone-->\n\n<!--/table-->", facts, "page")


def test_every_page_is_in_the_navigation() -> None:
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))

    def listed(entry: object) -> list[str]:
        if isinstance(entry, str):
            return [entry]
        inner = entry.values() if isinstance(entry, dict) else entry
        return [page for item in inner for page in listed(item)]  # type: ignore[attr-defined]

    assert sorted(listed(config["nav"])) == [page.as_posix() for page in paths.page_files()]


@pytest.mark.parametrize("page", sorted((ROOT / "docs/concepts").glob("[!i]*.md")), ids=lambda page: page.stem)
def test_a_concept_has_all_its_parts(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert "**You will be able to**" in text
    parts = ["Intuition", "Derivation", "In the code", "Worked example", "Questions", "Sources"]
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == parts
    assert text.count("<summary>") == 5
    assert "<!--=" in text.split("## Worked example")[1].split("## Questions")[0]
    assert "../../src/hymo/" in text.split("## In the code")[1].split("##")[0]


def test_staging_keeps_code_and_turns_links_out_of_the_docs_into_pages(tmp_path: Path) -> None:
    sources: set[Path] = set()
    page = Path("concepts/moe.md")
    text = "[a](../../src/hymo/models/moe.py) [b](gdn-mla.md)\n```md\n[c](../../src/hymo/models/mla.py)\n```\n"
    staged = stage._staged(text, page, sources)
    assert "[a](../source/src/hymo/models/moe.py.md) [b](gdn-mla.md)" in staged
    assert "[c](../../src/hymo/models/mla.py)" in staged
    assert sources == {Path("src/hymo/models/moe.py"), Path("docs/concepts/moe.md")}


def test_a_page_asks_for_its_lab_and_all_that_it_imports() -> None:
    folder = ROOT / "docs/assets/labs"
    for element in ("hymo-stack", *(f"hymo-{lab}-lab" for lab in ("gdn", "moe", "cache", "mtp", "step", "planner"))):
        script = stage.lab_script(element)
        names = [script, *stage.lab_modules(script)]
        texts = [(folder / f"{name}.js").read_text(encoding="utf-8") for name in names]
        assert f'customElements.define("{element}"' in texts[0]
        assert "base" in names
        assert {found for text in texts for found in re.findall(r'from "\./(\w+)\.js"', text)} == set(names[1:])


def test_node_packages_are_pinned_and_no_lock_file_names_a_registry() -> None:
    package = json.loads((ROOT / "docs/labs/package.json").read_text(encoding="utf-8"))
    for group in ("dependencies", "devDependencies"):
        assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in package[group].values())
    assert not (ROOT / "docs/labs/package-lock.json").exists()
