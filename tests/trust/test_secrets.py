"""Secrets come from files and the environment, and nothing shows them: no command, no error, no log."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from reknit.cli.main import app
from reknit.client.session import connect
from reknit.config import Config, SecuritySettings, TransportSettings, describe, load
from reknit.errors import InvalidConfig, Refused
from reknit.processes.process import NodeProcess, ending
from reknit.transport.tcp import parse_url
from reknit.trust.own_token import own_token
from tests.guarded_files import GuardedFiles
from tests.node.fabric import run

SECRET = "reknit_s3cretS3cret"


def test_no_command_shows_the_token() -> None:
    shell = CliRunner(env={"REKNIT_SECURITY__TOKEN": SECRET})
    for words in (["show"], ["show", "--json"], ["show", "--toml"], ["check"]):
        shown = shell.invoke(app, ["config", *words])
        assert shown.exit_code == 0
        assert SECRET not in shown.output
        assert "hidden" in shown.output


def test_neither_a_description_nor_an_error_shows_the_token(tmp_path: Path) -> None:
    config = Config(security=SecuritySettings(token=SECRET))
    assert SECRET not in f"{config!r} {config} {describe(config)} {config.to_toml()}"
    settings = tmp_path / "reknit.toml"
    settings.write_text(f'[security]\ntoken = ["{SECRET}"]\n')
    with pytest.raises(InvalidConfig) as refused:
        load(settings, environ={})
    assert SECRET not in repr(refused.value)
    assert refused.value.__cause__ is None


def test_no_flag_may_contain_the_token() -> None:
    refused = CliRunner().invoke(app, ["config", "check", "--set", f"security.token={SECRET}"])
    assert refused.exit_code == 1
    assert "REKNIT_SECURITY__TOKEN" in refused.stderr
    assert SECRET not in refused.output
    assert "--token " not in CliRunner().invoke(app, ["request", "--help"]).output


@pytest.mark.parametrize("url", [f"tcp://ann:{SECRET}@127.0.0.1:1", f"tls://{SECRET}@127.0.0.1:1"])
def test_no_address_may_contain_a_password(url: str) -> None:
    with pytest.raises(InvalidConfig, match="user or password") as refused:
        parse_url(url)
    assert SECRET not in str(refused.value)
    with pytest.raises(InvalidConfig, match="user or password") as refused:
        load(environ={}, overrides={"node.listen": url})
    assert SECRET not in str(refused.value)


def test_the_token_comes_from_a_file_that_nobody_else_can_read(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.touch(0o600)
    file.write_text(f"{SECRET}\n")
    settings = SecuritySettings(token_file=str(file))
    assert own_token(settings) == SECRET
    assert own_token(SecuritySettings(token="own", token_file=str(file))) == "own"
    file.write_text(f"{SECRET} {SECRET}\n")
    with pytest.raises(InvalidConfig, match="needs a token, and nothing else") as refused:
        own_token(settings)
    assert SECRET not in str(refused.value)
    file.chmod(0o644)
    with pytest.raises(InvalidConfig, match="chmod 600"):
        own_token(settings)


@pytest.mark.real
def test_neither_a_node_nor_a_command_logs_a_token(tmp_path: Path) -> None:
    files = GuardedFiles(tmp_path, {"ann": SECRET}, "ann publish **", "ann subscribe **")
    own = tmp_path / "token"
    own.touch(0o600)
    own.write_text(SECRET)
    node = NodeProcess(tmp_path, "--config", str(files.settings), "--log", "debug")

    async def test() -> None:
        quick = TransportSettings(reconnect_backoff_s_min=0.01)
        with pytest.raises(Refused) as refused:
            await connect(node.url, config=Config(transport=quick), token=f"{SECRET}wrong").open()
        assert SECRET not in str(refused.value)

    with ending(node):
        node.start()
        environ = {**os.environ, "REKNIT_SECURITY__TOKEN_FILE": str(own), "REKNIT_NODE": node.url}
        command = [sys.executable, "-m", "reknit", "pub", "plant/1", "x"]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120, check=True)
        run(test)
        node.stop()
        said = node.output() + done.stdout + done.stderr
        assert "not known here" in said
        assert SECRET not in said
