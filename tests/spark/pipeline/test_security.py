"""Source and pipeline at a node with TLS, tokens and rules."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable

from reknit.audit import read_entry
from reknit.spark.blocking_connection import BlockingConnection
from reknit.spark.data_source import ReknitDataSource
from reknit.spark.lake.lake import Lake
from reknit.spark.lake.spark_tables import read
from reknit.spark.pipeline.pipeline import Pipeline, PipelineSettings
from reknit.spark.source.options import SourceOptions
from reknit.spark.source.schema import full_schema
from reknit.spark.source.stream_reader import ReknitStreamReader
from reknit.spark.stages.settle.recover import NodeCache
from reknit.spark.stages.settle.run import settle_lake
from reknit.transport.tls import TlsFiles
from tests.spark.lakes import captured, check_events, events
from tests.spark.running_node import RunningNode, batches, keep, source
from tests.tokens import write_tokens

pytestmark = pytest.mark.timeout(400)

RULES = ["pump publish **", "tables subscribe **", "tables subscribe reknit/**"]
TOKENS = {"pump": "water", "tables": "oak"}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate for a node, with its key beside it."""
    folder = tmp_path_factory.mktemp("certificate")
    words = "req -x509 -newkey rsa:2048 -nodes -days 2 -keyout key.pem -out cert.pem -subj /CN=127.0.0.1"
    more = ["-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(
        ["openssl", *words.split(), *more], cwd=folder, check=True, capture_output=True, timeout=60
    )
    return folder / "cert.pem"


@pytest.fixture
def secure(make_node: Callable[..., RunningNode], certificate: Path, tmp_path: Path) -> RunningNode:
    tokens = write_tokens(tmp_path / "tokens", TOKENS)
    return make_node(
        listen="tls://127.0.0.1:0",
        transport__tls_cert_file=str(certificate),
        transport__tls_key_file=str(certificate.with_name("key.pem")),
        security__allow=RULES,
        security__tokens_file=tokens,
        security__audit="off",  # what these tests count is what they publish
    )


def reader(url: str, **options: str) -> ReknitStreamReader:
    read = SourceOptions.read({"nodes": url, "journal": "tcp", **options})
    return ReknitStreamReader(read, to_arrow_schema(full_schema("events"), timezone="UTC"))


def test_source_reads_over_tls_with_a_token(secure: RunningNode, certificate: Path) -> None:
    keep(secure.url, batches("a", 1, 101), token="water", tls=TlsFiles(str(certificate)))
    stream = reader(secure.url, token="oak", tlsCaFile=str(certificate))
    start = stream.initialOffset()
    end = stream.latestOffset(start, ReadAllAvailable())
    found = [
        table["seq"].to_pylist() for part in stream.partitions(start, end) for table in stream.read(part)
    ]
    stream.stop()
    assert [seq for seqs in found for seq in seqs] == list(range(1, 101))


def test_node_whose_certificate_is_not_trusted_is_away(secure: RunningNode) -> None:
    stream = reader(secure.url, token="oak")
    assert stream.initialOffset() == {}
    [why] = stream.nodes.away.values()
    assert "certificate" in why.lower()


@pytest.mark.spark
@pytest.mark.real
def test_gap_is_recovered_from_a_node_with_tls_and_rules(
    spark: SparkSession, secure: RunningNode, certificate: Path, tmp_path: Path
) -> None:
    lake = Lake.create(tmp_path / "lake")
    captured(spark, lake, 0, [*batches("c", 1, 11), *batches("c", 21, 31)])
    keep(secure.url, batches("c", 1, 21), token="water", tls=TlsFiles(str(certificate)))
    cache = NodeCache(secure.url, "oak", TlsFiles(str(certificate)))
    settle_lake(spark, lake, 0.0, [("node", cache)])
    cache.close()
    assert events(spark, lake) == {("plant/temp", source("c")): list(range(1, 31))}


@pytest.mark.spark
@pytest.mark.real
def test_pipeline_runs_at_a_node_with_tls_and_rules(
    spark: SparkSession, secure: RunningNode, certificate: Path, tmp_path: Path
) -> None:
    keep(secure.url, batches("a", 1, 101), token="water", tls=TlsFiles(str(certificate)))
    lake = Lake.create(tmp_path / "lake")
    spark.dataSource.register(ReknitDataSource)
    settings = PipelineSettings((secure.url,), is_once=True, token="oak", tls=TlsFiles(str(certificate)))
    figures = Pipeline(spark, lake, settings).run()
    assert (figures.settled, figures.lost) == (100, 0)
    check_events(lake, {"a": 100})
    with BlockingConnection(secure.url, "oak", tls=TlsFiles(str(certificate))) as link:
        [row] = link.ask("status")["pipelines"]
    assert (row["stage"], row["settled"], row["lag_bytes"]) == ("done", 100, 0)


@pytest.mark.spark
@pytest.mark.real
def test_the_audit_trail_is_in_the_table_of_events(
    spark: SparkSession, make_node: Callable[..., RunningNode], tmp_path: Path
) -> None:
    tokens = write_tokens(tmp_path / "tokens", {"pump": "water", "tables": "oak"})
    node = make_node(security__allow=RULES, security__tokens_file=tokens)
    keep(node.url, batches("a", 1, 11), token="water")
    lake = Lake.create(tmp_path / "lake")
    spark.dataSource.register(ReknitDataSource)
    Pipeline(spark, lake, PipelineSettings((node.url,), is_once=True, token="oak")).run()
    trail = read(spark, lake, "events").where("topic = 'reknit/audit'")
    who = "get_json_object(CAST(payload AS STRING), '$.who') AS who"
    assert "pump" in {row.who for row in trail.selectExpr(who).collect()}
    entries = [read_entry(bytes(row.payload)) for row in trail.select("payload").collect()]
    assert {(one.kind, one.code, one.node) for one in entries} == {("login", "OK", "line1")}
