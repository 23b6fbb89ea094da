"""The typed configuration tree: one frozen pydantic model a group, unknown keys refused, each key described once.

A run is completely described by this tree: `train --dry-run` prints it, the run folder keeps it as `config.toml`, and
`train --config runs/NAME/config.toml` repeats the run. The defaults are the embedded CPU job (README); the values of
the paper, where they differ, stand in the descriptions. No torch is imported here.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_serializer, field_validator, model_validator

from scalerl_mini.errors import UserError
from scalerl_mini.recipes import recipe_tree

Beta = Annotated[float, Field(ge=0, lt=1)]


class Group(BaseModel):
    """Base of every configuration group: immutable, unknown keys refused, nothing converted (`true` is no number)."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class ModelConfig(Group):
    """Which policy is trained."""

    name: str = Field("builtin:tiny-adder", description="Hugging Face folder or name, or builtin:NAME.")
    dtype: Literal["float32", "bfloat16"] = Field(
        "float32", description="Precision of the body in both processes; the optimiser always keeps fp32 masters."
    )
    fp32_head: Literal["both", "generator", "trainer", "none"] = Field(
        "both", description="Which side computes logits in fp32 (paper section 3); true is both, false is none."
    )

    @field_validator("fp32_head", mode="before")
    @classmethod
    def _read_switch(cls, value: Any) -> Any:
        return {True: "both", False: "none"}[value] if isinstance(value, bool) else value

    def fp32_head_of(self, side: Literal["generator", "trainer"]) -> bool:
        """Whether this side's head computes in fp32."""
        return self.fp32_head in ("both", side)


class TaskConfig(Group):
    """What is asked and how it is graded."""

    name: str = Field("arithmetic", description="Built-in task, or module:Class of your own.")
    options: dict[str, Any] = Field(default_factory=dict, description="Keyword options of the task.")


class InterruptionConfig(Group):
    """Forced interruption: the phrase that ends the thinking part (paper section 2)."""

    enabled: bool = Field(True, description="Force the phrase once the thinking budget is used up.")
    phrase: str = Field("</think>", description="Text appended to the completion; it never enters the loss.")
    think_end: str = Field("</think>", description="Text by which the policy itself ends its thinking.")
    min_tokens: int = Field(42, ge=1, description="Smallest thinking budget; drawn uniformly (paper: 10000).")
    max_tokens: int = Field(42, ge=1, description="Largest thinking budget, inclusive (paper: 12000).")

    @model_validator(mode="after")
    def _ordered(self) -> InterruptionConfig:
        if self.min_tokens > self.max_tokens:
            raise ValueError(f"min_tokens ({self.min_tokens}) must not be above max_tokens ({self.max_tokens})")
        return self


class RolloutConfig(Group):
    """How completions are sampled."""

    engine: Literal["torch"] = Field("torch", description="Generation engine.")
    slots: int = Field(128, ge=1, description="Completions decoded side by side by one generator.")
    group_size: int = Field(8, ge=2, description="Completions a prompt, G (paper: 16).")
    max_new_tokens: int = Field(51, ge=1, description="Hard limit of a completion, thinking and answer together.")
    temperature: float = Field(1.0, gt=0, description="Sampling temperature, applied in generator and trainer.")
    interruption: InterruptionConfig = Field(default_factory=InterruptionConfig, description="Forced interruption.")


LOSS_CONSTANTS: dict[str, dict[str, float]] = {
    "cispo": {"eps_max": 5.0},
    "dapo": {"eps_low": 0.2, "eps_high": 0.26},
    "gspo": {"eps_low": 3e-3, "eps_high": 4e-3},
    "grpo": {"eps": 0.2},
    "reinforce": {},
}


