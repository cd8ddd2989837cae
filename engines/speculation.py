"""What a request or a server's command line says of a method, in an engine's words."""

from collections.abc import Mapping
from typing import Any

from engines.dialect import Dialect
from engines.speculative_config import config_of
from sampling.methods.tables import METHODS
from utils.errors import UserError


def config_for(dialect: Dialect, method: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """A method with these values as its `speculative_config`; for our own server by its own name and parameters.

    Raises `UserError` for what the engine lacks, by its name.
    """
    if dialect.by_request:
        parameters = {
            parameter.name: parameter.show(values[parameter.name]) for parameter in METHODS[method].relevant(values)
        }
        return {"method": method, **parameters}
    try:
        return config_of(method, values, {name: option.keys for name, option in dialect.methods.items()})
    except UserError as error:
        raise UserError(f"{dialect.name}: {error}") from None
