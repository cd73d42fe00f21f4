"""Takes the pictures of `docs/operations/console.md`.

python -m tests.console.screenshots docs/operations/images
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from millrace import Admin, Consumer, Producer
from millrace_server.testing import Broker
from tests.console.browser import browser_page
from tests.console.running_console import running_console

FILL_S = 24
RECORDS_OF_A_STEP = 40
PICTURES = {
    "console-cluster": ("", "Brokers in service", 900, False),
    "console-group": ("groups/billing", "Committed offsets", 900, True),
    "console-tail": ("topics/orders/tail", "Live", 900, False),
}


async def take(directory: Path) -> None:
    """Runs a broker, producer and group for a while, and takes all pictures."""
    async with Broker() as broker, running_console(broker.servers) as console:
        async with Admin(broker.servers) as admin:
            await admin.create_topic("orders", partitions=3)
        async with asyncio.TaskGroup() as tasks:
            running = [
                tasks.create_task(_produce(broker.servers)),
                tasks.create_task(_consume(broker.servers)),
            ]
            await asyncio.sleep(FILL_S)
            for name, (path, text, width, dark) in PICTURES.items():
                async with browser_page(width=width, dark=dark) as watched:
                    page = watched.page
                    await page.goto(console.login_url)
                    await page.goto(f"{console.origin}/#/{path}")
                    await page.get_by_text(text).first.wait_for()
                    await asyncio.sleep(3)
                    await page.screenshot(path=directory / f"{name}.png")
            for task in running:
                task.cancel()


async def _produce(servers: str) -> None:
    async with Producer(servers) as producer:
        number = 0
        while True:
            for _ in range(RECORDS_OF_A_STEP // (1 + number // RECORDS_OF_A_STEP % 5)):
                number += 1
                value = b'{"order": %d, "items": %d}' % (number, number % 5 + 1)
                await producer.send("orders", value, key=b"customer-%d" % (number % 50))
            await asyncio.sleep(0.5)


async def _consume(servers: str) -> None:
    async with Consumer(
        servers, "orders", group="billing", client_id="billing", auto_commit_interval_ms=1000
    ) as consumer:
        async for _ in consumer:
            await asyncio.sleep(0.03)


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    directory: Path = parser.parse_args().directory
    directory.mkdir(parents=True, exist_ok=True)
    asyncio.run(take(directory))


if __name__ == "__main__":
    main()
