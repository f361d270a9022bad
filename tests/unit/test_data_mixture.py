"""Mixtures: the ten sources offline, budgets, sources that end, that are gated or out of reach."""

import dataclasses
import hashlib
import itertools
import json
import os
import socket
import sys

import datasets
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hymo.cli.app import main
from hymo.core.errors import ConfigError, DataError, UsageError
from hymo.core.load import preset_names
from hymo.data import ByteTokenizer, hub, open_split
from hymo.data.filters import CodeFilters, Filters
from hymo.data.mixture import Mixture, load_mixture
from hymo.data.prepare import clear_output, run
from hymo.data.reading import read_all, settle
from hymo.data.recipe import make_mixture_job
from hymo.data.selection import split_of
from hymo.data.workers import Workers
from mixture_fixtures import local_mixture, rows_of, write_rows

TOK = ByteTokenizer()
PRESET = load_mixture("hymo_mixture")


@pytest.fixture(autouse=True)
def _no_network(monkeypatch):
    def refuse(*_):
        raise AssertionError("a test tried to open a connection")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket.socket, "connect_ex", refuse)
    monkeypatch.setattr(hub, "WAIT_SECONDS", 0.0)


def texts_of(directory, split="train"):
    data = open_split(directory, split, TOK)
    return [(TOK.decode(data.document(i)), *data.identity(i)) for i in range(data.n_documents)]


def files_of(directory):
    return {
        str(p.relative_to(directory)): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in directory.rglob("*")
        if p.is_file()
    }


def prepare(mixture, out, workers=1, block_bytes=None, **options):
    job = make_mixture_job(mixture, out, TOK, **options)
    if block_bytes:
        job = dataclasses.replace(job, block_bytes=block_bytes)
    return run(job, TOK, workers=workers)


def mixture_of(folder, weights, rows, **options):
    """Sources of numbered documents, ten bytes each (12 tokens)."""
    sources = {}
    for name, weight in weights.items():
        texts = [f"{name[:3]:<3}{i:07d}" for i in range(rows[name])]
        write_rows(folder / f"{name}.jsonl", [{"text": text} for text in texts])
        sources[name] = {"local": str(folder / f"{name}.jsonl"), "weight": weight, "licence": "CC0-1.0"}
    return Mixture.model_validate({"sources": sources, "fractions": (1, 0, 0), **options})


def test_the_preset_has_ten_sources_whose_weights_are_as_designed():
    weights = {name: source.weight for name, source in PRESET.sources.items()}
    assert len(weights) == 10
    assert sum(weights.values()) == pytest.approx(1, abs=1e-12)
    assert weights["fineweb_edu"] > 0.5
    assert sum(w for name, w in weights.items() if name.startswith("stack_")) == pytest.approx(0.15)
    assert [weights[name] for name in ("dclm", "wikipedia_multi", "fineweb2", "cosmopedia")] == [0.05, 0.04, 0.01, 0.01]
    assert [weights[name] for name in ("finemath", "wikipedia_en")] == [0.06, 0.04]
    assert PRESET.sources["fineweb_edu"].filters.min_score == 3
    assert {name for name, source in PRESET.sources.items() if source.gated} == {
        "stack_python",
        "stack_java",
        "stack_cpp",
    }
    assert all(source.licence for source in PRESET.sources.values())
    assert "hymo_mixture" not in preset_names()


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
@pytest.mark.parametrize("name", PRESET.sources)
def test_each_source_by_rows_of_its_own_schema(tmp_path, name, suffix):
    source = PRESET.sources[name]
    rows, filtered = rows_of(name, 3)
    path = write_rows(tmp_path / f"rows{suffix}", rows)
    alone = source.model_copy(update={"weight": 1.0, "configs": None})
    mixture = Mixture(sources={name: alone}, fractions=(1, 0, 0))
    manifest = prepare(mixture, tmp_path / "out", local=[f"{name}={path}"], train_tokens=10**6)
    kept = texts_of(tmp_path / "out")
    expected = rows[: len(rows) - sum(filtered.values())]
    identities = (
        [str(row[source.id]) for row in expected]
        if source.id in rows[0]
        else [f"rows{suffix}:{i}" for i in range(1, len(expected) + 1)]
    )
    assert sorted(kept) == sorted(
        (row[source.text], name, identity) for row, identity in zip(expected, identities, strict=True)
    )
    assert manifest.filtered == ({name: filtered} if filtered else {})
    assert manifest.quarantined == {}
    assert manifest.sources[name]["train"]["documents"] == len(expected)


