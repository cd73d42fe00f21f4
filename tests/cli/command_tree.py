"""The commands of the command line, as typer has them. A command is a tuple of words: `("topic",
"create")`."""

from __future__ import annotations

from manual.commands import commands

_ALL = {tuple(each.command_path.split()[1:]): each.command for each in commands()}
GROUPS = {words: command for words, command in _ALL.items() if hasattr(command, "commands")}
COMMANDS = {words: command for words, command in _ALL.items() if words not in GROUPS}


def flags(words: tuple[str, ...]) -> frozenset[str]:
    """The flags of a command, `-h` and `--help` included."""
    own = {
        flag
        for parameter in _ALL[words].params
        for flag in (*parameter.opts, *parameter.secondary_opts)
        if flag.startswith("-")
    }
    return frozenset(own | {"-h", "--help"})
