"""The pages of the engine: who leads, and who works."""

from typing import Any, override

from django.contrib import admin
from django.http import HttpRequest
from django.utils.safestring import SafeString

from apps.console import shown, store
from apps.console.lists import Listing, Page, PagelessAdmin
from apps.runtime.django_session import raw_connection
from chrono.rules.instants import to_millis
from chrono.rules.lease import LEASE_TTL
from chrono.rules.partitions import PARTITIONS


class WorkerAdmin(PagelessAdmin):
    """Workers, the last started first."""

    list_display = ("who", "stands", "queue_names", "seats", "beat", "started", "ident")

    @admin.display(description="Host, process")
    def who(self, worker: Any) -> str:
        """Return where it runs."""
        return f"{worker.host} {worker.pid}"

    @admin.display(description="State")
    def stands(self, worker: Any) -> SafeString:
        """Return whether it is there."""
        if worker.stopped_at is not None:
            return shown.state("stopped")
        if worker.dead:
            return shown.state("dead")
        late = worker.now - to_millis(worker.beat_at) > LEASE_TTL
        return shown.state("unknown" if late else "active")

    @admin.display(description="Queues")
    def queue_names(self, worker: Any) -> str:
        """Return from which queues it claims."""
        return ", ".join(worker.queues)

    @admin.display(description="Seats")
    def seats(self, worker: Any) -> int:
        """Return how many runs it takes at once."""
        return int(worker.concurrency)

    @admin.display(description="Last beat")
    def beat(self, worker: Any) -> SafeString | str:
        """Return when it was last heard of."""
        return shown.instant(worker.beat_at, worker.now)

    @admin.display(description="Started")
    def started(self, worker: Any) -> SafeString | str:
        """Return when it was started."""
        return shown.instant(worker.started_at, worker.now)

    @admin.display(description="Id")
    def ident(self, worker: Any) -> SafeString:
        """Return the id that runs name."""
        return shown.code(worker.pk)


class PartitionAdmin(PagelessAdmin):
    """The 64 partitions and who leads each."""

    list_display = ("pk", "leads", "owner", "fence", "taken", "epoch")
    list_per_page = PARTITIONS
    newest_first = False

    @override
    def fetch(self, request: HttpRequest, cl: Listing, after: str | None) -> Page:
        page = super().fetch(request, cl, after)
        led = store.list_led(raw_connection())
        for row in page.rows:
            row.led = row.pk in led  # type: ignore[attr-defined]
        return page

    @admin.display(description="Led now")
    def leads(self, partition: Any) -> SafeString:
        """Return whether somebody holds its lock."""
        return shown.state("active" if partition.led else "dead")

    @admin.display(description="Taken")
    def taken(self, partition: Any) -> SafeString | str:
        """Return when the last leadership began."""
        return shown.instant(partition.taken_at, partition.now)
