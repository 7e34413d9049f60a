"""The demo shows what it says."""

import yaml

from apps.jobs.definition import parse_definition
from chrono.tasks import registry
from tests.architecture.sources import ROOT


def test_the_demo_has_its_five_jobs_and_each_is_valid():
    jobs = yaml.safe_load((ROOT / "examples" / "demo.yaml").read_text())
    parsed = [parse_definition(job) for job in jobs]
    assert [job.key for job in parsed] == [
        "demo-minute",
        "demo-heartbeat",
        "demo-fails-twice",
        "demo-new-york",
        "demo-paused",
    ]
    assert [job.key for job in parsed if job.paused] == ["demo-paused"]


def test_the_demo_s_tasks_are_registered():
    import examples.tasks

    jobs = yaml.safe_load((ROOT / "examples" / "demo.yaml").read_text())
    wanted = {job["target"]["name"] for job in jobs if job["target"]["kind"] == "task"}
    assert wanted <= set(registry.names())
    assert examples.tasks.heartbeat({"place": "test"}) == "alive"
