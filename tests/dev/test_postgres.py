"""The wrapper over initdb and pg_ctl."""

import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from dev import postgres


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that the server's own user can reach, as root too."""
    with tempfile.TemporaryDirectory(prefix="chrono-test-") as name:
        Path(name).chmod(0o755)
        yield Path(name) / "pg"


@pytest.fixture
def server(folder: Path) -> Iterator[postgres.Server]:
    server = postgres.Server(folder, settings={"fsync": "off"})
    yield server
    server.destroy()


def ask(server: postgres.Server, statement: str) -> object:
    with psycopg.connect(server.url(), autocommit=True) as conn:
        row = conn.execute(statement).fetchone()
        return row and row[0]


def test_data_outlives_stop_crash_and_a_second_start(server, folder):
    server.start()
    first = server.url()
    with psycopg.connect(first, autocommit=True) as conn:
        conn.execute("CREATE TABLE kept AS SELECT 42 AS n")
    server.start()
    assert server.url() == first
    server.kill()
    assert server.pid is None
    server.start()
    assert ask(server, "SELECT n FROM kept") == 42
    server.stop()
    assert server.pid is None
    server.stop()
    other = postgres.Server(folder, settings={"fsync": "off"})
    other.start()
    assert ask(other, "SELECT n FROM kept") == 42
    assert other.url() == first


def test_a_port_that_was_taken_meanwhile_is_left_to_its_owner(server):
    server.start()
    server.stop()
    with socket.socket() as owner:
        owner.bind(("127.0.0.1", server.port))
        owner.listen()
        server.start()
        assert server.port != owner.getsockname()[1]
        assert ask(server, "SHOW port") == str(server.port)


def test_a_wanted_port_that_is_taken_is_one_clear_line(folder):
    with socket.socket() as owner:
        owner.bind(("127.0.0.1", 0))
        owner.listen()
        port = owner.getsockname()[1]
        server = postgres.Server(folder, port=port, settings={"fsync": "off"})
        with pytest.raises(postgres.PostgresError, match=f"port {port} is taken"):
            server.start()
        server.destroy()


def test_the_server_keeps_to_this_machine_utc_and_utf8(server):
    server.settings["work_mem"] = "5MB"
    server.start()
    assert ask(server, "SHOW listen_addresses") == "127.0.0.1"
    assert ask(server, "SHOW timezone") == "UTC"
    assert ask(server, "SHOW server_encoding") == "UTF8"
    assert ask(server, "SHOW data_checksums") == "on"
    assert ask(server, "SHOW work_mem") == "5MB"


def test_a_setting_that_the_server_refuses_is_told_by_its_own_words(folder):
    server = postgres.Server(folder, settings={"fsync": "off", "port_of_call": "x"})
    with pytest.raises(postgres.PostgresError, match="port_of_call"):
        server.start()
    server.destroy()


def test_a_folder_of_another_version_is_refused(folder):
    server = postgres.Server(folder, settings={"fsync": "off"})
    server.create()
    (server.data / "PG_VERSION").write_text("14\n")
    with pytest.raises(postgres.PostgresError, match="made by PostgreSQL 14"):
        server.start()
    server.destroy()


def test_an_unknown_version_is_refused():
    with pytest.raises(postgres.PostgresError, match="PG=9 is none of 15, 16"):
        postgres.binaries("9")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs it as somebody else")
def test_as_root_an_unreachable_folder_notes_where_its_data_went(tmp_path, capsys):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    server = postgres.Server(closed / "pg", settings={"fsync": "off"})
    assert server.folder != server.wanted
    assert f"the data goes to {server.folder}" in capsys.readouterr().err
    server.start()
    assert ask(server, "SELECT 1") == 1
    again = postgres.Server(closed / "pg")
    assert again.folder == server.folder
    assert again.url() == server.url()
    again.destroy()
    assert not server.folder.exists()
    assert not server.wanted.exists()
