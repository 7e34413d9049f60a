"""Text that others stored: shown as text, whatever it is made of."""

import re
from html.parser import HTMLParser

import pytest
from django.urls import reverse
from psycopg.types.json import Jsonb

from apps.jobs import commands
from apps.tenants import keys
from tests.console.conftest import ACTOR
from tests.console.test_pages import addresses

MARK = "zzq"
CORPUS = [
    "<script>zzq(1)</script>",
    '"><img src=x onerror=zzq(1)>',
    "'><svg/onload=zzq(1)>",
    "</textarea><script>zzq(1)</script>",
    "</pre></code></td><iframe srcdoc=zzq></iframe>",
    "javascript:zzq(1)",
    "{{ zzq }}{% zzq %}",
    "<!-- zzq --><a href='javascript:zzq(1)'>x</a>",
    "&lt;script&gt;zzq(1)&lt;/script&gt;",
    "<style>zzq{}</style><link rel=stylesheet href=//zzq>",
    '" autofocus onfocus=zzq(1) x="',
    "<base href=//zzq><meta http-equiv=refresh content=0;url=//zzq>",
    "\u202ezzq\u2066 <math><mi xlink:href='data:x,zzq'>",
    "=cmd|'/c zzq'!A1",
]


class _Reader(HTMLParser):
    """Notes where the mark is more than text."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=False)
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            # What is typed, said or led to is no script, unless an address is one.
            harmless = name in {"value", "title", "aria-label"} or (
                name == "href"
                and not re.match(r"(?i)\s*(javascript|data|vbscript):", value or "")
            )
            if MARK in name or (MARK in (value or "") and not harmless):
                self.found.append(f"<{tag} {name}={value}>")
            if name.startswith("on") or name in {"srcdoc", "style"}:
                self.found.append(f"<{tag} {name}={value}>")
        if MARK in tag or tag in {"iframe", "base", "math", "object", "embed"}:
            self.found.append(f"<{tag}>")
        self.inside = tag

    def handle_data(self, data: str) -> None:
        if MARK in data and getattr(self, "inside", "") in {"script", "style"}:
            self.found.append(data)

    def handle_endtag(self, tag: str) -> None:
        self.inside = ""

    def handle_comment(self, data: str) -> None:
        if MARK in data:
            self.found.append(f"<!--{data}-->")


def alive(page: str) -> list[str]:
    reader = _Reader()
    reader.feed(page)
    return reader.found


@pytest.mark.parametrize(
    "planted",
    [
        "<script>zzq(1)</script>",
        "<p onclick='zzq(1)'>",
        "<a href='javascript:zzq(1)'>",
        "<img src=zzq>",
        "<!-- zzq -->",
        "<iframe srcdoc=x>",
    ],
)
def test_the_reader_sees_what_is_alive(planted):
    assert alive(planted)


@pytest.mark.parametrize("fine", ["&lt;script&gt;zzq", "<p>zzq</p>", "<p title=zzq>"])
def test_the_reader_lets_text_pass(fine):
    assert not alive(fine)


def plant(conn, make_job, number, text):
    """Store a text wherever one can be; return the pages of what it is in."""
    seen = make_job(
        key=f"{number}{text}", name=text, payload={text: [text], "deep": {"a": text}}
    )
    seen.runs(1, state=3, reason=17)
    seen.failed(0, f"{text}\n{text}")
    conn.execute(
        "UPDATE chrono_run SET result = %s, queue = %s WHERE id = %s",
        [Jsonb({text: text}), text, seen.run()],
    )
    conn.execute(
        "UPDATE chrono_dead_letter SET payload = %s WHERE run_id = %s",
        [Jsonb({text: text}), seen.run()],
    )
    commands.pause_job(seen.job, note=text, actor=ACTOR, reason=text)
    conn.execute(
        """
        INSERT INTO chrono_worker (id, host, pid, concurrency, queues)
        VALUES (gen_random_uuid(), %s, 1, 1, ARRAY[%s])
        """,
        [text, text],
    )
    conn.execute("UPDATE chrono_partition SET owner = %s WHERE id = %s", [text, number])
    printable = "".join(letter for letter in text if letter.isprintable())
    made = keys.issue(
        tenant=1, name=printable, scopes=["read"], actor=ACTOR, reason=text
    )
    pages = addresses(seen)
    pages["key"] = reverse("admin:chrono_tenants_apikey_change", args=[made.key.pk])
    pages["rotate"] = reverse("admin:chrono_tenants_apikey_rotate", args=[made.key.pk])
    rows = conn.execute(
        "SELECT id FROM chrono_audit_event WHERE object_id = ANY(%s)",
        [[str(seen.job), made.key.pk]],
    )
    for number, (event,) in enumerate(rows.fetchall()):
        name = "admin:chrono_tenants_auditevent_change"
        pages[f"event {number}"] = reverse(name, args=[event])
    return pages


def test_no_stored_text_is_more_than_text(client, conn, make_job):
    pages = {}
    for number, text in enumerate(CORPUS):
        for name, address in plant(conn, make_job, number, text).items():
            pages.setdefault(address, (name, text))
    shown = 0
    for address, (name, text) in pages.items():
        answer = client.get(address)
        assert answer.status_code == 200, (name, text)
        page = answer.content.decode()
        shown += MARK in page
        assert not alive(page), (name, text)
    assert shown >= 15 * len(CORPUS)


def test_what_is_asked_for_is_text_too(client, make_job):
    make_job()
    asked = {
        "chrono_jobs_job": ("q", "queue", "state", "tag", "p"),
        "chrono_console_run": ("queue", "since", "job", "tenant", "p"),
        "chrono_tenants_auditevent": ("actor", "object", "of", "p"),
        "auth_user": ("q", "p", "unknown"),
    }
    for text in CORPUS:
        for name, fields in asked.items():
            for field in fields:
                address = reverse(f"admin:{name}_changelist")
                answer = client.get(address, {field: text})
                wanted = 400 if field == "unknown" else 200
                assert answer.status_code == wanted, (name, field, text)
                assert not alive(answer.content.decode()), (name, field, text)