@pytest.mark.parametrize("name", ["fineweb_edu", "stack_cpp", "dclm", "wikipedia_en"])
def test_streaming_gives_what_a_local_copy_gives(tmp_path, monkeypatch, name):
    rows, _ = rows_of(name, 3)
    path = write_rows(tmp_path / "rows.parquet", rows)
    asked = {}
    load = datasets.load_dataset

    def from_disk(repository, config, **options):
        asked.update(options, repository=repository, config=config)
        columns = {"columns": options["columns"]} if "columns" in options else {}
        return load("parquet", data_files=str(path), split="train", streaming=True, **columns)

    monkeypatch.setattr(datasets, "load_dataset", from_disk)
    monkeypatch.setattr(hub, "newest_revision", lambda repository: "c0ffee")
    source = PRESET.sources[name]
    alone = Mixture(sources={name: source.model_copy(update={"weight": 1.0})}, fractions=(0.8, 0.1, 0.1))
    streamed = prepare(alone, tmp_path / "streamed", train_tokens=10**6)
    copied = prepare(alone, tmp_path / "copied", train_tokens=10**6, local=[f"{name}={path}"])
    assert [t[0] for t in texts_of(tmp_path / "streamed")] == [t[0] for t in texts_of(tmp_path / "copied")]
    assert (streamed.sources, streamed.filtered) == (copied.sources, copied.filtered)
    assert asked["repository"] == source.hub
    assert (asked["config"], asked.get("data_dir"), asked["revision"]) == (source.config, source.data_dir, "c0ffee")
    assert (asked["split"], asked["streaming"]) == ("train", True)
    assert streamed.inputs["train"] == [
        "hf://" + "/".join(p for p in (source.hub, source.config, source.data_dir, "train") if p) + "@c0ffee"
    ]


def test_a_broken_connection_is_opened_again_behind_the_last_row(tmp_path, monkeypatch):
    rows, _ = rows_of("cosmopedia", 5)
    opened, breaks = [], {7: 2, 15: 1}

    class Stream:
        def __init__(self, first=0):
            self.first = first

        def skip(self, n):
            return Stream(n)

        def __iter__(self):
            opened.append(self.first)
            for number in range(self.first, len(rows)):
                if breaks.get(number):
                    breaks[number] -= 1
                    raise TimeoutError("read timed out")
                yield rows[number]

    monkeypatch.setattr(hub, "open_stream", lambda feed, fields: Stream())
    monkeypatch.setattr(hub, "newest_revision", lambda repository: "1")
    alone = PRESET.sources["cosmopedia"].model_copy(update={"weight": 1.0})
    prepare(Mixture(sources={"cosmopedia": alone}, fractions=(1, 0, 0)), tmp_path / "out", train_tokens=10**6)
    assert opened == [0, 0, 7, 7, 15]  # the first one is the probe
    assert sorted(t[0] for t in texts_of(tmp_path / "out")) == sorted(row["text"] for row in rows)


def fail_with(monkeypatch, error, gated_only=False):
    def load(repository, *_, **__):
        if gated_only and "stack" not in repository:
            return [{"text": "x", "id": "1"}]
        raise error

    monkeypatch.setattr(datasets, "load_dataset", load)
    monkeypatch.setattr(hub, "newest_revision", lambda repository: "1")


