"""Commands of the shell whose wrong calls end in one line: what was given, what was expected, and 2 as exit status.

Numbers are read as settings read them, and what an option takes once is taken once.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, get_args

import typer
from typer import _click as click
from typer.core import TyperCommand, TyperGroup

from utils.errors import UnknownName, UserError, nearest, wrong_value
from utils.parameter import read_integer, read_number
from utils.text import quoted

_KINDS = {int: ("an integer", read_integer), float: ("a number", read_number)}


class CheckedCommand(TyperCommand):
    """A command that reads its options strictly."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """See `Command.make_context`; a wrong call ends here."""
        with _told(info_name, parent):
            return super().make_context(info_name, args, parent, **extra)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """See `Command.parse_args`. Raises `UserError` for what is there twice, and for numbers that are none."""
        _check(self, ctx, args)
        return super().parse_args(ctx, args)


class CheckedGroup(TyperGroup):
    """Commands with options of their own; a name that is none of theirs ends in a line, too."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """See `CheckedCommand.make_context`."""
        with _told(info_name, parent):
            return super().make_context(info_name, args, parent, **extra)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """See `CheckedCommand.parse_args`."""
        _check(self, ctx, args)
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """See `ProcessGroup.resolve_command`. Ends the program where there is no such command."""
        with _told(ctx.info_name):
            if args[0] not in self.commands:
                raise UnknownName("command", args[0], self.commands)
            return super().resolve_command(ctx, args)


@contextmanager
def _told(name: str | None, parent: Any = None) -> Iterator[None]:
    """Says what is wrong with a call, in a line."""
    try:
        yield
    except UserError as error:
        said = str(error)
    except click.exceptions.UsageError as error:
        said = str(UserError(_message(error)))
    else:
        return
    called = f"{parent.command_path} {name}" if parent else name
    typer.echo(f"error: {said} ({called} --help shows what it takes)", err=True)
    raise typer.Exit(2)


def _message(error: click.exceptions.UsageError) -> str:
    if isinstance(error, click.exceptions.NoSuchOption):
        names = [name for param in error.ctx.command.params for name in param.opts] if error.ctx else []
        near = nearest(error.option_name, names, 0.7)
        return f"unknown option {quoted(error.option_name)}" + (f". Did you mean {near!r}?" if near else "")
    said = error.format_message()
    return f"{said[:1].lower()}{said[1:]}".rstrip(".")


def _check(command: click.Command, ctx: Any, args: list[str]) -> None:
    values, left, order = command.make_parser(ctx).parse_args(args=list(args))
    for param, count in Counter(order).items():
        if count > 1 and not param.multiple and param.param_type_name == "option":
            raise UserError(f"{param.opts[0]} is given {count} times; expected once")
    for param in command.params:
        value = values.get(param.name)
        if isinstance(value, str):
            _check_number(param, value)
    if left and not ctx.allow_extra_args:
        raise UserError(f"{quoted(left[0])} given; expected nothing there")


def _check_number(param: Any, text: str) -> None:
    declared = param.type_descriptor.annotation
    for kind, (noun, read) in _KINDS.items():
        if kind in (declared, *get_args(declared)):
            least, value = param.type_descriptor.parameter_info.min, read(text)
            if value is None or (least is not None and value < least):
                raise wrong_value(param.opts[0], text, noun if least is None else f"{noun} of {least} or more")


def run_checked(main: Callable[..., None]) -> None:
    """What `typer.run` does, with a command that reads its options strictly."""
    app = typer.Typer(add_completion=False)
    app.command(cls=CheckedCommand)(main)
    app()
