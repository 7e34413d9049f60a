"""A newcomer's way through the admin, in a browser.

With CHRONO_IMAGES=docs/images the pictures of the documents are taken on the way.
"""

import os
from pathlib import Path

import pytest

from tests.browser.conftest import Site, chromium

pytestmark = [
    pytest.mark.skipif(chromium() is None, reason="there is no Chromium here"),
    pytest.mark.timeout(180),
]

LISTS = (
    "chrono_jobs/job",
    "chrono_console/run",
    "chrono_console/deadletter",
    "chrono_console/occurrence",
    "chrono_console/worker",
    "chrono_console/partition",
    "chrono_tenants/tenant",
    "chrono_tenants/apikey",
    "chrono_tenants/auditevent",
    "auth/user",
)
FORMS = (
    "chrono_jobs/job",
    "chrono_tenants/tenant",
    "chrono_tenants/apikey",
    "auth/user",
)


def picture(site: Site, name: str, *, height: int | None = None) -> None:
    """Take a picture for the documents, where somebody asked for them."""
    folder = os.environ.get("CHRONO_IMAGES")
    if not folder:
        return
    Path(folder).mkdir(parents=True, exist_ok=True)
    clip = None
    if height is not None:
        clip = {"x": 0, "y": 0, "width": 1280, "height": height}
    # The menu goes where the page is scrolled to.
    site.page.evaluate("scrollTo(0, 0)")
    path = Path(folder) / f"{name}.png"
    site.page.screenshot(path=path, full_page=clip is not None, clip=clip)


def test_from_a_schedule_to_a_run_s_page(site):
    page = site.page
    site.open("/admin/chrono_jobs/job/add/")
    page.fill("#id_key", "nightly-report")
    page.fill("#id_name", "Nightly report")
    page.fill("#id_cron", "30 2 * * *")
    page.fill("#id_timezone", "America/New_York")
    page.select_option("#id_target_kind", "task")
    page.fill("#id_task", "browser.greet")
    page.fill("#id_payload", '{"name": "New York", "api_key": "hush"}')

    page.click("#preview button")
    warning = page.locator(".chrono-warning", has_text="dst-gap")
    warning.wait_for()
    assert "does not exist (clocks go forward)" in warning.inner_text()
    assert "At 02:30 every day, America/New_York time." in page.inner_text("#preview")
    assert page.locator("#preview tbody tr").count() == 10
    assert page.input_value("#id_name") == "Nightly report"
    picture(site, "job-form", height=1480)

    page.click("button[name=_save]")
    page.wait_for_url("**/change/")
    assert "The job nightly-report is created." in page.inner_text(".messagelist")
    assert "hush" not in page.content()

    page.click("text=Run now…")
    page.fill("#id_reason", "to see it work")
    page.click("button:has-text('Run now')")
    page.wait_for_url("**/chrono_console/run/**/change/")
    for _ in range(100):
        if page.locator(".chrono-lead .chrono-good").count():
            break
        page.wait_for_timeout(100)
        page.reload()
    assert page.inner_text(".chrono-lead") == "success"
    assert '"greeted": "New York"' in page.inner_text("#content-main")
    assert page.locator("#content-main tbody tr").count() == 5
    assert "hush" not in page.content()
    picture(site, "run-page", height=960)

    site.open("/admin/chrono_jobs/job/")
    row = page.locator("tr", has_text="nightly-report")
    assert "success" in row.inner_text()
    picture(site, "job-list")
    assert site.said == []


def test_no_page_breaks_its_own_policy(site):
    page = site.page
    for name in LISTS:
        site.open(f"/admin/{name}/")
    for name in FORMS:
        site.open(f"/admin/{name}/add/")
    site.open("/admin/")
    site.open("/admin/password_change/")
    site.open("/admin/chrono_jobs/job/")
    page.click("text=Fetch the rates")
    for verb in ("Resume…", "Run now…", "Delete…"):
        page.click(f"text={verb}")
        page.click("text=Back")
    page.wait_for_url("**/change/")
    job = page.url
    page.click("text=Run a range of the past…")
    page.click("text=Look what would run")
    page.locator("#preview", has_text="What would run").wait_for()
    page.wait_for_load_state()
    assert page.locator("#preview tbody tr").count() == 21
    page.goto(job)
    page.click("button:has-text('Why?')")
    page.wait_for_url("**/why/?at=*")
    before = page.url
    page.click("dt:has-text('Occurrence after') + dd a")
    page.wait_for_url(lambda url: url != before)
    assert "The job is paused since" in page.inner_text(".chrono-sentence")
    page.goto(job)
    page.click("text=Revisions")
    page.wait_for_url("**/jobrevision/**")
    assert "target.kind: task" in page.inner_text("#result_list")
    page.goto(job)
    page.click("text=Runs >> nth=0")
    # The stock scripts: choosing all, the theme, the menu.
    site.open("/admin/chrono_jobs/job/")
    page.click("#action-toggle")
    assert "4 of 4 selected" in page.inner_text(".action-counter")
    page.select_option("select[name=action]", "pause_selected")
    page.click("button[name=index]")
    page.wait_for_load_state()
    assert page.locator("#content-main li").count() == 4
    page.click("button:has-text('Pause')")
    page.wait_for_url("**/chrono_jobs/job/")
    assert page.locator(".chrono-state", has_text="paused").count() == 4
    page.click(".theme-toggle >> nth=0")
    assert site.said == []


def test_a_broken_policy_would_be_seen(site):
    site.page.evaluate("document.body.setAttribute('style', 'color: red')")
    site.page.wait_for_function("window.broken === 1")
    assert any("style-src" in text for text in site.said)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_a_phone(site, scheme):
    page = site.page
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": 390, "height": 844})
    for path in ("", "chrono_jobs/job/", "chrono_jobs/job/add/", "chrono_console/run/"):
        site.open(f"/admin/{path}")
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= 390, (path, wide)
    site.open("/admin/chrono_jobs/job/")
    page.click("text=Fetch the rates")
    page.wait_for_url("**/change/")
    job = page.url.removesuffix("change/")
    for path in ("change/", "backfill/", "why/?at=2026-01-01T00:00"):
        page.goto(job + path)
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= 390, (path, wide)
    page.goto(f"{job}change/")
    page.click("text=Revisions")
    page.wait_for_url("**/jobrevision/**")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert site.said == []
