"""The shell of a coordinator: it loads, appends, replays and replies."""
