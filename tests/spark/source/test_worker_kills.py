"""A Python worker is killed with -9 while it reads: the query fails with an error, and resumes exactly once."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from reknit.spark.data_source import ReknitDataSource
from reknit.spark.lake.lake import Lake
from reknit.spark.lake.spark_tables import read
from reknit.spark.source.stream_reader import ReknitStreamReader
from reknit.spark.stages.capture import into_table
from tests.spark.running_node import RunningNode, batches

pytestmark = [pytest.mark.spark, pytest.mark.real, pytest.mark.timeout(400)]


class Mortal(ReknitDataSource):
    """The source, in a worker that is killed in the middle of a partition, once for each missing file `doom`."""

    @classmethod
    def name(cls) -> str:
        return "mortal"

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__({name: value for name, value in options.items() if name != "doom"})
        self._doom = Path(options["doom"])

    def streamReader(self, schema: StructType) -> ReknitStreamReader:
        return MortalReader(super().streamReader(schema), self._doom)


class MortalReader(ReknitStreamReader):
    def __init__(self, reader: ReknitStreamReader, doom: Path) -> None:
        self.__dict__.update(reader.__dict__)
        self._doom = doom

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        for table in super().read(partition):
            yield table
            if not self._doom.exists():
                self._doom.touch()
                os.kill(os.getpid(), signal.SIGKILL)


def test_worker_killed_while_it_reads_leaves_every_batch_once(
    spark: SparkSession, node: RunningNode, tmp_path: Path
) -> None:
    spark.dataSource.register(Mortal)
    lake, checkpoint = Lake.create(tmp_path / "lake"), tmp_path / "checkpoint"

    def run() -> None:
        reader = spark.readStream.format("mortal").option("nodes", node.url).option("rows", "batches")
        rows = reader.option("doom", str(tmp_path / "doom")).option("partitionBytes", "4k").load()
        writer = rows.writeStream.foreachBatch(into_table(lake, "batches", checkpoint))
        query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        query.awaitTermination(120)

    node.keep(batches("a", 1, 2001))
    with pytest.raises(StreamingQueryException):
        run()
    assert (tmp_path / "doom").exists()
    node.keep(batches("a", 2001, 3001))
    run()
    run()
    found = sorted((row["first"], row["stop"]) for row in read(spark, lake, "batches").collect())
    assert found == [(first, first + 10) for first in range(1, 3001, 10)]
