"""Adds, replaces and drops columns by plain selections.

A declarative pipeline describes its queries before their tables exist. Spark's own `withColumn` and `drop`, and a
schema that is written as text, need to see the table.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

__all__ = ["add", "replace", "struct", "without"]

_TYPES: Final[dict[str, DataType]] = {
    "string": StringType(),
    "binary": BinaryType(),
    "bigint": LongType(),
    "int": IntegerType(),
    "boolean": BooleanType(),
    "timestamp": TimestampType(),
    "array<bigint>": ArrayType(LongType()),
    "map<string,string>": MapType(StringType(), StringType()),
}


def add(frame: DataFrame, **columns: Column) -> DataFrame:
    """The frame with columns that it does not have yet."""
    return frame.select("*", *(column.alias(name) for name, column in columns.items()))


def replace(frame: DataFrame, **columns: Column) -> DataFrame:
    """The frame with other values in columns that it has."""
    return frame.select(_except(columns), *(column.alias(name) for name, column in columns.items()))


def without(frame: DataFrame, *names: str) -> DataFrame:
    """The frame without some of its columns."""
    return frame.select(_except(names))


def _except(names: dict[str, Column] | tuple[str, ...]) -> Column:
    return F.expr(f"* EXCEPT ({', '.join(f'`{name}`' for name in names)})")


def struct(ddl: str) -> StructType:
    """A schema from text, parsed without Spark.

    >>> struct("topic string, seqs array<bigint>").names
    ['topic', 'seqs']
    """
    pairs = (column.split(" ", 1) for column in ddl.split(", "))
    return StructType([StructField(name, _TYPES[kind]) for name, kind in pairs])
