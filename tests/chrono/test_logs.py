"""One line per record, whatever it holds."""

import json
import logging
import sys

from hypothesis import given
from hypothesis import strategies as st

from chrono.logs import LONGEST, JsonFormatter, TextFormatter


def record(message: str, **facts: object) -> logging.LogRecord:
    made = logging.LogRecord("apps.worker", 20, "f.py", 1, message, None, None)
    made.created = 1_795_964_531.204
    made.facts = facts
    return made


def test_text_has_instant_level_logger_message_and_facts():
    line = TextFormatter().format(record("claimed", runs=12, queue="two words"))
    assert line == (
        '2026-11-29T15:02:11.204Z INFO apps.worker claimed runs=12 queue="two words"'
    )


def test_json_has_the_same_and_facts_cannot_replace_it():
    entry = json.loads(JsonFormatter().format(record("claimed", runs=12, level="x")))
    assert entry == {
        "at": "2026-11-29T15:02:11.204Z",
        "level": "info",
        "logger": "apps.worker",
        "message": "claimed",
        "runs": 12,
    }


@given(st.text(st.characters(exclude_categories=[])), st.text())
def test_nothing_makes_a_second_line_or_moves_the_cursor(message, fact):
    for formatter in (TextFormatter(), JsonFormatter()):
        line = formatter.format(record(message.replace("%", ""), fact=fact))
        assert len(line.splitlines()) == 1
        assert not any(ord(sign) < 32 or 127 <= ord(sign) < 160 for sign in line)
        line.encode()


def test_of_a_message_of_megabytes_the_beginning_is_shown():
    message = "x" * (LONGEST + 1_000_000)
    shown = "x" * LONGEST + " [and 1000000 characters more]"
    assert TextFormatter().format(record(message)).endswith(f" apps.worker {shown}")
    assert json.loads(JsonFormatter().format(record(message)))["message"] == shown


def test_a_traceback_stays_on_the_line():
    made = record("failed")
    try:
        raise ValueError("two\nlines")
    except ValueError:
        made.exc_info = sys.exc_info()
    line = TextFormatter().format(made)
    assert "ValueError: two\\x0alines" in line
    assert "\n" not in line
    assert "Traceback" in json.loads(JsonFormatter().format(made))["trace"]
