"""Rows of Parquet files as blocks. Imports pyarrow only when a file is read."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hymo.data.sources import Block, Fields, Item, Rejected, Row, require_pyarrow, size_of

_BATCH_ROWS = 1024


def read_parquet(path: Path, fields: Fields, size: int, further: Sequence[str] = ()) -> Iterator[Block]:
    """Yield the rows of one file in blocks of about `size` bytes of text, none across a row group.

    Only the columns of `fields` and `further` are read. Text is taken as bytes, so that a column of strings that are
    no UTF-8 costs the rows concerned and not the file. `position` of a block counts compressed bytes of row groups.
    """
    parquet = require_pyarrow(path)
    arrow: Any = importlib.import_module("pyarrow")
    row = 0
    items: list[Item] = []
    position = 0
    try:
        with path.open("rb") as raw, parquet.ParquetFile(raw) as file:
            names = file.schema_arrow.names
            if fields.text not in names:
                detail = f"no column '{fields.text}' among {sorted(names)[:10]}; {file.metadata.num_rows:,} rows lost"
                yield Block(str(path), [Rejected(str(path), 1, "missing_field", detail)], path.stat().st_size)
                return
            columns = [
                name for name in dict.fromkeys((fields.text, fields.source, fields.id, *further)) if name in names
            ]
            for group in range(file.num_row_groups):
                facts = file.metadata.row_group(group)
                position += sum(facts.column(i).total_compressed_size for i in range(facts.num_columns))
                held = 0
                for batch in file.iter_batches(_BATCH_ROWS, row_groups=[group], columns=columns):
                    table = {name: _plain(arrow, batch.column(name), name == fields.text) for name in columns}
                    for values in zip(*table.values(), strict=True):
                        row += 1
                        items.append(Row(row, dict(zip(table, values, strict=True))))
                        held += size_of(items[-1], fields.text)
                        if held >= size:
                            yield Block(str(path), items, position)
                            items, held = [], 0
                if items:
                    yield Block(str(path), items, position)
                    items = []
    # pyarrow's own errors are ValueError, OSError and others under one name; a file of pages may be damaged anywhere.
    except (arrow.ArrowException, OSError, ValueError) as error:
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        items.append(Rejected(str(path), row + 1, "unreadable", f"the rest of the file is lost: {text}"))
        yield Block(str(path), items, position)


def _plain(arrow: Any, column: Any, text: bool) -> list[Any]:
    """Return a column as Python values; text as bytes, which are checked where documents are made."""
    kind = column.type
    if arrow.types.is_dictionary(kind):
        column = column.dictionary_decode()
        kind = column.type
    if text and arrow.types.is_string(kind):
        column = column.cast(arrow.binary())
    elif text and arrow.types.is_large_string(kind):
        column = column.cast(arrow.large_binary())
    values: list[Any] = column.to_pylist()
    return values
