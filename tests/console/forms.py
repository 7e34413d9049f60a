"""The fields of a page's forms, as a browser would send them back."""

from html.parser import HTMLParser
from typing import Any


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.fields: dict[str, Any] = {}
        self.area = ""
        self.select = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        name = given.get("name", "")
        if tag == "input" and name and given.get("type") not in ("submit", "button"):
            self._input(given, name)
        elif tag == "textarea":
            self.area, self.fields[name] = name, ""
        elif tag == "select":
            self.select = name
        elif (
            tag == "option"
            and self.select
            and ("selected" in given or self.select not in self.fields)
        ):
            self.fields[self.select] = given.get("value", "")

    def _input(self, given: dict[str, str], name: str) -> None:
        if given.get("type") in ("checkbox", "radio"):
            if "checked" in given:
                self.fields.setdefault(name, []).append(given.get("value", "on"))
        elif "disabled" not in given:
            self.fields[name] = given.get("value", "")

    def handle_endtag(self, tag: str) -> None:
        if tag == "textarea":
            # The first line break after the tag belongs to the tag.
            self.fields[self.area] = self.fields[self.area].removeprefix("\n")
            self.area = ""
        elif tag == "select":
            self.select = ""

    def handle_data(self, data: str) -> None:
        if self.area:
            self.fields[self.area] += data


def fields_of(page: str) -> dict[str, Any]:
    """Return every field of a page with its value; unticked boxes are left out."""
    reader = _Reader()
    reader.feed(page)
    return reader.fields
