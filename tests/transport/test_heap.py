"""Freed memory is used again."""

import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource
from reknit.transport.heap import keep_heap
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        [bytearray(240_000) for _ in range(8)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
given_back = faults()
keep_heap()
faults()
print(given_back, faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another allocator has thresholds of its own")
def test_memory_of_batches_that_are_gone_is_used_again() -> None:
    said = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, check=True, timeout=60)
    given_back, kept = map(int, said.stdout.split())
    assert kept < given_back / 10
