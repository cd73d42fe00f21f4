"""Measures the live tail: the time from an ack to the record's row in a browser's page.

    python -m tests.console [--records 200] [--rate 20]

Prints the quantiles. Broker, console, producer and browser share the machine, and its clock.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from statistics import median, quantiles

from millrace import Admin, Producer
from millrace_server.testing import Broker
from tests.console.browser import browser_page
from tests.console.running_console import running_console

WATCH = """() => {
  window.shown = {};
  new MutationObserver((changes) => {
    for (const change of changes) for (const row of change.addedNodes) {
      if (row.dataset?.offset) {
        window.shown[row.dataset.offset] = performance.timeOrigin + performance.now();
      }
    }
  }).observe(document.querySelector("tbody"), { childList: true });
}"""


async def measure(records: int, rate: float) -> list[float]:
    """The time of each record in ms."""
    async with Broker() as broker, running_console(broker.servers) as console:
        async with Admin(broker.servers) as admin:
            await admin.create_topic("t")
        async with browser_page() as watched, Producer(broker.servers) as producer:
            page = watched.page
            await page.goto(console.login_url)
            await page.goto(f"{console.origin}/#/topics/t/tail")
            await page.get_by_text("Live: waiting").wait_for()
            await page.evaluate(WATCH)
            acked_ms = {}
            for number in range(records):
                receipt = await producer.send("t", b'{"number": %d}' % number)
                acked_ms[str(receipt.offset)] = time.time() * 1000
                await asyncio.sleep(1 / rate)
            last = page.get_by_role("button", name=f"Record 0:{records - 1}")
            await last.wait_for()
            shown_ms = await page.evaluate("window.shown")
    return [shown_ms[offset] - at_ms for offset, at_ms in acked_ms.items()]


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=200)
    parser.add_argument("--rate", type=float, default=20, help="records per second")
    flags = parser.parse_args()
    found = asyncio.run(measure(flags.records, flags.rate))
    print(
        f"{len(found)} records: median {median(found):.1f} ms, "
        f"p99 {quantiles(found, n=100)[98]:.1f} ms, at most {max(found):.1f} ms from ack to page"
    )


if __name__ == "__main__":
    main()
