"""Sources of the Hugging Face Hub, streamed for preparation. Imports `datasets` only when one is read."""

from __future__ import annotations

import dataclasses
import importlib
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hymo.core.errors import DataError, HymoError, UsageError
from hymo.data.sources import Block, Fields, Item, Row, size_of
from hymo.data.streams import Feed

ATTEMPTS = 5
"""How often a broken connection is opened again before the preparation stops."""
WAIT_SECONDS = 2.0
"""Wait before the first new attempt; it doubles each time."""


@dataclass(frozen=True)
class HubFeed(Feed):
    """One configuration of a data set on the Hub: a single stream.

    Attributes:
        repository: the data set.
        config: its configuration, None for the only one.
        data_dir: folder of the repository, None for all.
        hub_split: its split.
        revision: commit.
        only_columns: read no columns but the needed ones.
        gated: whether a login is needed.
    """

    repository: str = ""
    config: str | None = None
    data_dir: str | None = None
    hub_split: str = "train"
    revision: str | None = None
    only_columns: bool = False
    gated: bool = False

    @property
    def streams(self) -> int:
        """One."""
        return 1

    def size(self, stream: int) -> int:
        """Nobody knows."""
        return 0

    def inputs(self) -> list[Any]:
        """Describe the input so that another one is noticed."""
        names = ("repository", "config", "data_dir", "hub_split", "revision", "only_columns")
        return [getattr(self, name) for name in names]

    def describe(self) -> list[str]:
        """Name the input, for the manifest."""
        return [self.address]

    @property
    def address(self) -> str:
        """One line that names the input."""
        place = "/".join(part for part in (self.repository, self.config, self.data_dir, self.hub_split) if part)
        return f"hf://{place}" + (f"@{self.revision}" if self.revision else "")

    def columns(self, fields: Fields) -> list[str]:
        """Return the columns that are needed."""
        filters = self.filters.columns() if self.filters else ()
        return list(dict.fromkeys((fields.text, fields.id, *filters)))

    def blocks(self, stream: int, fields: Fields, block_bytes: int) -> Iterator[Block]:
        """Read the rows in blocks of about `block_bytes` bytes of text, which depend on the rows alone.

        Raises:
            DataError: the source cannot be reached.
        """
        columns = self.columns(fields)
        items: list[Item] = []
        held = 0
        for number, record in enumerate(self._rows(fields), start=1):
            row = Row(number, {name: record[name] for name in columns if name in record})
            items.append(row)
            held += size_of(row, fields.text)
            if held >= block_bytes:
                yield Block(self.address, items, 0)
                items, held = [], 0
        if items:
            yield Block(self.address, items, 0)

    def _rows(self, fields: Fields) -> Iterator[dict[str, Any]]:
        """Yield all rows; a broken connection is opened again behind the last row that came."""
        done, attempt = 0, 0
        while True:
            try:
                stream = open_stream(self, fields)
                for record in stream.skip(done) if done else stream:
                    yield record
                    done += 1
                    attempt = 0
                return
            except HymoError:
                raise
            except Exception as error:  # the Hub's client, HTTP and file readers raise dozens of types
                attempt += 1
                if attempt >= ATTEMPTS or self._is_refusal(error):
                    raise self._unreachable(error) from error
                time.sleep(WAIT_SECONDS * 2 ** (attempt - 1))

    def probe(self, fields: Fields) -> HubFeed:
        """Read one row, so that a source that cannot be read stops the preparation early; pin the newest commit.

        Raises:
            DataError: it is gated or cannot be reached.
            UsageError: `datasets` is missing, or the source has no such field.
        """
        try:
            revision = self.revision or newest_revision(self.repository)
            pinned = dataclasses.replace(self, revision=revision)
            first = next(iter(open_stream(pinned, fields)), None)
        except HymoError:
            raise
        except Exception as error:  # as above
            raise self._unreachable(error) from error
        if first is None:
            raise DataError(f"source {self.name} ({self.address}): has no rows; check its configuration and split")
        if fields.text not in first:
            raise UsageError(
                f"source {self.name} ({self.address}): no field '{fields.text}' among {sorted(first)[:12]}: "
                "correct its 'text'"
            )
        return pinned

    def _is_refusal(self, error: Exception) -> bool:
        text = f"{type(error).__name__} {error}".lower()
        return re.search(r"gated|\b40[134]\b|not ?found|offline", text) is not None

    def _unreachable(self, error: Exception) -> DataError:
        where = f"source {self.name} ({self.address})"
        reason = str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
        local = f"--local {self.name}=PATH"
        if self.gated and "offline" not in str(error).lower() and not isinstance(error, ConnectionError):
            return DataError(
                f"{where} is gated ({reason}): accept its terms on the data set's page and log in with "
                f"`hf auth login`; or read a copy with {local}; or leave gated sources out with --skip-gated"
            )
        return DataError(
            f"{where} cannot be reached ({reason}): check the network and run the same command again, or read a copy "
            f"with {local}"
        )


def open_stream(feed: HubFeed, fields: Fields) -> Any:
    """Return the rows of a feed as `datasets` streams them.

    Raises:
        UsageError: the package is missing.
    """
    options: dict[str, Any] = {"columns": feed.columns(fields)} if feed.only_columns else {}
    if feed.data_dir:
        options["data_dir"] = feed.data_dir
    return _package(feed, "datasets").load_dataset(
        feed.repository, feed.config, split=feed.hub_split, revision=feed.revision, streaming=True, **options
    )


def newest_revision(repository: str) -> str:
    """Return the newest commit of a data set."""
    sha: str = importlib.import_module("huggingface_hub").HfApi().dataset_info(repository).sha
    return sha


def _package(feed: HubFeed, name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UsageError(
            f"source {feed.name}: streaming it needs the package {name}: pip install 'hymo[data]'; or read a copy "
            f"with --local {feed.name}=PATH"
        ) from error
