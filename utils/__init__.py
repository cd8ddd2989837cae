"""Leaves that every other package may import: registries, parameters, processors, metrics."""

import utils.elsewhere  # noqa: F401
