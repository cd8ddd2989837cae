"""Shell commands that answer a wrong call with one line: the given and the expected value, with exit status 2.

Numbers are parsed as in settings. An option that takes one value is accepted once.
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

    def get_params(self, ctx: Any) -> list[Any]:
        """See `Command.get_params`; help shows a flag without a type."""
        return _untyped_flags(super().get_params(ctx))

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """See `Command.make_context`; a wrong call ends the program."""
        with _told(info_name, parent):
            return super().make_context(info_name, args, parent, **extra)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """See `Command.parse_args`. Raises `UserError` for a repeated option and for an invalid number."""
        _check(self, ctx, args)
        return super().parse_args(ctx, args)


class CheckedGroup(TyperGroup):
    """A group of commands that reads its options strictly; an unknown command gives a one-line error."""

    def get_params(self, ctx: Any) -> list[Any]:
        """See `Command.get_params`; help shows a flag without a type."""
        return _untyped_flags(super().get_params(ctx))

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """See `CheckedCommand.make_context`."""
        with _told(info_name, parent):
            return super().make_context(info_name, args, parent, **extra)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """See `CheckedCommand.parse_args`."""
        _check(self, ctx, args)
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """See `TyperGroup.resolve_command`. An unknown command ends the program."""
        with _told(ctx.info_name):
            if args[0] not in self.commands:
                raise UnknownName("command", args[0], self.commands)
            return super().resolve_command(ctx, args)


def _untyped_flags(params: list[Any]) -> list[Any]:
    """The parameters, with an empty type for flags in place of `<bool>`."""
    for param in params:
        if getattr(param, "is_flag", False) and param.metavar is None:
            param.metavar = ""
    return params


@contextmanager
def _told(name: str | None, parent: Any = None) -> Iterator[None]:
    """Prints the error of a wrong call in one line, then exits."""
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
    """The same as `typer.run`, with a command that reads its options strictly."""
    app = typer.Typer(add_completion=False)
    app.command(cls=CheckedCommand)(main)
    app()
