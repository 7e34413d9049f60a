"""The harness of the peers: its plans are read, its runs are told, Chrono is in it."""

import pytest

from benchmarks.peers import plan
from benchmarks.peers.contenders import CONTENDERS
from benchmarks.peers.measures import MEASURES, smoke
from benchmarks.peers.plan import BadPlan, Line, Options, read_plan
from benchmarks.peers.report import medians, show
from benchmarks.peers.stage import Stage

PLANS = sorted(path.stem for path in plan.FOLDER.glob("*.txt"))


@pytest.mark.parametrize("name", PLANS)
def test_every_plan_can_be_read(name):
    lines = read_plan(name, measures=MEASURES)
    assert len(lines) == len(set(lines)) > 0


@pytest.mark.parametrize("name", ["quick", "smoke", "crash"])
def test_a_plan_has_every_peer(name):
    lines = read_plan(name, measures=MEASURES)
    assert {line.peer for line in lines} == set(CONTENDERS)


@pytest.mark.parametrize(
    "text",
    [
        "throughput chrono",
        "nothing chrono best",
        "throughput nobody best",
        "throughput chrono fast",
        "throughput chrono best n=many",
        "throughput chrono best nothing=1",
    ],
)
def test_a_line_of_nothing_known_is_refused(text, tmp_path, monkeypatch):
    monkeypatch.setattr(plan, "FOLDER", tmp_path)
    (tmp_path / "wrong.txt").write_text(f"# A remark.\n\n{text}\n")
    with pytest.raises(BadPlan, match=text.split()[-1]):
        read_plan("wrong", measures=MEASURES)


def test_a_plan_that_is_not_there_is_refused_with_those_that_are():
    with pytest.raises(BadPlan, match="quick"):
        read_plan("nothing", measures=MEASURES)


def test_a_row_has_the_medians_of_the_runs_that_did_not_fail():
    options = Options(workers=2, again=1)
    line = Line(
        text="", measure="throughput", peer="chrono", mode="best", options=options
    )
    speeds = [{"started_per_s": speed} for speed in (300.0, 100.0, None, 200.0)]
    rows = medians([(line, each) for each in [*speeds, {"error": "no word"}]])
    [row] = rows["throughput"]
    assert (row["runs"], row["started_per_s"]) == (4, 200.0)
    assert (row["lowest"], row["highest"]) == (100.0, 300.0)
    assert (row["workers"], row["work"]) == (2, "standing")
    assert "standing" in show(rows)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_chrono_does_new_jobs_and_standing_ones_by_its_own_processes(dsn, tmp_path):
    stage = Stage(peer="chrono", mode="best", url=dsn, folder=tmp_path)
    with stage.running():
        figures = smoke(stage, Options(workers=2))
        over = stage.wait_until_finished(limit=30)
    assert figures == {"done": True, "events": 60, "distinct": 60}
    assert over is not None
