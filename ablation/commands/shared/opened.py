"""Commands whose options are declared elsewhere: the fields of a dataclass become options of a function."""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import Field, fields
from functools import wraps
from typing import Annotated, Any, get_origin, get_type_hints

import typer

Command = Callable[..., None]


def opened(**groups: type) -> Callable[[Command], Command]:
    """Give a command the options of dataclasses (see `utils.option`), each in place of one of its parameters.

    The parameter receives a dict of what was given, by field; what was not given is not in it.

    Example: `@opened(models=LoadOptions)` over `def selftest(*, methods: Methods = None, models: Values)` makes
    `selftest --methods ... --target ... --drafter ...`; after `--target X`, `models` is `{"target": "X"}`.
    """

    def open_up(command: Command) -> Command:
        options_of = {name: list(_options(group)) for name, group in groups.items()}

        @wraps(command)
        def opened_command(*context: typer.Context, **values: Any) -> None:
            values_given = {name: _given(options, values) for name, options in options_of.items()}
            command(*context, **values, **values_given)

        signature = inspect.signature(command)
        shown = (options_of.get(p.name, [p]) for p in signature.parameters.values())
        parameters = [parameter for options in shown for parameter in options]
        opened_command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return opened_command

    return open_up


def _options(group: type) -> Iterator[inspect.Parameter]:
    hints = get_type_hints(group)
    return (_option(f, hints[f.name]) for f in fields(group) if f.metadata)


def _option(f: Field[Any], hint: Any) -> inspect.Parameter:
    """A field as typer reads it; what was not given arrives as the default here, which is no value of the field."""
    switch = hint is bool
    taken = hint if switch else (list[str] if get_origin(hint) is tuple else hint) | None
    flag = f.metadata["flag"] or (f"--{f.name.replace('_', '-')}" if switch else None)
    about = typer.Option(
        *([flag] if flag else []),
        help=f.metadata["help"],
        metavar=f.metadata["usage"] or None,
        min=f.metadata["minimum"],
    )
    return inspect.Parameter(
        f.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=False if switch else None,
        annotation=Annotated[taken, about],
    )


def _given(options: list[inspect.Parameter], values: dict[str, Any]) -> dict[str, Any]:
    """Takes the options out of all values, and leaves away those that nobody gave."""
    taken = {option.name: values.pop(option.name, option.default) for option in options}
    values_given = {
        option.name: taken[option.name] for option in options if taken[option.name] not in (option.default, [])
    }
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values_given.items()}
