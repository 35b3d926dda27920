"""Where a lake's files are: a folder, or a prefix in an object store (`s3://`, `gs://`, `abfs://`).

Credentials, region and endpoint of an object store come from the environment, as its own tools have them
(`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT_URL` …): the library for Delta Lake and pyarrow read the same.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as fs
import pyarrow.parquet as pq

from reknit.spark.lake.durable_files import sync_file, sync_folder, write_file

__all__ = ["Storage", "is_url", "open_dataset", "open_parquet", "read_columns"]


def is_url(root: str) -> bool:
    """Whether a lake is in an object store.

    >>> is_url("s3://bucket/lake"), is_url("lake"), is_url("file:///data/lake")
    (True, False, False)
    """
    return "://" in root and not root.startswith("file://")


class Storage:
    """Reads and writes files by their paths below a root.

    >>> Storage("file:///data/lake").url("events")
    '/data/lake/events'
    >>> Storage("s3://bucket/lake/").url("events")
    's3://bucket/lake/events'
    """

    def __init__(self, root: str | Path) -> None:
        text = str(root)
        self.is_local = not is_url(text)
        self.root = str(Path(text.removeprefix("file://")).absolute()) if self.is_local else text.rstrip("/")

    def url(self, path: str) -> str:
        """A file's full path, or its address."""
        return f"{self.root}/{path}"

    @property
    def filesystem(self) -> Any:
        """The file system for pyarrow."""
        if self.is_local:
            return fs.LocalFileSystem()
        parts = urlsplit(self.root)
        return _filesystem(f"{parts.scheme}://{parts.netloc}", os.environ.get("AWS_ENDPOINT_URL", ""))

    def key(self, path: str) -> str:
        """A file's path within the file system."""
        if self.is_local:
            return self.url(path)
        parts = urlsplit(self.root)
        container = parts.netloc.partition("@")[0]  # abfs://container@account.dfs.core.windows.net/lake
        return f"{container}{parts.path}/{path}"

    def write_table(self, path: str, rows: pa.Table, **options: Any) -> int:
        """Write a Parquet file, durably; returns its size."""
        if not self.is_local:
            pq.write_table(rows, self.key(path), filesystem=self.filesystem, compression="zstd", **options)
            return self.size(path)
        place = Path(self.url(path))
        is_new = not place.parent.exists()
        os.makedirs(place.parent, exist_ok=True)
        pq.write_table(rows, place, compression="zstd", **options)
        sync_file(place)
        sync_folder(place.parent)
        if is_new:
            sync_folder(place.parent.parent)
        return place.stat().st_size

    def parquet(self, path: str) -> pq.ParquetFile:
        """A Parquet file, to be read and closed."""
        if self.is_local:
            # Values that are as long as frames gain nothing from a buffer between them and the file.
            return pq.ParquetFile(self.url(path), memory_map=True)
        return pq.ParquetFile(self.key(path), filesystem=self.filesystem)

    def size(self, path: str) -> int:
        """A file's size; 0 if it does not exist."""
        return int(self.filesystem.get_file_info(self.key(path)).size or 0)

    def read(self, path: str) -> bytes:
        """A small file's content. Raises `FileNotFoundError`."""
        with self.filesystem.open_input_stream(self.key(path)) as stream:
            return bytes(stream.read())

    def write(self, path: str, data: bytes) -> None:
        """Write a small file: it is complete or absent."""
        if self.is_local:
            write_file(Path(self.url(path)), data)
            return
        with self.filesystem.open_output_stream(self.key(path)) as stream:
            stream.write(data)

    def delete(self, path: str) -> None:
        self.filesystem.delete_file(self.key(path))


def open_parquet(url: str) -> pq.ParquetFile:
    """A Parquet file by its full path or address, to be read and closed."""
    root, _, name = url.rpartition("/")
    return Storage(root).parquet(name)


def read_columns(url: str, columns: Sequence[str]) -> pa.Table:
    """Some columns of a Parquet file, by its full path or address."""
    with open_parquet(url) as file:
        return file.read(columns=list(columns))


def open_dataset(urls: Sequence[str]) -> ds.Dataset:
    """Parquet files of one lake as a dataset."""
    places = [Storage(url.rpartition("/")[0]) for url in urls]
    keys = [place.key(url.rpartition("/")[2]) for place, url in zip(places, urls, strict=True)]
    return ds.dataset(keys, filesystem=places[0].filesystem, format="parquet")


@cache
def _filesystem(root: str, endpoint_url: str) -> Any:
    parts = urlsplit(root)
    if parts.scheme not in ("s3", "s3a"):
        return fs.FileSystem.from_uri(root)[0]
    # Given its region, it does not ask the network for that of the bucket.
    endpoint = urlsplit(endpoint_url)
    where = {"endpoint_override": endpoint.netloc, "scheme": endpoint.scheme} if endpoint.netloc else {}
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
    return fs.S3FileSystem(region=region, **where)