def test_a_gated_source_says_what_to_do(tmp_path, monkeypatch, capsys):
    gated = datasets.exceptions.DatasetNotFoundError("Dataset 'x' is a gated dataset on the Hub. Log in to access it.")
    fail_with(monkeypatch, gated, gated_only=True)
    code = main(["data", "prepare", "hymo_mixture", "--out", str(tmp_path / "out")])
    err = capsys.readouterr().err
    assert code == 1
    assert err.count("\n") == 1
    for part in (
        "stack_python",
        "bigcode/the-stack-dedup",
        "hf auth login",
        "--skip-gated",
        "--local stack_python=PATH",
    ):
        assert part in err
    assert not (tmp_path / "out").exists()


def test_an_unreachable_source_says_so(tmp_path, monkeypatch, capsys):
    # As the tests run: the Hub's client is told to stay offline.
    code = main(["data", "prepare", "hymo_mixture", "--out", str(tmp_path / "out")])
    err = capsys.readouterr().err
    assert (code, err.count("\n")) == (1, 1)
    assert "source fineweb_edu (hf://HuggingFaceFW/fineweb-edu/sample-100BT/train) cannot be reached" in err
    fail_with(monkeypatch, ConnectionError("no route to host"))
    code = main(["data", "prepare", "hymo_mixture", "--out", str(tmp_path / "out")])
    err = capsys.readouterr().err
    assert (code, err.count("\n")) == (1, 1)
    assert "no route to host" in err
    assert "--local fineweb_edu=PATH" in err
    assert not (tmp_path / "out").exists()


def test_a_missing_field_or_package_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(hub, "newest_revision", lambda repository: "1")
    monkeypatch.setattr(hub, "open_stream", lambda feed, fields: [{"content": "x"}])
    with pytest.raises(UsageError, match=r"fineweb_edu.*no field 'text' among \['content'\]"):
        make_mixture_job(PRESET, tmp_path / "out", TOK)
    monkeypatch.undo()
    monkeypatch.setattr(hub, "newest_revision", lambda repository: "1")
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UsageError, match=r"hymo\[data\]"):
        make_mixture_job(PRESET, tmp_path / "out", TOK)


def test_skipping_gated_sources_moves_their_weight_and_says_so(tmp_path):
    names = [
        f"{name}={path}" for name, path in (item.split("=") for item in local_mixture(tmp_path, PRESET.sources, 4))
    ]
    given = [name for name in names if not name.startswith(("stack_python", "stack_java"))]
    manifest = prepare(PRESET, tmp_path / "out", local=given, skip_gated=True, train_tokens=10_000)
    assert manifest.settings["weights"]["fineweb_edu"] == pytest.approx(0.64 + 0.13)
    assert "stack_python" not in manifest.sources
    assert manifest.sources["stack_cpp"]["train"]["tokens"] >= 200
    assert (
        manifest.warnings[0]
        == "skipped gated sources stack_python, stack_java: their weight of 0.13 went to fineweb_edu"
    )
    with pytest.raises(UsageError, match="fallback"):
        make_mixture_job(PRESET.model_copy(update={"fallback": None}), tmp_path / "x", TOK, skip_gated=True)


