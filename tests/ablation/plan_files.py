"""What tests of plan files share: what an experiment holds, and what a wrong one is told."""

from collections.abc import Callable

import pytest

from ablation.plan.file import Experiment, read_experiment
from ablation.plan.overrides import Overrides
from utils.errors import UserError

Write = Callable[..., str]


SPECULATIVE = '[[methods]]\nmethod = "speculative"\n'


def names(experiment: Experiment) -> list[str]:
    return [configuration.name for configuration in experiment.plan.configurations]


def ids(experiment: Experiment) -> list[str | int]:
    return [prompt.id for prompt in experiment.plan.prompts]


def refusal(name_or_path: str, overrides: Overrides | None = None) -> str:
    with pytest.raises(UserError) as caught:
        read_experiment(name_or_path, overrides)
    return str(caught.value)