class ObjectiveConfig(Group):
    """From rewards to a loss (paper section 2)."""

    loss: Literal["cispo", "dapo", "gspo", "grpo", "reinforce"] = Field("cispo", description="Policy loss.")
    constants: dict[str, float] = Field(
        default_factory=dict,
        description="Constants of the loss: eps_max (cispo; paper: 4 to 8), eps (grpo), eps_low and eps_high (dapo, gspo).",
    )
    aggregation: Literal["prompt", "sample", "token"] = Field("prompt", description="How token terms are averaged.")
    advantage_norm: Literal["batch", "prompt", "none"] = Field("batch", description="What advantages are divided by.")
    zero_variance_filter: bool = Field(True, description="Leave groups whose rewards are all equal out of the batch.")
    refill_rounds: int = Field(
        0, ge=0, description="Dynamic sampling: how often a flat group is replaced by a new prompt before training."
    )
    exclude_truncated: bool = Field(False, description="Leave completions cut at the limit out of the loss.")
    length_penalty_limit: int = Field(
        0, ge=0, description="L_max of the length penalty on correct completions (paper: 14000); 0 is off."
    )
    length_penalty_cache: int = Field(
        0, ge=0, description="L_cache: the penalty begins this many tokens before the limit (paper: 2000)."
    )
    correction: Literal["none", "truncate", "mask"] = Field(
        "none", description="Extra importance correction: multiply by min(rho, cap), or leave out tokens above the cap."
    )
    correction_cap: float = Field(2.0, gt=0, description="Cap of the extra importance correction.")
    kl_coefficient: float = Field(
        0.0, ge=0, description="Weight of the KL to the start model (k3 estimator); 0 is off."
    )
    no_positive_resampling: float | None = Field(
        0.9,
        gt=0,
        le=1,
        description="Drop a prompt for later epochs once its pass rate reaches this; false keeps all.",
    )

    @model_validator(mode="before")
    @classmethod
    def _fill_constants(cls, tree: Any) -> Any:
        """Write the loss's own constants out where they are not given."""
        if not isinstance(tree, dict) or not isinstance(tree.get("constants", {}), dict):
            return tree
        loss, given = tree.get("loss", "cispo"), tree.get("constants", {})
        known = LOSS_CONSTANTS.get(loss, {}) if isinstance(loss, str) else {}
        return tree | {"constants": known | given}

    @model_validator(mode="after")
    def _consistent(self) -> ObjectiveConfig:
        known = LOSS_CONSTANTS[self.loss]
        for name, value in self.constants.items():
            if name not in known:
                raise ValueError(f"loss {self.loss!r} has no constant {name!r}; it has: {', '.join(known) or 'none'}")
            if value <= 0:
                raise ValueError(f"constants.{name} must be greater than 0")
        if bool(self.length_penalty_limit) != bool(self.length_penalty_cache):
            raise ValueError("a length penalty needs both length_penalty_limit and length_penalty_cache")
        if self.length_penalty_cache > self.length_penalty_limit:
            raise ValueError("length_penalty_cache must not be above length_penalty_limit")
        if self.correction == "truncate" and self.loss != "reinforce":
            raise ValueError(f"correction = 'truncate' counts the ratio twice, loss {self.loss!r} already carries it")
        if self.refill_rounds and not self.zero_variance_filter:
            raise ValueError("refill_rounds replaces filtered groups; it needs zero_variance_filter = true")
        return self

    @field_validator("no_positive_resampling", mode="before")
    @classmethod
    def _read_off(cls, value: Any) -> Any:
        if value is True:
            raise ValueError("write a pass rate in (0, 1], or false to keep all prompts")
        return None if value is False else value

    @field_serializer("no_positive_resampling")
    def _write_off(self, value: float | None) -> float | bool:
        """TOML has no null, so "off" is written as false."""
        return False if value is None else value


class PipelineConfig(Group):
    """The off-policy scheme: PipelineRL-k or PPO-off-policy-k (paper section 3)."""

    mode: Literal["pipeline", "ppo"] = Field(
        "pipeline",
        description="pipeline: generators stream, weights arrive mid-sequence. ppo: generate k batches under frozen "
        "weights, then take k steps.",
    )
    k: int = Field(
        4,
        ge=0,
        description="pipeline: largest lag of a trained token in optimiser steps, 0 is synchronous (paper: 8). "
        "ppo: steps a phase, 1 is on-policy.",
    )
    prompts_per_step: int = Field(16, ge=1, description="Groups taken by one optimiser step, P (paper: 48).")

    @model_validator(mode="after")
    def _phases(self) -> PipelineConfig:
        if self.mode == "ppo" and self.k == 0:
            raise ValueError("mode 'ppo' takes k steps a phase, so k must be at least 1")
        return self

    @property
    def largest_lag(self) -> int:
        """k of the staleness gate: the oldest a trained token may be."""
        return self.k - 1 if self.mode == "ppo" else self.k


