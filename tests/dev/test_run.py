"""`make run`'s parts that can go wrong before a process starts."""

import base64
import stat

import pytest

from dev import run


def test_the_env_file_is_written_once_and_for_its_owner_alone(tmp_path):
    path = tmp_path / ".env"
    run.write_env_file(path)
    text = path.read_text()
    values = dict(
        line.split("=", 1) for line in text.splitlines() if not line.startswith("#")
    )
    assert len(values["SECRET_KEY"]) >= 50
    secret = values["CHRONO_WEBHOOK_SECRET"].removeprefix("whsec_")
    assert len(base64.b64decode(secret, validate=True)) == 32
    assert values["CHRONO_EGRESS_ALLOW"] == "127.0.0.0/8"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    run.write_env_file(path)
    assert path.read_text() == text


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgres://chrono:hush@127.0.0.1:1/none", "the server does not answer"),
        ("postgres://chrono:hush@127.0.0.1:port/none", "the server does not answer"),
        ("mysql://chrono:hush@127.0.0.1:1/none", "not a PostgreSQL address"),
    ],
)
def test_a_server_of_no_use_is_one_line_without_its_password(url, said):
    with pytest.raises(run.CannotRun, match=said) as caught:
        run.check_server(url, "the server")
    assert "\n" not in str(caught.value)
    assert "hush" not in str(caught.value)


def test_a_supported_server_is_taken_and_an_older_one_refused(dsn, monkeypatch):
    run.check_server(dsn, "the server")
    monkeypatch.setattr(run, "OLDEST", 99)
    with pytest.raises(run.CannotRun, match=r"is PostgreSQL \d\d: Chrono needs 99 to"):
        run.check_server(dsn, "the server")


def test_only_one_runs_in_a_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "LOCAL", tmp_path)
    second = run.only_one()
    with run.only_one(), pytest.raises(run.CannotRun, match="already runs"):
        second.__enter__()
    with run.only_one():
        assert (tmp_path / "run.lock").exists()


def test_the_demo_follows_the_receiver_s_port(tmp_path, monkeypatch):
    assert run.demo_for(run.RECEIVER_PORT) == run.ROOT / "examples" / "demo.yaml"
    monkeypatch.setattr(run, "LOCAL", tmp_path)
    text = run.demo_for(4321).read_text()
    assert text.count("127.0.0.1:4321/") == 3
    assert str(run.RECEIVER_PORT) not in text


def test_the_readme_shows_the_line_that_is_printed():
    line = run.exports_for(
        f"http://127.0.0.1:{run.WEB_PORT}",
        f"http://127.0.0.1:{run.RECEIVER_PORT}",
        "chr_live_…",
    )
    assert f"\n{line}\n" in (run.ROOT / "README.md").read_text()


def test_without_a_new_key_the_line_makes_one():
    line = run.exports_for("http://w", "http://r", None)
    assert 'CHRONO_KEY="$(' in line
    assert "manage.py chronokey issue first-look --scopes operate,write" in line
