"""Runs one round of one contestant: `python -m benchmarks.contestants NAME WORK`.

Prints its sample as JSON. `NAME` is a module and a function of this package, `WORK` is a `Work`
as JSON.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import sys
from dataclasses import asdict

import uvloop

from benchmarks.contestants.work import Work


def main(arguments: list[str]) -> None:
    name, text = arguments
    module, _, function = name.partition(".")
    contestant = getattr(importlib.import_module(f"benchmarks.contestants.{module}"), function)
    work = Work.from_json(text)
    if inspect.iscoroutinefunction(contestant):
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            sample = runner.run(contestant(work))
    else:
        sample = contestant(work)
    print(json.dumps(asdict(sample)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