class TrainingConfig(Group):
    """Optimiser and schedule (paper section 4)."""

    steps: int = Field(300, ge=1, description="Optimiser steps of the run (paper: 7400).")
    lr: float = Field(1e-4, gt=0, description="Learning rate after warm-up, constant (paper: 5e-7).")
    warmup_steps: int = Field(10, ge=0, description="Linear warm-up (paper: 100).")
    betas: tuple[Beta, Beta] = Field(
        (0.9, 0.98), strict=False, description="Two AdamW betas, each in [0, 1) (the paper does not say)."
    )
    eps: float = Field(1e-10, gt=0, description="AdamW epsilon (paper: 1e-15).")
    weight_decay: float = Field(0.01, ge=0, description="AdamW weight decay.")
    grad_clip: float = Field(1.0, gt=0, description="Largest gradient norm (the paper does not say).")
    micro_batch_tokens: int = Field(8192, ge=1, description="Tokens, prompts included, of one forward and backward.")


class EvaluationConfig(Group):
    """Held-out evaluation: at step 0, then on a schedule that is denser where the curve is steep."""

    every: int = Field(20, ge=1, description="Steps between evaluations (paper: 100).")
    early_every: int = Field(10, ge=1, description="Steps between evaluations up to early_until.")
    early_until: int = Field(100, ge=0, description="Last step of the denser schedule.")
    prompts: int = Field(1000, ge=1, description="Held-out prompts, the same ones every time (paper: 1000).")
    samples: int = Field(2, ge=1, description="Completions a held-out prompt (paper: 16).")
    stop_when_gain_below: float = Field(
        0.0, ge=0, lt=1, description="End the run once the forecast gain is surely below this pass rate; 0 never does."
    )
    stop_horizon: float = Field(
        2.0, gt=1, description="How far that forecast looks, as a multiple of the compute spent."
    )
    trainer_helps: bool = Field(True, description="Let the trainer sample part of each evaluation; both are paused.")

    def due(self, step: int, last_step: int) -> bool:
        """Whether `step` is an evaluation step of a run of `last_step` steps; the first and last always are."""
        every = self.early_every if step <= self.early_until else self.every
        return step % every == 0 or step == last_step


class RuntimeConfig(Group):
    """Processes, devices, checkpoints and deadlines."""

    generators: int = Field(1, ge=1, description="Generator processes.")
    generator_device: str = Field("cpu", description="Torch device of the generators.")
    trainer_device: str = Field("cpu", description="Torch device of the trainer.")
    threads: int = Field(1, ge=1, description="Torch threads of each process.")
    checkpoint_every: int = Field(100, ge=1, description="Steps between checkpoints; the last step always has one.")
    keep_checkpoints: int = Field(2, ge=1, description="How many checkpoints are kept, newest first.")
    wait_timeout_s: float = Field(600.0, gt=0, description="Longest wait of one process for another.")
    heartbeat_timeout_s: float = Field(300.0, gt=0, description="Longest silence of a process before the run ends.")


class Config(Group):
    """The whole tree."""

    seed: int = Field(0, ge=0, lt=2**63, description="Seed of everything that is random in the run.")
    model: ModelConfig = Field(default_factory=ModelConfig)
    task: TaskConfig = Field(default_factory=TaskConfig)
    rollout: RolloutConfig = Field(default_factory=RolloutConfig)
    objective: ObjectiveConfig = Field(default_factory=ObjectiveConfig)
    pipeline: PipelineConfig = Field(default_factory=PipelineConfig)
    training: TrainingConfig = Field(default_factory=TrainingConfig)
    evaluation: EvaluationConfig = Field(default_factory=EvaluationConfig)
    runtime: RuntimeConfig = Field(default_factory=RuntimeConfig)


