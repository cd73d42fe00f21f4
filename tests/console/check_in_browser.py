"""The page in a real browser; skipped where there is none."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from millrace import Producer
from tests.console.browser import browser_page
from tests.hang_timeout import HANG_TIMEOUT_S

if TYPE_CHECKING:
    from millrace_server.testing import Broker
    from tests.console.running_console import RunningConsole

HANG_MS = HANG_TIMEOUT_S * 1000
FOCUSED_AFTER_A_READ = """() => new Promise((resolve) => {
  const link = document.querySelector("main a");
  link.focus();
  const observer = new MutationObserver(() => {
    if (link.isConnected) return;
    observer.disconnect();
    setTimeout(() => resolve(document.activeElement.textContent));
  });
  observer.observe(document.getElementById("main"), { childList: true, subtree: true });
})"""
"""One step: the page may be read anew between two."""
PAGES = {
    "": "Brokers in service",
    "topics": "Topics",
    "topics/clicks": "Partitions",
    "topics/clicks/tail": "The newest 300 records",
    "groups": "Groups",
    "groups/readers": "Committed offsets and lag",
    "brokers/0": "Settings in force",
}


@pytest.mark.parametrize(("width", "dark"), [(1200, False), (360, True)])
async def test_every_page_loads_from_its_origin_alone_and_has_no_serious_issue(
    console: RunningConsole, width: int, dark: bool
) -> None:
    async with browser_page(width=width, dark=dark) as watched:
        page = watched.page
        page.set_default_timeout(HANG_MS)
        await page.goto(console.login_url)
        for path, caption in PAGES.items():
            await page.goto(f"{console.origin}/#/{path}")
            await page.get_by_text(caption, exact=False).first.wait_for()
            issues = await watched.serious_issues()
            assert issues == [], path
            wide = "document.documentElement.scrollWidth <= window.innerWidth"
            assert await page.evaluate(wide), path
        assert [url for url in watched.requests if not url.startswith(console.origin)] == []
        assert watched.complaints == []
        await page.goto(f"{console.origin}/login")
        assert await watched.serious_issues() == []


async def test_the_tail_shows_markup_as_text_and_pauses(
    broker: Broker, console: RunningConsole
) -> None:
    async with browser_page() as watched, Producer(broker.servers) as producer:
        page = watched.page
        page.set_default_timeout(HANG_MS)
        await page.goto(console.login_url)
        await page.goto(f"{console.origin}/#/topics/clicks/tail")
        await page.get_by_text("Live: waiting").wait_for()
        attack = b"<img src=x onerror='document.title=1'><script>document.title=2</script>"
        headers = ((attack.decode(), attack),)
        await producer.send("clicks", attack, key=attack, headers=headers, partition=0)
        await page.get_by_role("button", name="Record 0:3").wait_for()
        assert await page.locator("main img, main script").count() == 0
        assert await page.title() == "Tail of clicks - millrace console"
        await page.get_by_role("button", name="Pause").click()
        await producer.send("clicks", b"later", partition=0)
        await page.get_by_text("1 waiting").wait_for()
        assert await page.get_by_role("button", name="Record 0:4").count() == 0
        await page.get_by_role("button", name="Resume").click()
        await page.get_by_role("button", name="Record 0:4").wait_for()
        await page.get_by_role("button", name="Record 0:3").click()
        dialog = page.get_by_role("dialog")
        await dialog.get_by_text("base_offset").first.wait_for()
        assert await dialog.locator("img, script").count() == 0
        assert watched.complaints == []


async def test_a_chart_of_lag_moves(broker: Broker, console: RunningConsole) -> None:
    async with browser_page() as watched, Producer(broker.servers) as producer:
        page = watched.page
        page.set_default_timeout(HANG_MS)
        await page.goto(console.login_url)
        await page.goto(f"{console.origin}/#/groups/readers")
        caption = page.locator("figure[data-series='lag readers'] figcaption")
        await caption.get_by_text("2 now").wait_for()
        await producer.send_many("clicks", [b"x"] * 5, partition=0)
        await caption.get_by_text("7 now").wait_for()
        path = page.locator("figure[data-series='lag readers'] path")
        drawn = await path.get_attribute("d")
        # Two heights: the line has risen.
        assert drawn is not None
        assert len({y for _, y in re.findall(r"([\d.]+) ([\d.]+)", drawn)}) == 2


async def test_offsets_are_reset_by_keyboard_and_a_topic_is_created(
    changing_console: RunningConsole,
) -> None:
    console = changing_console
    async with browser_page() as watched:
        page = watched.page
        page.set_default_timeout(HANG_MS)
        await page.goto(console.login_url)
        await page.goto(f"{console.origin}/#/groups/readers")
        await page.get_by_text("Committed offsets").first.wait_for()
        await page.get_by_role("button", name="Reset offsets").press("Enter")
        dialog = page.get_by_role("dialog")
        await dialog.get_by_label("Partition (empty: all)").fill("0")
        await dialog.get_by_label("To", exact=True).select_option("latest")
        assert await watched.serious_issues() == []
        submit = dialog.get_by_role("button", name="Reset")
        await submit.press("Enter")
        await dialog.get_by_text("Submit again").wait_for()
        await submit.press("Enter")
        await dialog.get_by_text("The offsets are reset.").wait_for()
        await page.keyboard.press("Escape")
        await page.locator("figcaption").get_by_text("0 now").wait_for()
        await page.get_by_role("link", name="Topics").press("Enter")
        await page.get_by_role("button", name="Create topic").press("Enter")
        await dialog.get_by_label("Name").fill("by-hand")
        await dialog.get_by_role("button", name="Create").press("Enter")
        await dialog.get_by_text("Created by-hand").wait_for()
        await page.keyboard.press("Escape")
        await page.get_by_role("link", name="by-hand").wait_for()


async def test_the_focus_stays_when_the_page_reads_anew(console: RunningConsole) -> None:
    async with browser_page() as watched:
        page = watched.page
        page.set_default_timeout(HANG_MS)
        await page.goto(console.login_url)
        await page.goto(f"{console.origin}/#/topics")
        await page.get_by_role("link", name="clicks").wait_for()
        assert await page.evaluate(FOCUSED_AFTER_A_READ) == "clicks"


async def test_the_skip_link_comes_first_and_leads_to_the_content(console: RunningConsole) -> None:
    async with browser_page() as watched:
        page = watched.page
        page.set_default_timeout(HANG_MS)
        await page.goto(console.login_url)
        await page.get_by_text("Brokers in service").wait_for()
        await page.keyboard.press("Tab")
        assert await page.evaluate("document.activeElement.textContent") == "Skip to content"
        await page.keyboard.press("Enter")
        assert await page.evaluate("document.activeElement.id") == "main"
        assert await page.evaluate("location.hash") in ("", "#/")
