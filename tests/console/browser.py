"""Chromium for tests of the page, where there is one.

The test extra `browser` has Playwright and axe-core; the browser is Debian's package `chromium`, or
that of `playwright install chromium`.
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.async_api import Page

SERIOUS = ("serious", "critical")


@dataclass
class Watched:
    """A page, and what it has asked for and complained of."""

    page: Page
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    async def serious_issues(self) -> list[str]:
        """What axe-core finds that keeps people from using the page."""
        from axe_playwright_python.async_playwright import Axe

        # The policy of the page takes no script that is added to it; the debugger may.
        results = await Axe().run(self.page)
        found: list[dict[str, Any]] = results.response["violations"]
        return [
            f"{each['id']}: {node['html']}"
            for each in found
            if each["impact"] in SERIOUS
            for node in each["nodes"]
        ]


@asynccontextmanager
async def browser_page(
    *, width: int = 1200, dark: bool = False, scale: float = 1
) -> AsyncIterator[Watched]:
    """A page in a browser of its own. Skips the test where there is no browser."""
    playwright = pytest.importorskip("playwright.async_api", reason="needs playwright")
    async with playwright.async_playwright() as started:
        program = shutil.which("chromium") or started.chromium.executable_path
        if not Path(program).exists():  # noqa: ASYNC240
            pytest.skip("needs chromium, as Debian's package or by `playwright install chromium`")
        browser = await started.chromium.launch(
            executable_path=program,
            # Tests run as root in containers, whose /dev/shm is small.
            args=["--no-sandbox", "--disable-dev-shm-usage"],
        )
        context = await browser.new_context(
            viewport={"width": width, "height": 800},
            color_scheme="dark" if dark else "light",
            device_scale_factor=scale,
        )
        watched = Watched(await context.new_page())
        watched.page.on("request", lambda request: watched.requests.append(request.url))
        watched.page.on("pageerror", lambda error: watched.complaints.append(str(error)))
        watched.page.on("console", lambda said: _note(watched, said))
        yield watched
        await browser.close()


def _note(watched: Watched, said: Any) -> None:
    if said.type in ("error", "warning"):
        watched.complaints.append(said.text)
