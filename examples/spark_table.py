"""A typed Spark table: JSON payloads of a topic as columns, read from the node's journal."""

import msgspec
from pyspark.sql import functions as f

import reknit
from reknit.spark.runtime.session import build_session


class Reading(msgspec.Struct):
    machine: str
    celsius: float


with reknit.connect_sync("tcp://127.0.0.1:7440") as session:
    for machine, celsius in (("a", 20.0), ("b", 70.5), ("a", 22.0)):
        session.publish("plant/temp", Reading(machine, celsius), codec=Reading)

spark = build_session("local[1]")
events = (
    spark.read.format("reknit")
    .option("nodes", "tcp://127.0.0.1:7440")
    .option("topics", "plant/**")
    .option("rows", "events")
    .load()
)
reading = f.from_json(f.col("payload").cast("string"), "machine string, celsius double")
table = events.select("topic", "seq", reading.alias("reading")).select("topic", "seq", "reading.*")
for row in table.groupBy("machine").agg(f.avg("celsius").alias("mean")).orderBy("machine").collect():
    print(row.machine, row.mean)
