"""How the whole suite is run."""

from __future__ import annotations

from hypothesis import settings

# The suite tries the same inputs every time, so that it fails for who has changed something.
# `pytest --hypothesis-profile explore` tries other ones each time. How long an input takes depends
# on what else the machine does.
settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("explore", derandomize=False, deadline=None)
settings.load_profile("same")