def test_the_whole_mixture_has_each_source_at_its_weight(tmp_path):
    local = list(local_mixture(tmp_path / "in", PRESET.sources, 30))
    total = 100_000
    for workers, block in ((1, 1 << 20), (2, 3_000)):
        prepare(PRESET, tmp_path / f"out{workers}", workers, block, local=local, train_tokens=total)
    assert {k: v for k, v in files_of(tmp_path / "out1").items() if k.endswith(".hymo")} == {
        k: v for k, v in files_of(tmp_path / "out2").items() if k.endswith(".hymo")
    }
    manifest = prepare(PRESET, tmp_path / "out3", local=local, train_tokens=total)
    for name, source in PRESET.sources.items():
        tokens = manifest.sources[name]["train"]["tokens"]
        # A feed takes the document that reaches its budget; fixtures have documents below 900 tokens.
        assert 0 <= tokens - total * source.weight < 900 * len(source.configs or "x"), name
        assert ("validation" in manifest.sources[name]) == (name == "fineweb_edu")
    assert {source for _, source, _ in texts_of(tmp_path / "out1", "validation")} == {"fineweb_edu"}
    sizes = {split: info.tokens for split, info in manifest.splits.items()}
    assert sizes["train"] >= total
    assert sizes["validation"] == pytest.approx(0.015 / 0.97 * total, rel=0.6)
    assert sizes["test"] == pytest.approx(0.015 / 0.97 * total, rel=0.6)
    assert set(manifest.settings["licences"]) == set(PRESET.sources)
    assert manifest.quarantined == {}


def test_a_source_that_ends_is_made_up_for_by_the_others(tmp_path):
    mixture = mixture_of(tmp_path, {"aaa": 0.5, "bbb": 0.25, "ccc": 0.25}, {"aaa": 10, "bbb": 900, "ccc": 900})
    manifest = prepare(mixture, tmp_path / "out", train_tokens=12_000)
    tokens = {name: counts["train"]["tokens"] for name, counts in manifest.sources.items()}
    assert tokens == {"aaa": 120, "bbb": 5940, "ccc": 5940}
    assert manifest.warnings == [
        "aaa holds 120 of the 6,000 training tokens asked of it: the others make up for it by weight"
    ]


def test_when_making_up_exhausts_another_the_rest_goes_on(tmp_path):
    mixture = mixture_of(tmp_path, {"aaa": 0.5, "bbb": 0.25, "ccc": 0.25}, {"aaa": 10, "bbb": 300, "ccc": 900})
    manifest = prepare(mixture, tmp_path / "out", train_tokens=12_000)
    tokens = {name: counts["train"]["tokens"] for name, counts in manifest.sources.items()}
    assert tokens == {"aaa": 120, "bbb": 3600, "ccc": 8280}
    few = mixture_of(tmp_path, {"aaa": 0.5, "bbb": 0.25, "ccc": 0.25}, {"aaa": 10, "bbb": 20, "ccc": 30})
    manifest = prepare(few, tmp_path / "few", train_tokens=12_000)
    assert manifest.splits["train"].tokens == 60 * 12
    assert "11,280 training tokens fewer than the 12,000 asked for" in manifest.warnings[-1]


def test_a_source_that_ends_is_repeated_up_to_four_times(tmp_path):
    mixture = mixture_of(tmp_path, {"aaa": 0.25, "bbb": 0.75}, {"aaa": 30, "bbb": 900}, exhausted="repeat")
    manifest = prepare(mixture, tmp_path / "out", train_tokens=4_000)
    assert manifest.sources["aaa"]["train"]["tokens"] == 84 * 12  # 1,000 tokens: two whole passes, 24 documents more
    kept = [text for text, source, _ in texts_of(tmp_path / "out") if source == "aaa"]
    assert sorted(kept) == sorted([f"aaa{i:07d}" for i in range(30)] * 2 + [f"aaa{i:07d}" for i in range(24)])
    assert manifest.warnings == ["aaa holds 360 of the 1,000 training tokens asked of it: it is repeated, 3 passes"]
    places = [i for i, (text, _, _) in enumerate(texts_of(tmp_path / "out")) if text == "aaa0000003"]
    assert len(places) == 3
    assert max(places) - min(places) > 3
    manifest = prepare(mixture, tmp_path / "more", train_tokens=8_000)
    assert manifest.sources["aaa"]["train"]["tokens"] == 4 * 360
    assert manifest.sources["bbb"]["train"]["tokens"] == 547 * 12  # 8,000 - 1,440 = 6,560
    once = Mixture.model_validate({**mixture.model_dump(), "exhausted": "stop"})
    assert prepare(once, tmp_path / "once", train_tokens=8_000).splits["train"].tokens == 360 + 500 * 12


