from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from pyspark.sql import SparkSession

from reknit.spark.runtime.session import SETTINGS, build_session

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


def test_the_session_has_our_settings(spark: SparkSession) -> None:
    assert {name: spark.conf.get(name) for name in SETTINGS} == dict(SETTINGS)
    assert spark.conf.get("spark.driver.host") == "127.0.0.1"
    assert "JAVA_HOME" in os.environ


def test_java_logs_as_our_file_says(spark: SparkSession) -> None:
    options = spark.sparkContext.getConf().get("spark.driver.extraJavaOptions") or ""
    [url] = [
        one.partition("=")[2] for one in options.split() if one.startswith("-Dlog4j2.configurationFile=")
    ]
    assert "logger.gateway.level" in Path(unquote(urlsplit(url).path)).read_text()


def test_a_session_that_is_there_is_used(spark: SparkSession) -> None:
    assert build_session("local[2]") is spark


def test_the_source_is_found_by_its_name(spark: SparkSession) -> None:
    schema = (
        spark.read.format("reknit")
        .option("nodes", "tcp://127.0.0.1:1")
        .option("rows", "batches")
        .load()
        .schema
    )
    assert schema.names[:3] == ["node", "position", "topic"]
