"""What a list can be narrowed by, as one row of fields over it.

The admin's own filters are lists of links: thirty reasons would be a page of them. All
that is asked for is in the address; what cannot be meant shows no rows and says why.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, cast, override
from uuid import UUID

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.db.models import QuerySet
from django.http import HttpRequest

from apps.jobs.definition import check_tag
from apps.tenants.models import DEFAULT_TENANT, Tenant
from chrono.rules.errors import BadValue, ChronoError
from chrono.rules.instants import Millis, parse_instant

LONGEST = 200
MOST_TENANTS = 500

type Choices = Sequence[tuple[str, str]]
type Kind = Literal["text", "uuid", "instant", "word", "number", "tag"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """One thing to ask for."""

    name: str
    label: str
    kind: Kind = "text"
    column: str | None = None
    """What it is compared with; None leaves it to the list."""
    choices: Callable[[], Choices] | None = None
    default: str | None = None
    """The choice that is meant where none is made; None stands for all."""


def words(name: str, label: str, known: Sequence[str], **more: Any) -> Input:
    """Return the choice of one of these words."""
    choices = [(word, word.replace("_", " ")) for word in known]
    return Input(name=name, label=label, kind="word", choices=lambda: choices, **more)


def _tenants() -> Choices:
    rows = Tenant.objects.order_by("pk").values_list("pk", "name")[:MOST_TENANTS]
    return [(str(pk), name) for pk, name in rows]


TENANT = Input(
    name="tenant", label="Tenant", kind="number", column="tenant", choices=_tenants
)
ONE_TENANT = Input(
    name="tenant",
    label="Tenant",
    kind="number",
    choices=_tenants,
    default=str(DEFAULT_TENANT),
)
"""For a list that cannot show all tenants at once."""


class Fields(admin.ListFilter):
    """A row of inputs, sent with one button."""

    title = "fields"
    template = "console/fields.html"
    inputs: ClassVar[tuple[Input, ...]] = ()

    def __init__(
        self, request: HttpRequest, params: dict[str, Any], model: Any, model_admin: Any
    ) -> None:
        super().__init__(request, cast(Any, params), model, model_admin)
        self.values: dict[str, Any] = {}
        """What was asked for, as values."""
        self.errors: dict[str, str] = {}
        for one in self.inputs:
            text = str(params.pop(one.name, [""])[-1]).strip()
            if text:
                self.used_parameters[one.name] = text
            elif one.default is not None:
                text = one.default
            if not text:
                continue
            try:
                self.values[one.name] = _value(one, text)
            except ChronoError as error:
                self.errors[one.name] = error.message

    @override
    def has_output(self) -> bool:
        return True

    @override
    def expected_parameters(self) -> list[str | None]:
        return [one.name for one in self.inputs]

    @override
    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        for one in self.inputs:
            if one.column is not None and one.name in self.values:
                queryset = queryset.filter(**{one.column: self.values[one.name]})
        return queryset

    @override
    def choices(self, changelist: ChangeList) -> Iterator[Any]:
        for one in self.inputs:
            chosen = self.used_parameters.get(one.name, one.default or "")
            yield {
                "name": one.name,
                "label": one.label,
                "type": "datetime-local" if one.kind == "instant" else "text",
                "value": chosen,
                "error": self.errors.get(one.name, ""),
                "options": [
                    (value, text, value == chosen) for value, text in one.choices()
                ]
                if one.choices is not None
                else None,
                "any": one.default is None,
            }


def fields(*several: Input) -> type[Fields]:
    """Return the filter with these inputs."""

    class These(Fields):
        inputs = several

    return These


def _value(one: Input, text: str) -> Any:
    if one.kind == "uuid":
        return _uuid(text)
    if one.kind == "instant":
        return read_instant(text)
    if one.kind == "tag":
        return check_tag(text)
    if one.kind == "number":
        if not (text.isascii() and text.isdigit() and len(text) <= 9):
            raise BadValue(f"{one.label}: this is no number.")
        return int(text)
    if one.choices is not None and text not in dict(one.choices()):
        raise BadValue(f"{one.label}: choose one that there is.")
    if len(text) > LONGEST or not text.isprintable():
        raise BadValue(f"{one.label}: at most {LONGEST} printable characters.")
    return text


def _uuid(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise BadValue("An id is a UUID.") from None


def read_instant(text: str) -> Millis:
    """Return what a browser's field for date and time means: UTC, unless it says.

    Raises BadInstant.
    """
    naive = "Z" not in text and "+" not in text[10:] and "-" not in text[10:]
    return parse_instant(f"{text}Z" if naive else text)
