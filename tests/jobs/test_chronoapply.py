"""`manage.py chronoapply`: a file says what there shall be."""

import io
import json

import pytest
from django.core.management import CommandError, call_command

from apps.jobs.listing import BadList, read_list
from tests.architecture.sources import ROOT

TWO = """
- key: minute
  cron: "* * * * *"
  target: {kind: task, name: tests.nothing}
- key: once
  run_at: 2100-01-01T00:00:00Z
  target: {kind: task, name: tests.nothing}
"""


@pytest.fixture
def chronoapply(ledger, tmp_path):
    """Apply a text as a file; return what was printed."""

    def run(text, *options):
        file = tmp_path / "jobs.yaml"
        file.write_text(text)
        out = io.StringIO()
        call_command("chronoapply", str(file), *options, stdout=out)
        return out.getvalue().strip()

    return run


def test_a_file_is_applied_and_then_does_nothing(ledger, chronoapply):
    assert chronoapply(TWO) == "created 2"
    assert chronoapply(TWO) == "unchanged 2"
    edited = TWO.replace('"* * * * *"', '"*/2 * * * *"\n  paused: true')
    assert chronoapply(edited) == "changed 1, unchanged 1, paused 1"
    resumed = edited.replace("paused: true", "paused: false")
    assert chronoapply(resumed) == "unchanged 1, resumed 1"
    gone = "- {key: minute, deleted: true}\n- {key: once, deleted: true}"
    assert chronoapply(gone) == "deleted 2"
    assert chronoapply(gone) == "unchanged 2"
    assert chronoapply("[]") == "nothing to do"


def test_tags_are_applied(ledger, chronoapply):
    tagged = TWO.replace("- key: once", "- key: once\n  tags: [b, a]")
    assert chronoapply(TWO) == "created 2"
    assert chronoapply(tagged) == "changed 1, unchanged 1"
    assert chronoapply(tagged.replace("[b, a]", "[a, b]")) == "unchanged 2"
    assert ledger.rows("SELECT tags FROM chrono_job ORDER BY key") == [
        ([],),
        (["a", "b"],),
    ]
    # What a file does not say of a job it takes away, as with every other field.
    assert chronoapply(TWO) == "changed 1, unchanged 1"


def test_a_dry_run_says_what_it_would_do_and_does_nothing(ledger, chronoapply):
    assert chronoapply(TWO, "--dry-run").splitlines() == [
        "minute: created",
        "once: created",
        "would be: created 2",
    ]
    assert ledger.rows("SELECT count(*) FROM chrono_job") == [(0,)]


def test_json_is_read_too(chronoapply):
    target = {"kind": "task", "name": "tests.nothing"}
    jobs = [{"key": "minute", "interval": "1m", "target": target, "payload": {"a": 1}}]
    assert chronoapply(json.dumps(jobs)) == "created 1"


def test_the_demo_is_applied_and_then_does_nothing(chronoapply):
    demo = (ROOT / "examples" / "demo.yaml").read_text()
    assert chronoapply(demo) == "created 5"
    assert chronoapply(demo) == "unchanged 5"


BAD = {
    "key: alone": "not a list of jobs",
    "- just text": "Entry 1: A job is an object",
    "- {key: a, interval: 1m}": r"Entry 1 \(a\), target: A target is an object",
    TWO + "- {key: b}": r"Entry 3 \(b\), cron: A job has exactly one of cron",
    "- {key: b, deleted: maybe}": r"Entry 1 \(b\), deleted: deleted is true or false",
    "- {deleted: true}": "Entry 1, key: key is text",
    TWO + "  tags: [2026]": r"Entry 2 \(once\), tags: .* put a number in quotes",
    TWO + "  tags:": r"Entry 2 \(once\), tags: tags is a list",
    "- key: a\n  cron: * * *": "neither YAML nor JSON: line 2",
    "- key: !!python/object/apply:os.getcwd []": "neither YAML nor JSON: line 1",
    "[" * 20_000: "nested too deep",
    TWO + TWO: "minute: the key is there twice",
    "- &a [*a]": "Entry 1: A job is an object",
    "\x00": "neither YAML nor JSON",
}


@pytest.mark.parametrize("text", BAD, ids=[str(n) for n in range(len(BAD))])
def test_a_bad_file_is_refused_in_one_line_and_nothing_is_applied(
    ledger, chronoapply, text
):
    with pytest.raises(CommandError, match=BAD[text]) as refused:
        chronoapply(text)
    assert "\n" not in str(refused.value)
    assert "jobs.yaml: " in str(refused.value)
    assert ledger.rows("SELECT count(*) FROM chrono_job") == [(0,)]


def test_a_file_that_cannot_be_read_is_one_line(database, tmp_path):
    with pytest.raises(CommandError, match="No such file or directory"):
        call_command("chronoapply", str(tmp_path / "none.yaml"))
    with pytest.raises(CommandError, match="Is a directory"):
        call_command("chronoapply", str(tmp_path))
    (tmp_path / "latin.yaml").write_bytes(b"- key: caf\xe9")
    with pytest.raises(CommandError, match="not UTF-8"):
        call_command("chronoapply", str(tmp_path / "latin.yaml"))


def test_a_database_that_does_not_answer_is_one_line(tmp_path):
    file = tmp_path / "jobs.yaml"
    file.write_text(TWO)
    with pytest.raises(CommandError, match="The database: ") as refused:
        call_command("chronoapply", str(file))
    assert "\n" not in str(refused.value)


def test_an_instant_in_yaml_stays_the_text_that_was_written():
    [job] = read_list(TWO)[1:]
    assert job.key == "once"
    with pytest.raises(BadList, match="run_at") as refused:
        read_list(TWO.replace("2100-01-01T00:00:00Z", "2100-01-01"))
    assert refused.value.field == "run_at"
