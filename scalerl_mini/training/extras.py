"""Optional packages that a configuration asks for: a missing one is refused before anything starts. No torch here."""

from __future__ import annotations

import importlib.util

from scalerl_mini.config import Config
from scalerl_mini.errors import UserError


def check_packages(config: Config) -> None:
    """Raise UserError when a package is missing, with the command that installs it."""
    model, training = config.model, config.training
    if model.lora_rank:
        _need("peft", f"model.lora_rank = {model.lora_rank}", "lora")
    if training.optimizer == "adamw_8bit":
        _need("bitsandbytes", "training.optimizer = 'adamw_8bit'", "optim8bit")

    for name in config.runtime.trackers:
        _need(name, f"runtime.trackers = [{name!r}]", name)


def _need(package: str, setting: str, extra: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise UserError(f"{setting} needs {package}, which is not installed; run: pip install 'scalerl-mini[{extra}]'")
