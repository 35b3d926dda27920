"""Fetch the console's JavaScript modules with npm, as `console/vendored.toml` lists them.

Without an argument the files are compared with the list. With `--write` they are written, and their hashes too. Names of
modules in imports become paths, as a browser needs them without an import map; nothing else is changed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import subprocess
import tarfile
import tempfile
import tomllib
from pathlib import Path
from typing import Any

ROOM = Path(__file__).parent.parent / "src" / "reknit" / "console"
VENDOR = ROOM / "static" / "vendor"
LIST = ROOM / "vendored.toml"
PATHS = {
    "preact": "./preact.js",
    "preact/hooks": "./preact-hooks.js",
    "@preact/signals-core": "./signals-core.js",
    "d3-quadtree": "./d3-quadtree.js",
    "d3-dispatch": "./d3-dispatch.js",
    "d3-timer": "./d3-timer.js",
}
IMPORT = re.compile(r'(from\s*)"([@a-z0-9/-]+)"')
HEAD = "# Files of others in static/vendor/: of which package, under which licence, with which hash. A test compares.\n"


def package_files(name: str, version: str, folder: Path) -> tuple[dict[str, bytes], str]:
    """The files of a package, and its integrity, which npm has checked."""
    command = ["npm", "pack", f"{name}@{version}", "--json", "--pack-destination", str(folder)]
    told = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)[0]
    with tarfile.open(folder / told["filename"]) as archive:
        members = {one.name.partition("/")[2]: one for one in archive.getmembers() if one.isfile()}
        return {path: archive.extractfile(one).read() for path, one in members.items()}, told["integrity"]  # type: ignore[union-attr]


def fitted(data: bytes) -> bytes:
    """A module whose imports are paths."""
    text = IMPORT.sub(lambda found: f'{found[1]}"{PATHS.get(found[2], found[2])}"', data.decode())
    return re.sub(r"\n//# sourceMappingURL=.*\s*$", "\n", text).encode()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    is_writing = parser.parse_args().write
    rows: list[dict[str, Any]] = tomllib.loads(LIST.read_text())["file"]
    lines = [HEAD]
    folder = Path(tempfile.mkdtemp())
    for row in rows:
        files, integrity = package_files(row["package"], row["version"], folder)
        data = files[row["path"]]
        data = fitted(data) if row["name"].endswith(".js") else data
        digest = hashlib.sha256(data).hexdigest()
        if is_writing:
            (VENDOR / row["name"]).write_bytes(data)
            row |= {"integrity": integrity, "sha256": digest}
        elif (integrity, digest) != (row["integrity"], row["sha256"]):
            raise SystemExit(f"{row['name']} is not what {row['package']} {row['version']} has")
        names = ("name", "package", "version", "path", "licence", "integrity", "sha256")
        lines += ["\n[[file]]\n", *(f"{name} = {json.dumps(row[name])}\n" for name in names)]
    if is_writing:
        LIST.write_text("".join(lines))


if __name__ == "__main__":
    main()