def test_duplicates_across_sources_are_dropped_and_made_up_for_by_reading_on(tmp_path):
    shared = [{"text": f"shared {i:04d}"} for i in range(300)]
    write_rows(tmp_path / "a.jsonl", shared)
    write_rows(tmp_path / "b.jsonl", [*shared, *({"text": f"own {i:07d}"} for i in range(400))])
    sources = {
        name: {"local": str(tmp_path / f"{name}.jsonl"), "weight": 0.5, "licence": "CC0-1.0"} for name in ("a", "b")
    }
    mixture = Mixture.model_validate({"sources": sources, "fractions": (1, 0, 0)})
    for workers, block in ((1, 200), (1, 1 << 20), (2, 500)):
        out = tmp_path / f"out{workers}-{block}"
        manifest = prepare(mixture, out, workers, block, train_tokens=5_600)
        tokens = {name: counts["train"]["tokens"] for name, counts in manifest.sources.items()}
        assert tokens == {"a": 216 * 13, "b": 216 * 13}
        assert manifest.duplicates == 216
        assert manifest.fingerprint == prepare(mixture, tmp_path / "again", train_tokens=5_600).fingerprint
        for path in (tmp_path / "again").rglob("*"):
            if path.is_file():
                path.unlink()


WRONG = [
    ("wieght: 1", "wieght", r"m\.yaml:4: unknown key 'sources.a.wieght' \(did you mean 'weight'\?\)"),
    ("weight: 0.5", "", r"weights of the sources sum to 0\.5, not to 1"),
    ("weight: heavy", "", r"m\.yaml:4: 'sources\.a\.weight': .*number.*'heavy'"),
    ("weight: 1\n    filters: {min_scor: 3}", "", r"m\.yaml:5: unknown key 'sources.a.filters.min_scor' \(did you"),
    ("weight: 1\n    filters: {code: {max_line: 3}}", "", r"filters\.code\.max_line'"),
    ("weight: 1\n    config: a\n    configs: {x: 1}", "", "both 'config' and 'configs'"),
    ("weight: 1\n    configs: {x: 0.5}", "", "sum to 0.5"),
]


@pytest.mark.parametrize(("line", "_", "pattern"), WRONG)
def test_a_wrong_mixture_is_refused_with_its_place(tmp_path, line, _, pattern):
    path = tmp_path / "m.yaml"
    path.write_text(f"sources:\n  a:\n    hub: x/y\n    {line}\n    licence: MIT\n")
    with pytest.raises(ConfigError, match=pattern):
        load_mixture(path)


def test_wrong_names_and_options(tmp_path, capsys):
    (tmp_path / "m.yaml").write_text(
        "validation: bb\nsources:\n  b: {local: b.jsonl, weight: 1, licence: MIT}\n", encoding="utf-8"
    )
    with pytest.raises(ConfigError, match="validation: no source 'bb'"):
        load_mixture(tmp_path / "m.yaml")
    (tmp_path / "n.yaml").write_text("sources:\n  b: {weight: 1, licence: MIT}\n")
    with pytest.raises(ConfigError, match="needs 'hub' or 'local'"):
        load_mixture(tmp_path / "n.yaml")
    with pytest.raises(UsageError, match="did you mean 'dclm'"):
        make_mixture_job(PRESET, tmp_path / "x", TOK, local=["dcml=a"])
    with pytest.raises(UsageError, match="NAME=PATH"):
        make_mixture_job(PRESET, tmp_path / "x", TOK, local=["dclm"])
    (tmp_path / "o.yaml").write_text("sources:\n  b: {local: b.jsonl, weight: 1, licence: MIT}\n")
    (tmp_path / "b.jsonl").write_text('{"text": "hello"}\n')
    out = str(tmp_path / "out")
    for words, says in (
        ([str(tmp_path / "o.yaml")], "--train-tokens"),
        ([str(tmp_path / "gone.yaml")], "no such file"),
        ([str(tmp_path / "o.yaml"), "--validation", "x.txt"], "its own validation"),
        ([str(tmp_path / "b.jsonl"), "--skip-gated"], "belong to a mixture"),
    ):
        assert main(["data", "prepare", *words, "--out", out]) == 2
        assert says in capsys.readouterr().err
    # `local` is relative to the mixture's file.
    assert main(["data", "prepare", str(tmp_path / "o.yaml"), "--out", out, "--train-tokens", "100"]) == 0
    assert "holds 7 of the 100" in capsys.readouterr().err
    (tmp_path / "b.jsonl").write_text("")
    with pytest.raises(DataError, match=r"source b: .*empty"):
        make_mixture_job(load_mixture(tmp_path / "o.yaml"), tmp_path / "x", TOK, train_tokens=10)