def load_config(path: Path | None = None, settings: tuple[str, ...] = (), recipe: str | None = None) -> Config:
    """The defaults, a recipe, a TOML file and `key=value` settings, each laid over what comes before.

    Raises UserError with the path of the wrong key and how to mend it.
    """
    tree = _overlay(recipe_tree(recipe) if recipe else {}, _read_toml(path) if path else {})
    laid: dict[str, Any] = {}
    set_keys = {_apply_setting(laid, setting) for setting in settings}
    tree = _overlay(tree, laid)
    try:
        return Config.model_validate(tree)
    except ValidationError as error:
        raise UserError(_explain(error, path, set_keys)) from None


def dump_toml(config: Config) -> str:
    """The configuration as TOML, every key written out; `load_config` of it gives the same configuration."""
    return tomli_w.dumps(config.model_dump())


def _overlay(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Two trees of keys as one; where both have a value, `above` counts. Constants belong to a loss: a new loss drops
    those of the old one."""
    if "loss" in above and above["loss"] != below.get("loss"):
        below = {key: value for key, value in below.items() if key != "constants"}
    merged = below | above
    for key in below.keys() & above.keys():
        if isinstance(below[key], dict) and isinstance(above[key], dict):
            merged[key] = _overlay(below[key], above[key])
    return merged


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read configuration {path}: {error.strerror}; give --config a TOML file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        hint = "train --dry-run prints a valid one"
        raise UserError(f"configuration {path} is not valid TOML: {error}; {hint}") from None


def _apply_setting(tree: dict[str, Any], setting: str) -> str:
    """Lay one `key=value` over the tree; returns the key."""
    key, separator, text = setting.partition("=")
    keys = [name.strip() for name in key.split(".")]
    if not separator or not all(keys):
        raise UserError(f"--set {setting!r}: write it as group.key=value, for example training.steps=20")
    node = tree
    for name in keys[:-1]:
        node = node.setdefault(name, {})
        if not isinstance(node, dict):
            raise UserError(f"--set {setting!r}: {name} is a value, not a group; leave away what follows it")
    node[keys[-1]] = _parse_value(text.strip())
    return ".".join(keys)


def _parse_value(text: str) -> Any:
    """A TOML value, or the bare text itself."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _explain(error: ValidationError, path: Path | None, set_keys: set[str]) -> str:
    """One line about the first wrong key: its name, where it was given, what is wrong, what it should be."""
    first = error.errors()[0]
    location = [str(part) for part in first["loc"]]
    key = ".".join(location)
    by_setting = path is None or any(
        f"{other}.".startswith(f"{key}.") or key.startswith(f"{other}.") for other in set_keys
    )
    given = "--set" if by_setting else str(path)
    known = ", ".join(_group(location if first["type"] == "model_type" else location[:-1]).model_fields)
    if first["type"] == "extra_forbidden":
        return f"unknown configuration key {key} in {given}; known keys here: {known}"
    if first["type"] == "model_type":
        return f"configuration key {key} in {given} is a group; set one of its keys: {known}"
    message = first["msg"].removeprefix("Value error, ")
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return f"configuration key {key} in {given}: {message}, got {first['input']!r}{_meaning(location)}{more}"


def _meaning(location: list[str]) -> str:
    """The description of the wrong key, as a hint."""
    fields = [
        field for depth, name in enumerate(location) if (field := _group(location[:depth]).model_fields.get(name))
    ]
    return f" - {fields[-1].description}" if fields and fields[-1].description else ""


def _group(location: list[str]) -> type[Group]:
    """The configuration group at a path of keys; the last group on the way when the path leads into a value."""
    group: type[Group] = Config
    for name in location:
        annotation: Any = group.model_fields[name].annotation
        if not (isinstance(annotation, type) and issubclass(annotation, Group)):
            break
        group = annotation
    return group
