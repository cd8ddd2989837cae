"""A recommendation in the forms that others read: a command line, servers' JSON, a plan."""

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from ablation.plan.grid import Configuration
from engines.speculative_config import written_config
from sampling.loading.options import LOAD
from sampling.methods.settings import PARAMETERS
from sampling.methods.tables import AR


def command_line(
    configuration: Configuration, prompts: str, models: Mapping[str, Any], settings: Mapping[str, str]
) -> str:
    """What runs a configuration beside plain decoding on the same prompts and models. settings: as texts, by name."""
    methods = AR if configuration.method == AR else f"{AR},{configuration.method}"
    words = ["uv", "run", "infer.py", "run", "--methods", methods]
    for name, value in configuration.parameters:
        words += ["--set", f"{name}={PARAMETERS[name].show(value)}"]
    words += ["--prompts", prompts]
    for name, text in settings.items():
        words += [f"--{name.replace('_', '-')}", text]
    for name, value in models.items():
        flag = f"--{name.replace('_', '-')}"
        words += [flag] if value is True else [flag, str(value)]
    return shlex.join(words)


def plan_text(
    configuration: Configuration, prompts: Sequence[str], models: Mapping[str, Any], settings: Mapping[str, str]
) -> str:
    """A plan (TOML) that compares the configuration with plain decoding on the same prompts. settings: as above."""
    top = [f"length = {settings['length']}"]
    common = [f"{name} = {json.dumps(text)}" for name, text in settings.items() if name != "length"]
    lines = [*top, f"prompts = {json.dumps(list(prompts))}", 'processors = ["greedy"]', ""]
    if common:
        lines += ["[settings]", *common, ""]
    lines += ["[[methods]]", f'method = "{AR}"', ""]
    if configuration.method != AR:
        lines += ["[[methods]]", f'method = "{configuration.method}"']
        lines += [f"{name} = {_toml(name, value)}" for name, value in configuration.parameters]
        lines.append("")
    if models:
        lines += ["[pair]", *(f"{name} = {_toml_option(name, value)}" for name, value in models.items()), ""]
    return "\n".join(lines)


def _toml(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else json.dumps(PARAMETERS[name].show(value))


def _toml_option(name: str, value: Any) -> str:
    return json.dumps(value if isinstance(value, bool | int) else LOAD[name].show(value))


def server_config(configuration: Configuration, models: Mapping[str, Any]) -> str | None:
    """The JSON of `--speculative-config`; None where servers have no words for the configuration."""
    entry = written_config(configuration.method, dict(configuration.parameters), models)
    return None if entry is None else json.dumps(entry)
