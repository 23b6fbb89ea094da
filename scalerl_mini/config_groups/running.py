"""What is measured and where it runs: evaluation, the downstream task, processes and devices."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from scalerl_mini.config_groups.base import Group
from scalerl_mini.config_groups.learning import RolloutConfig, TaskConfig


class DownstreamConfig(Group):
    """A second task, evaluated beside the held-out prompts and never trained: does what is learned carry over?"""

    prompts: int = Field(0, ge=0, description="Downstream prompts, the same ones every time; 0 is off.")
    name: str = Field("arithmetic", description="Its task, as in task.name; the held-out prompts of it are asked.")
    options: dict[str, Any] = Field(default_factory=dict, description="Keyword options of that task.")
    max_new_tokens: int = Field(0, ge=0, description="Hard limit of a completion; 0 is rollout.max_new_tokens.")
    thinking_tokens: int = Field(0, ge=0, description="Thinking budget; 0 is that of rollout.interruption.")

    def task(self, trained: TaskConfig) -> TaskConfig:
        """The downstream task, graded under the same limits as the trained one."""
        return trained.model_copy(update={"name": self.name, "options": self.options})

    def rollout(self, trained: RolloutConfig) -> RolloutConfig:
        """How it is sampled: as in training, but for its own limits."""
        interruption, budget = trained.interruption, self.thinking_tokens
        if budget:
            interruption = interruption.model_copy(update={"min_tokens": budget, "max_tokens": budget})
        limit = self.max_new_tokens or trained.max_new_tokens
        return trained.model_copy(update={"max_new_tokens": limit, "interruption": interruption})


class EvaluationConfig(Group):
    """Held-out evaluation: at step 0, then on a schedule that is denser where the curve is steep."""

    every: int = Field(20, ge=1, description="Steps between evaluations (paper: 100).")
    early_every: int = Field(10, ge=1, description="Steps between evaluations up to early_until.")
    early_until: int = Field(100, ge=0, description="Last step of the denser schedule.")
    prompts: int = Field(1000, ge=1, description="Held-out prompts, the same ones every time (paper: 1000).")
    samples: int = Field(4, ge=1, description="Completions a held-out prompt (paper: 16).")
    stop_when_gain_below: float = Field(
        0.0, ge=0, lt=1, description="End the run once the forecast gain is surely below this pass rate; 0 never does."
    )
    stop_horizon: float = Field(
        2.0, gt=1, description="How far that forecast looks, as a multiple of the compute spent."
    )
    downstream: DownstreamConfig = Field(
        default_factory=DownstreamConfig, description="A task that is evaluated and never trained."
    )
    trainer_helps: bool = Field(
        True, description="Let the trainer sample part of each evaluation; both are paused. Not with vllm."
    )

    def due(self, step: int, last_step: int) -> bool:
        """Whether `step` is an evaluation step of a run of `last_step` steps; the first and last always are."""
        every = self.early_every if step <= self.early_until else self.every
        return step % every == 0 or step == last_step


class RuntimeConfig(Group):
    """Processes, devices, checkpoints and deadlines."""

    generators: int = Field(1, ge=1, description="Generator processes on one device.")
    generator_device: str = Field(
        "cpu", description="Torch device of the generators: cpu, cuda:0, or one each as cuda:0,cuda:2."
    )
    trainer_device: str = Field("cpu", description="Torch device of the trainer: cpu, cuda:0, ...")
    threads: int = Field(1, ge=1, description="Torch threads of each process.")
    checkpoint_every: int = Field(100, ge=1, description="Steps between checkpoints; the last step always has one.")
    keep_checkpoints: int = Field(2, ge=1, description="How many checkpoints are kept, newest first.")
    wait_timeout_s: float = Field(600.0, gt=0, description="Longest wait of one process for another.")
    heartbeat_timeout_s: float = Field(300.0, gt=0, description="Longest silence of a process before it is killed.")
    restarts: int = Field(
        3, ge=0, description="Deaths in a row, without a new step between, after which the run still goes on."
    )

    trackers: tuple[Literal["tensorboard", "wandb", "trackio"], ...] = Field(
        (), strict=False, description="Trackers that are shown all rows of the logs; each is an extra of that name."
    )

    @model_validator(mode="after")
    def _a_device_each(self) -> RuntimeConfig:
        named = len(self.generator_device.split(","))
        if named > 1 and self.generators not in (1, named):
            raise ValueError(
                f"generators = {self.generators} but generator_device names {named} devices; leave generators away"
            )
        return self

    @property
    def generator_devices(self) -> tuple[str, ...]:
        """The device of each generator."""
        devices = tuple(name.strip() for name in self.generator_device.split(","))
        return devices if len(devices) > 1 else devices * self.generators
