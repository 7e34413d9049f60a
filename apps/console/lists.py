"""Lists by key: a page is what follows a key, whatever came before is never read.

The admin's own list counts all rows and skips those of earlier pages. Here a page is
asked for by where the one before ended, and the address carries the ends of the pages
that led here, so that each can be gone back to and shows the same rows again.
"""

import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, override

import psycopg
from django import db
from django.contrib import admin
from django.contrib.admin.views.main import PAGE_VAR, ChangeList
from django.core.exceptions import ValidationError
from django.db.models import Model, QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.http import urlencode

from apps.console.filters import Fields
from apps.console.names import plural
from apps.console.who import now_of
from chrono.rules.instants import Millis

log = logging.getLogger("chrono.web")

PER_PAGE = 50
LONGEST_TRAIL = 30
"""How many pages back the address remembers; further back is the first page."""
_CURSOR = re.compile(r"[0-9A-Za-z.-]{1,80}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Some rows, and where the next page begins; None at the end."""

    rows: Sequence[Model]
    next: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trail:
    """Where the pages up to this one began; empty on the first."""

    cursors: tuple[str, ...]

    @classmethod
    def read(cls, text: str) -> "Trail":
        """Return the trail in an address; what is no trail is the first page."""
        cursors = tuple(text.split("~")) if text else ()
        if not all(_CURSOR.fullmatch(cursor) for cursor in cursors):
            return cls(cursors=())
        return cls(cursors=cursors[-LONGEST_TRAIL:])

    @property
    def last(self) -> str | None:
        """Where this page begins."""
        return self.cursors[-1] if self.cursors else None

    def on(self, cursor: str) -> str:
        """Return the text of the trail that goes on from a cursor."""
        return "~".join((*self.cursors, cursor)[-LONGEST_TRAIL:])

    def back(self) -> str | None:
        """Return the text of the trail one page back; None is the first page."""
        return "~".join(self.cursors[:-1]) or None


class Listing(ChangeList):
    """The admin's list, with pages by key and without any count."""

    model_admin: "KeysetAdmin"
    trouble: str = ""
    """Why there are no rows to be shown, where that is not for want of any."""
    now: Millis = 0
    newest: str | None = None
    previous: str | None = None
    following: str | None = None

    @override
    def get_results(self, request: HttpRequest) -> None:
        """Read one page; what goes wrong is said in place of its rows."""
        trail = Trail.read(request.GET.get(PAGE_VAR, ""))
        self.trouble = " ".join(self._errors())
        rows: Sequence[Model] = ()
        following = None
        if not self.trouble:
            try:
                self.now = now_of(request)
                page = self.model_admin.fetch(request, self, trail.last)
                rows, following = page.rows, page.next
            except (ValueError, ValidationError):
                self.trouble = "The address of this page is not one of ours."
            except (psycopg.OperationalError, db.OperationalError) as error:
                log.warning("no list: %s", " ".join(str(error).split())[:300])
                self.trouble = (
                    "The database took too long or did not answer. "
                    "Narrow the filter, or try again."
                )
        if trail.cursors:
            self.newest = self.get_query_string()
            self.previous = self.get_query_string({PAGE_VAR: trail.back()})
        if following is not None:
            self.following = self.get_query_string({PAGE_VAR: trail.on(following)})
        self.result_list = list(rows)
        # The templates compare these; that they are equal hides what counts.
        self.result_count = self.full_result_count = len(self.result_list)
        self.show_full_result_count = False
        self.show_admin_actions = bool(rows)
        self.can_show_all = self.multi_page = False

    def asked(self, name: str) -> Any:
        """Return the value that was asked for; None where nothing was."""
        for spec in self.filter_specs:
            if isinstance(spec, Fields) and name in spec.values:
                return spec.values[name]
        return None

    def _errors(self) -> Iterator[str]:
        for spec in self.filter_specs:
            if isinstance(spec, Fields):
                yield from spec.errors.values()


if TYPE_CHECKING:
    # Generic to the type checker alone.
    Base = admin.ModelAdmin[Any]
else:
    Base = admin.ModelAdmin


class KeysetAdmin(Base):
    """A list by key of rows that the admin shows and does not write."""

    change_list_template = "console/change_list.html"
    list_per_page = PER_PAGE
    show_facets = admin.ShowFacets.NEVER
    show_full_result_count = False
    sortable_by = ()
    actions: Sequence[Any] = ()
    newest_first = True
    addable = False
    """Whether the list leads to a page by which one more is made."""

    @override
    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return Listing

    @override
    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        named = {"title": plural(self.opts)}
        return super().changelist_view(request, {**named, **(extra_context or {})})

    @override
    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest) -> bool:
        """Tell whether a list may be asked for this: by the fields it shows alone.

        The admin's own rule takes any column and comparison, by which what is hidden
        could be guessed letter by letter; and what is misspelt would show everything.
        """
        return any(
            lookup == one.name
            for spec in self.get_list_filter(request)
            if isinstance(spec, type) and issubclass(spec, Fields)
            for one in spec.inputs
        )

    def fetch(self, request: HttpRequest, cl: Listing, after: str | None) -> Page:
        """Return the rows after a cursor, by primary key; each is told when it is read.

        Raises ValueError or ValidationError for a cursor that is none of this list.
        """
        key, size = self.opts.pk, self.list_per_page
        rows: QuerySet[Any] = cl.queryset
        if after is not None:
            beyond = "pk__lt" if self.newest_first else "pk__gt"
            rows = rows.filter(**{beyond: key.to_python(after)})
        found = list(rows.order_by("-pk" if self.newest_first else "pk")[: size + 1])
        for row in found:
            row.now = cl.now
        return Page(
            rows=found[:size], next=str(found[size - 1].pk) if found[size:] else None
        )

    @override
    def history_view(
        self,
        request: HttpRequest,
        object_id: str,
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Lead to the audit: what became of an object stands there, not in a log."""
        audit = reverse("admin:chrono_tenants_auditevent_changelist")
        return HttpResponseRedirect(f"{audit}?{urlencode({'object': object_id})}")

    @override
    def has_add_permission(self, request: HttpRequest) -> bool:
        return self.addable

    @override
    def has_change_permission(
        self, request: HttpRequest, obj: Model | None = None
    ) -> bool:
        return False

    @override
    def has_delete_permission(
        self, request: HttpRequest, obj: Model | None = None
    ) -> bool:
        return False


class PagelessAdmin(KeysetAdmin):
    """A list whose rows have no page of their own."""

    list_display_links = None

    @override
    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        if object_id is not None or not self.addable:
            raise Http404
        return self.new_view(request)

    def new_view(self, request: HttpRequest) -> HttpResponse:
        """Ask for one more and make it; for lists that are ``addable``."""
        raise NotImplementedError

    def find(self, request: HttpRequest, pk: int) -> Any:
        """Return the row with a key. Raises Http404."""
        found = self.get_queryset(request).filter(pk=pk).first()
        if found is None:
            raise Http404
        return found
