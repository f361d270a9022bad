"""Where tasks find their data: every layout of a mirror, and what is said when something is missing or damaged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evaluation_fixtures import block_sockets, write_rows
from hymo.core.errors import DataError
from hymo.evaluation.task_data import Missing, TaskData, listed

ROWS = [{"text": "one\u2028line", "label": 1}, {"text": "two", "label": 0}, {"text": "three", "label": 1}]


@pytest.fixture(autouse=True)
def _offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    block_sockets(monkeypatch)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


def rows(loaded: Any, split: str = "test") -> list[dict[str, Any]]:
    return [dict(row) for row in loaded[split]]


@pytest.mark.parametrize("name", [None, "default", "part"])
@pytest.mark.parametrize("kind", ["jsonl", "json", "parquet", "csv", "shards"])
def test_files_by_split(tmp_path: Path, kind: str, name: str | None) -> None:
    folder = tmp_path / "owner" / "set" / (name if name == "part" else "")
    folder.mkdir(parents=True)
    table = pa.Table.from_pylist(ROWS)
    if kind == "jsonl":
        # As other tools write it: this separator of lines is not escaped, and is part of the text.
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS)
        (folder / "test.jsonl").write_text(text, encoding="utf-8")
    elif kind == "json":
        (folder / "test.json").write_text(json.dumps(ROWS))
    elif kind == "csv":
        (folder / "test.csv").write_text("text,label\none\u2028line,1\ntwo,0\nthree,1\n", encoding="utf-8")
    elif kind == "parquet":
        pq.write_table(table, folder / "test.parquet")
    else:
        pq.write_table(table.slice(0, 2), folder / "test-00000-of-00002.parquet")
        pq.write_table(table.slice(2), folder / "test-00001-of-00002.parquet")
    data = TaskData(tmp_path)
    loaded = data.load("owner/set", name)
    assert (list(loaded), rows(loaded)) == (["test"], ROWS)
    assert data.load("owner/set", name) is loaded
    assert data.missing("t", "owner/set", name, {}) is None


def test_a_copy_of_a_repository_with_its_own_layout(tmp_path: Path) -> None:
    folder = tmp_path / "owner" / "set"
    write_rows(folder / "files" / "a_en.jsonl", ROWS)
    (folder / "README.md").write_text(
        "---\nconfigs:\n- config_name: english\n  data_files:\n  - split: test\n    path: files/a_en.jsonl\n---\n"
    )
    assert rows(TaskData(tmp_path).load("owner/set", "english")) == ROWS
    missing = TaskData(tmp_path).missing("t", "owner/set", "french", {})
    assert missing is not None
    assert missing.what.startswith("data set owner/set, configuration french (")
    assert "english" in missing.what


def test_files_of_local_tasks_start_at_the_current_folder_or_at_the_definitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_rows(tmp_path / "tasks" / "a.jsonl", ROWS[:1])
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    options = {"data_files": {"test": ["a.jsonl"]}}
    assert rows(TaskData(folders=[tmp_path / "tasks"]).load("json", **options)) == ROWS[:1]
    missing = TaskData().missing("t", "json", None, options)
    assert missing is not None
    assert "a.jsonl" in missing.what
    write_rows(here / "a.jsonl", ROWS[1:])
    assert rows(TaskData(folders=[tmp_path / "tasks"]).load("json", **options)) == ROWS[1:]


def test_damaged_files_are_no_missing_data(tmp_path: Path) -> None:
    (tmp_path / "o" / "s").mkdir(parents=True)
    (tmp_path / "o" / "s" / "test.jsonl").write_text('{"a": 1}\n{"a":')
    with pytest.raises(DataError, match=r"o/s: cannot be read as data set o/s"):
        TaskData(tmp_path).missing("t", "o/s", None, {})


def test_what_is_missing_is_told_once(tmp_path: Path) -> None:
    found = TaskData(tmp_path).missing("t", "o/s", "part", {})
    assert found == Missing(
        "t", "data set o/s", f"Fetch it: hf download o/s --repo-type dataset --local-dir {tmp_path}/o/s"
    )
    other = Missing("t", "data set o/s, configuration b", found.remedy)
    assert listed([found, found, other]) == [f"t: data set o/s and 1 more: missing. {found.remedy}"]


def test_serving_lasts_as_long_as_its_block(tmp_path: Path) -> None:
    before = datasets.load_dataset
    data = TaskData(tmp_path)
    with data.serving():
        assert datasets.load_dataset == data.load
    assert datasets.load_dataset is before