def test_sources_lists_them(capsys):
    assert main(["data", "sources"]) == 0
    out = capsys.readouterr().out
    for name, source in PRESET.sources.items():
        assert name in out
        assert source.licence in out
    assert "to confirm for stack_python" in out
    assert main(["data", "sources", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["sources"]) == 10


def test_filters_at_their_limits():
    code = CodeFilters()
    assert code.reason("x" * 1000 + "\n" + "y\n" * 20) == ""
    assert code.reason("x" * 1001 + "\n" + "y\n" * 20) == "long_line"
    assert code.reason(("z" * 100 + "\n") * 3) == ""
    assert code.reason(("z" * 101 + "\n") * 3) == "long_lines_on_average"
    assert code.reason("ab--____"[:8]) == ""
    assert code.reason("ab--_____") == "few_letters_or_digits"
    assert code.reason("a\n" * 5 + "# do not edit\n") == ""
    assert code.reason("a\n" * 4 + "# DO NOT EDIT\n") == "generated"
    assert code.reason("<!DOCTYPE html>\nwords") == "markup"
    markers = Filters(strip_markers=True)
    assert markers.apply({}, "<reponame>a/b<filename>c.py<gh_stars>3\nx = 1\n") == ("x = 1\n", "")
    assert markers.apply({}, "<filename>c.py") == ("", "short")
    assert markers.apply({}, "x <filename>") == ("x <filename>", "")
    score = Filters(min_score=3)
    assert [score.apply({"int_score": v}, "t")[1] for v in (3, 2, None, "4")] == [
        "",
        "low_score",
        "no_score",
        "no_score",
    ]
    assert score.apply({}, "t")[1] == "no_score"
    assert [Filters(min_characters=3).apply({}, t)[1] for t in ("ééé", "éé")] == ["", "short"]


@pytest.mark.parametrize(("workers", "block"), [(1, 300), (1, 4000), (2, 300)])
def test_a_source_without_end_is_read_as_far_as_needed(tmp_path, monkeypatch, workers, block):
    read = [0]

    def endless():
        for number in itertools.count():
            read[0] = max(read[0], number + 1)
            yield {"text": f"text {number // 3:07d}", "id": str(number)}  # each text three times

    monkeypatch.setattr(hub, "open_stream", lambda feed, fields: endless())
    monkeypatch.setattr(hub, "newest_revision", lambda repository: "1")
    source = PRESET.sources["dclm"].model_copy(update={"weight": 1.0, "id": "id"})
    mixture = Mixture(sources={"dclm": source}, fractions=(0.9, 0.05, 0.05), validation="dclm")
    manifest = prepare(mixture, tmp_path / "out", workers, block, train_tokens=3_000)
    train, seen, number = 0, set(), 0
    while train < 3_000:
        text = f"text {number:07d}"
        seen.add(text)
        train += 14 * (split_of(hashlib.sha256(text.encode()).digest(), mixture.fractions) == "train")
        number += 1
    texts = [text for split in ("train", "validation", "test") for text, _, _ in texts_of(tmp_path / "out", split)]
    assert sorted(texts) == sorted(seen)
    assert manifest.splits["train"].tokens == train
    assert manifest.duplicates == 2 * (number - 1)
    # What is needed, the block in hand, and blocks that wait for workers.
    assert read[0] <= 3 * number + (2 + 5 * workers) * block / 12
    assert manifest.warnings == []


@settings(max_examples=60, deadline=None)
@given(
    texts=st.lists(st.lists(st.text("abcd", min_size=1, max_size=3), min_size=1, max_size=25), min_size=1, max_size=4),
    shares=st.lists(st.integers(1, 9), min_size=4, max_size=4),
    total=st.integers(4, 500),
    exhausted=st.sampled_from(["stop", "reweight", "repeat"]),
    held_out=st.sampled_from([0.0, 0.2]),
)
@example(  # the first source takes what a repeated one had
    texts=[["b", "d", "ac", "bb", "a"], ["a"], ["a"], ["a"]],
    shares=[1, 1, 5, 6],
    total=46,
    exhausted="repeat",
    held_out=0.0,
)
def test_any_mixture_settles_whatever_is_read_ahead(tmp_path_factory, texts, shares, total, exhausted, held_out):
    folder = tmp_path_factory.mktemp("mix")
    weights = [share / sum(shares[: len(texts)]) for share in shares[: len(texts)]]
    sources = {}
    for number, (own, weight) in enumerate(zip(texts, weights, strict=True)):
        path = write_rows(folder / f"{number}.jsonl", [{"text": text} for text in own])
        sources[f"s{number}"] = {"local": str(path), "weight": weight, "licence": "CC0-1.0"}
    mixture = Mixture.model_validate(
        {"sources": sources, "exhausted": exhausted, "fractions": (1 - held_out, held_out / 2, held_out / 2)}
    )
    plans = []
    for block_bytes in (1, 40, 1 << 20):
        job = make_mixture_job(mixture, folder / f"{block_bytes}", TOK, train_tokens=total)
        job = dataclasses.replace(job, block_bytes=block_bytes)
        clear_output(job, False)
        with pytest.MonkeyPatch.context() as patch, Workers(job, TOK, 1) as pool:
            patch.setattr(os, "fsync", lambda _: None)  # thousands of tiny parts
            plans.append((job, settle(job, pool, read_all(job, pool))))
    shown = [(plan.sources, plan.duplicates, plan.warnings) for _, plan in plans]
    assert shown[0] == shown[1] == shown[2]
    job, plan = plans[0]
    budgets = [feed.train_tokens for feed in job.feeds]
    taken = {feed.name: plan.sources.get(feed.name, {}).get("train", {}).get("tokens", 0) for feed in job.feeds}
    seen: set[str] = set()
    everything = {}
    for feed, own in zip(job.feeds, (texts[int(feed.name[1:])] for feed in job.feeds), strict=True):
        fresh = [text for text in dict.fromkeys(own) if text not in seen]
        everything[feed.name] = sum(
            len(text) + 2
            for text in fresh
            if split_of(hashlib.sha256(text.encode()).digest(), mixture.fractions) == "train"
        )
        seen |= set(fresh)
    short = sum(taken.values()) < sum(budgets) - len(budgets)
    assert bool(plan.warnings) >= short
    for feed, budget in zip(job.feeds, budgets, strict=True):
        name = feed.name
        if exhausted == "stop":
            assert taken[name] <= budget + 4
        if short and exhausted != "stop" and len(texts) == 1:
            assert taken[name] == everything[name] * (4 if exhausted == "repeat" and everything[name] else 1)
        if short and exhausted == "reweight":  # nothing is left anywhere but what another source has
            assert taken[name] >= min(everything[name], budget)
