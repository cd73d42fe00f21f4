"""How the whole suite is run."""

from __future__ import annotations

from hypothesis import settings

# The suite tries the same inputs every time, so that it fails for who has changed something.
# `pytest --hypothesis-profile explore` tries other ones each time.
settings.register_profile("same", derandomize=True)
settings.register_profile("explore", derandomize=False)
settings.load_profile("same")
