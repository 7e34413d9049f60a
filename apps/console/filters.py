"""What a list can be narrowed by: words to choose from, and text to type."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast, override
from uuid import UUID

from django.contrib import admin
from django.contrib.admin.views.main import PAGE_VAR, ChangeList
from django.db.models import Model, QuerySet
from django.http import HttpRequest

from apps.tenants.models import Tenant
from chrono.rules.errors import ChronoError
from chrono.rules.instants import Millis, parse_instant


def words(
    name: str, label: str, known: Sequence[str], *, column: str | None = None
) -> type[admin.SimpleListFilter]:
    """Return a filter by one of these words, on a column or left to the list."""

    class Words(admin.SimpleListFilter):
        title = label
        parameter_name = name

        @override
        def lookups(self, request: Any, model_admin: Any) -> list[tuple[str, str]]:
            return [(word, word.replace("_", " ")) for word in known]

        @override
        def queryset(
            self, request: Any, queryset: QuerySet[Model]
        ) -> QuerySet[Model] | None:
            chosen = self.value()
            if column is None or not chosen:
                return None
            return queryset.filter(**{column: chosen})

        @property
        def errors(self) -> dict[str, str]:
            value = self.value()
            if value is None or value in known:
                return {}
            return {name: f"There is no {label} of this name to filter by."}

    return Words


class ByTenant(admin.SimpleListFilter):
    """Rows of one tenant; a list that cannot do without shows the first one's."""

    title = "tenant"
    parameter_name = "tenant"
    column = "tenant"

    @override
    def lookups(self, request: Any, model_admin: Any) -> list[tuple[str, str]]:
        rows = Tenant.objects.order_by("pk").values_list("pk", "name")[:200]
        return [(str(pk), name) for pk, name in rows]

    @override
    def queryset(self, request: Any, queryset: QuerySet[Model]) -> QuerySet[Model]:
        chosen = self.value()
        if not chosen or self.errors:
            return queryset
        return queryset.filter(**{self.column: int(chosen)})

    @property
    def errors(self) -> dict[str, str]:
        """What is wrong with what was asked for."""
        chosen = self.value()
        if chosen is None or (
            chosen.isascii() and chosen.isdigit() and len(chosen) <= 9
        ):
            return {}
        return {"tenant": "A tenant is chosen by its number."}


class OfOneTenant(ByTenant):
    """Without the choice of all."""

    @override
    def choices(self, changelist: ChangeList) -> Iterator[Any]:
        chosen = self.value() or str(self.lookup_choices[0][0])
        for value, name in self.lookup_choices:
            yield {
                "selected": str(value) == chosen,
                "query_string": changelist.get_query_string({"tenant": value}),
                "display": name,
            }


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """One thing to type: plain text, an id or an instant in UTC."""

    name: str
    label: str
    kind: str = "text"
    column: str | None = None
    """What it is compared with; None leaves it to the list."""
    shape: str = ""


class Inputs(admin.ListFilter):
    """Several things to type, sent with one button."""

    title = "fields"
    template = "console/inputs.html"
    inputs: ClassVar[tuple[Input, ...]] = ()

    def __init__(
        self, request: HttpRequest, params: dict[str, Any], model: Any, model_admin: Any
    ) -> None:
        super().__init__(request, cast(Any, params), model, model_admin)
        self.values: dict[str, Any] = {}
        self.errors: dict[str, str] = {}
        for one in self.inputs:
            text = str(params.pop(one.name, [""])[-1]).strip()
            if not text:
                continue
            self.used_parameters[one.name] = text
            try:
                self.values[one.name] = _value(one, text)
            except (ChronoError, ValueError) as error:
                self.errors[one.name] = f"{one.label}: {error}"

    @override
    def has_output(self) -> bool:
        return True

    @override
    def expected_parameters(self) -> list[str | None]:
        return [one.name for one in self.inputs]

    @override
    def queryset(
        self, request: HttpRequest, queryset: QuerySet[Any]
    ) -> QuerySet[Any] | None:
        for one in self.inputs:
            if one.column is not None and one.name in self.values:
                queryset = queryset.filter(**{one.column: self.values[one.name]})
        return queryset

    @override
    def choices(self, changelist: ChangeList) -> Iterator[Any]:
        names = {one.name for one in self.inputs}
        yield {
            "hidden": [
                (name, value)
                for name, value in changelist.params.items()
                if name not in names and name != PAGE_VAR
            ],
            "inputs": [
                {
                    "name": one.name,
                    "label": one.label,
                    "type": "datetime-local" if one.kind == "instant" else "text",
                    "value": self.used_parameters.get(one.name, ""),
                    "error": self.errors.get(one.name, ""),
                }
                for one in self.inputs
            ],
        }


def inputs(*several: Input) -> type[Inputs]:
    """Return the filter that takes these."""

    class These(Inputs):
        inputs = several

    return These


def _value(one: Input, text: str) -> Any:
    if one.kind == "uuid":
        return _uuid(text)
    if one.kind == "instant":
        return _instant(text)
    if len(text) > 200 or not text.isprintable():
        raise ValueError("at most 200 printable characters.")
    return text


def _uuid(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise ValueError("this is no id.") from None


def _instant(text: str) -> Millis:
    """Return what a browser's field for date and time means: UTC, unless it says."""
    naive = "Z" not in text and "+" not in text[10:] and "-" not in text[10:]
    return parse_instant(f"{text}Z" if naive else text)
