"""The document in the repository is what the views say."""

import json

import pytest
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.validation import validate_schema

from apps.api import docs
from tests.architecture.sources import ROOT


@pytest.fixture(scope="module")
def generated():
    return json.loads(json.dumps(SchemaGenerator().get_schema(public=True)))


def test_the_document_is_up_to_date(generated):
    written = json.loads((ROOT / "docs" / "openapi.json").read_text())
    assert written == generated, "run `make openapi`"


def test_the_document_is_valid_and_of_version_3_1(generated):
    validate_schema(generated)
    assert generated["openapi"].startswith("3.1")


def test_each_operation_names_its_scope_and_its_refusals(generated):
    for methods in generated["paths"].values():
        for operation in methods.values():
            assert operation["security"][0]["key"]
            assert {"400", "401", "403", "503"} <= set(operation["responses"])
            assert operation["description"]


def test_what_a_quota_can_refuse_says_so(generated):
    assert {
        operation["operationId"]
        for methods in generated["paths"].values()
        for operation in methods.values()
        if "429" in operation["responses"]
    } == {
        "create_job",
        "change_job",
        "put_job",
        "restore_job",
        "run_job",
        "retry_run",
        "redrive_dead_letters",
    }


def test_the_document_is_served_as_it_is_written(nobody):
    answer = nobody.get("/api/v1/openapi.json")
    assert answer.content == docs.FILE.read_bytes()
