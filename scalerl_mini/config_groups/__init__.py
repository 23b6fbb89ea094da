"""The groups of the configuration: one frozen pydantic model each, unknown keys refused, each key described once.

The description of a key is its help text. The defaults are the embedded CPU job (README); the values of the paper, where
they differ, stand in the descriptions.
"""

from scalerl_mini.config_groups.base import Group
from scalerl_mini.config_groups.learning import (
    InterruptionConfig,
    ModelConfig,
    ObjectiveConfig,
    PipelineConfig,
    RolloutConfig,
    TaskConfig,
    TrainingConfig,
)
from scalerl_mini.config_groups.running import DownstreamConfig, EvaluationConfig, RuntimeConfig

__all__ = [
    "DownstreamConfig",
    "EvaluationConfig",
    "Group",
    "InterruptionConfig",
    "ModelConfig",
    "ObjectiveConfig",
    "PipelineConfig",
    "RolloutConfig",
    "RuntimeConfig",
    "TaskConfig",
    "TrainingConfig",
]
