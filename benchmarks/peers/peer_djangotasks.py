"""Django's own tasks, on their database backend. Best: a look each 0.05 s, not 1 s."""

import os
from urllib.parse import urlsplit

import django
from django.conf import settings

from benchmarks.peers.peer import BEST, DSN, Peer, handle, when

_url = urlsplit(DSN)
settings.configure(
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": _url.path[1:],
            "USER": _url.username,
            "HOST": _url.hostname,
            "PORT": _url.port,
            "CONN_MAX_AGE": None,
        }
    },
    INSTALLED_APPS=["django_tasks_db"],
    SECRET_KEY="only-for-benchmarks",
    TASKS={
        "default": {
            "BACKEND": "django_tasks_db.DatabaseBackend",
            "QUEUES": ["default"],
        }
    },
)
django.setup()

from django.core.management import call_command  # noqa: E402  (needs the settings)
from django.tasks import task  # noqa: E402

# One coroutine at a time enqueues: what Django fears cannot be.
os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"


@task
def noop(n: int) -> None:
    handle(n)


class PEER(Peer):
    async def setup(self) -> None:
        call_command("migrate", verbosity=0)

    async def one(self, n: int, at: float | None = None) -> None:
        (noop if at is None else noop.using(run_after=when(at))).enqueue(n)

    def work(self) -> None:
        call_command("db_worker", startup_delay=False, interval=0.05 if BEST else 1)
