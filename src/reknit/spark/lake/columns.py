"""Columns added, replaced and left out by plain selections.

A declarative pipeline describes what is read before there is a table to look at; Spark's own `withColumn` and `drop`
want to look, and so does a schema that is written as text.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
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
    "timestamp": TimestampType(),
    "array<bigint>": ArrayType(LongType()),
    "map<string,string>": MapType(StringType(), StringType()),
}


def add(frame: DataFrame, **columns: Column) -> DataFrame:
    """With more columns, which it does not have yet."""
    return frame.select("*", *(column.alias(name) for name, column in columns.items()))


def replace(frame: DataFrame, **columns: Column) -> DataFrame:
    """With other values in columns that it has."""
    return frame.select(_except(columns), *(column.alias(name) for name, column in columns.items()))


def without(frame: DataFrame, *names: str) -> DataFrame:
    """Without columns that it has."""
    return frame.select(_except(names))


def _except(names: dict[str, Column] | tuple[str, ...]) -> Column:
    return F.expr(f"* EXCEPT ({', '.join(f'`{name}`' for name in names)})")


def struct(ddl: str) -> StructType:
    """Columns written as text, read without Spark.

    >>> struct("topic string, seqs array<bigint>").names
    ['topic', 'seqs']
    """
    pairs = (column.split(" ", 1) for column in ddl.split(", "))
    return StructType([StructField(name, _TYPES[kind]) for name, kind in pairs])
