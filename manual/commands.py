"""The reference of the command line, from typer.

Owns the layout: a section for each command, with the texts and the defaults of `--help`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer.main

from manual.markdown import code, plain, table
from millrace_cli.exits import EXIT_CODES
from millrace_cli.main import app

_UNFILLED = "\b"
"""The first line of a paragraph whose lines are kept, as click has it."""


def command_sections() -> str:
    """Every command, each below the command that it belongs to."""
    return "\n".join(_section(context) for context in commands())


def exit_code_block() -> str:
    """The exit codes of all commands."""
    return _paragraph(EXIT_CODES)


def commands() -> Iterator[Any]:
    """The context of each command, `millrace` itself first.

    A context has the command, its parameters, and its name with that of its parents.
    """
    root = typer.main.get_command(app)
    return _with_children(root, root.context_class(root, info_name="millrace"))


def _with_children(command: Any, context: Any) -> Iterator[Any]:
    yield context
    if isinstance(command, typer.core.TyperGroup):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            yield from _with_children(child, type(context)(child, info_name=name, parent=context))


def _section(context: Any) -> str:
    command = context.command
    depth = context.command_path.count(" ")
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    parts = [f"{'#' * min(4, 2 + depth)} {context.command_path}", f"```text\n{usage}\n```"]
    parts += [_paragraph(text) for text in (command.help or "").split("\n\n")]
    for title, kind in (("argument", "argument"), ("flag", "option")):
        rows = [
            (code(record[0]), plain(record[1]))
            for each in command.get_params(context)
            if each.param_type_name == kind
            and (record := each.get_help_record(context)) is not None
        ]
        if rows:
            parts.append(table((title, "meaning"), rows))
    return "\n\n".join(parts) + "\n"


def _paragraph(text: str) -> str:
    """A paragraph of a help text."""
    if text.startswith(_UNFILLED):
        return f"```text\n{text.removeprefix(_UNFILLED).strip(chr(10))}\n```"
    return plain(text)
