"""What the documents name exists, and nothing names the machine it was made on."""

import ast
import re

import pytest
from django.core.management import get_commands

from tests.architecture.sources import ROOT, files, name_of, tree, within

DOCUMENTS = [path for path in files(".md") if path.name != "CHANGELOG.md"]

# Written in parts, so that this file does not name them either.
FORBIDDEN = [
    "/".join(parts)
    for parts in [
        ("", "work", ""),
        ("", "root", ""),
        ("", "home", ""),
        ("", "Users", ""),
        ("", "simple", ""),
    ]
] + ["-".join(("index", "url"))]
TEXT = (
    ".py",
    ".md",
    ".sql",
    ".toml",
    ".txt",
    ".sh",
    ".yaml",
    ".yml",
    "Makefile",
    "run",
)


def makefile_targets() -> set[str]:
    text = (ROOT / "Makefile").read_text()
    return set(re.findall(r"^([a-z-]+):", text, flags=re.MULTILINE))


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_every_command_that_a_document_names_exists(path):
    code = "\n".join(re.findall(r"```.*?```|`[^`\n]+`", path.read_text(), re.DOTALL))
    targets = set(re.findall(r"\bmake ([a-z][a-z-]*)", code))
    assert targets <= makefile_targets()
    commands = set(re.findall(r"\bmanage\.py ([a-z]+)", code))
    assert commands <= set(get_commands())


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_every_file_that_a_document_links_to_exists(path):
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text())
    missing = [link for link in links if not (path.parent / link).exists()]
    assert not missing


def test_the_readme_lists_every_target():
    text = (ROOT / "README.md").read_text()
    unlisted = {name for name in makefile_targets() if f"`make {name}`" not in text}
    assert not unlisted


def names_in_code() -> set[str]:
    """Return the names of functions, modules and statements of the product."""
    names = {path.stem for path in [*within("apps", ".sql"), *within("apps", ".py")]}
    for path in [*within("apps", ".py"), *within("chrono", ".py")]:
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                names.add(node.name)
    return names


def test_every_verb_of_the_glossary_is_used_in_the_code():
    text = (ROOT / "docs" / "glossary.md").read_text()
    section = text.split("## Verbs")[1].split("\n## ")[0]
    verbs = re.findall(r"^\| \*\*([a-z ]+)\*\* \|", section, flags=re.MULTILINE)
    assert len(verbs) >= 8
    names = {name.lstrip("_") for name in names_in_code()}
    unused = []
    for verb in verbs:
        word = verb.replace(" ", "_")
        if not any(name == word or name.startswith(f"{word}_") for name in names):
            unused.append(verb)
    assert not unused


def test_nothing_names_the_machine_it_was_made_on():
    found = [
        f"{name_of(path)}: {word}"
        for path in files()
        if path.name.endswith(TEXT)
        for word in FORBIDDEN
        if word in path.read_text()
    ]
    assert not found
