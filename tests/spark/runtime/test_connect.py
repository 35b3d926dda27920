"""Source, stages and sink through Spark Connect: the client talks to a server, and has no Java of its own."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.spark.cluster import Program
from tests.spark.running_node import RunningNode, batches

pytest.importorskip("grpc", reason="needs reknit[pipelines]")

pytestmark = [pytest.mark.spark, pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(400)]

CLIENT = """
import json
import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from reknit.spark.stages.capture import batch_rows
from reknit.spark.stages.settle import settle

url, folder = sys.argv[1:]
spark = SparkSession.builder.remote("local[2]").getOrCreate()
found = {"client": type(spark).__module__}
source = spark.read.format("reknit").option("nodes", url)
found["read"] = source.load().where("topic = 'plant/temp'").count()
pieces = settle(batch_rows(source.option("rows", "batches").load())).where("what = 'settled'")
found["settled"] = [list(row) for row in pieces.groupBy("topic").agg(F.min("start"), F.max("stop")).collect()]

stream = spark.readStream.format("reknit").option("nodes", url).option("topics", "plant/temp").load()
loud = stream.select(F.lit("plant/loud").alias("topic"), F.upper(F.col("payload").cast("string")).alias("payload"))
writer = loud.select("topic", F.col("payload").cast("binary").alias("payload")).writeStream.format("reknit")
writer = writer.option("nodes", url).option("sinkId", "loud").option("checkpointLocation", f"{folder}/checkpoint")
query = writer.trigger(availableNow=True).start()
query.awaitTermination(120)
echo = spark.read.format("reknit").option("nodes", url).option("topics", "plant/loud").load()
found["written"] = sorted(row[0] for row in echo.select(F.col("payload").cast("string")).collect())
print("FOUND " + json.dumps(found))
spark.stop()
"""


def test_source_stages_and_sink_work_through_connect(tmp_path: Path, node: RunningNode) -> None:
    node.keep(batches("a", 1, 101))
    script = tmp_path / "client.py"
    script.write_text(CLIENT)
    env = {
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_SUBMIT_ARGS": "--driver-memory 1g pyspark-shell",
    }
    with Program([sys.executable, str(script), node.url, str(tmp_path)], tmp_path / "log", env) as client:
        assert client.process.wait(300) == 0, client.text()
        found = json.loads(client.wait_for("FOUND (.*)")[1])
    assert found["client"].startswith("pyspark.sql.connect")
    assert found["read"] == 100
    assert found["settled"] == [["plant/temp", 1, 101]]
    assert found["written"] == sorted(f"A-{seq}" for seq in range(1, 101))
