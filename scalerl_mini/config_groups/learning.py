"""What is learned and how: model, task, rollout, objective, pipeline, training."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_serializer, field_validator, model_validator

from scalerl_mini.config_groups.base import Group

Beta = Annotated[float, Field(ge=0, lt=1)]


class ModelConfig(Group):
    """Which policy is trained."""

    name: str = Field("builtin:tiny-adder", description="Hugging Face folder or name, or builtin:NAME.")
    dtype: Literal["float32", "bfloat16", "float16"] = Field(
        "float32",
        description="Precision of the body in both processes; the optimiser always keeps fp32 masters, and scales the "
        "loss of a float16 body.",
    )
    fp32_head: Literal["both", "generator", "trainer", "none"] = Field(
        "both", description="Which side computes logits in fp32 (paper section 3); true is both, false is none."
    )

    lora_rank: int = Field(
        0, ge=0, description="Rank of LoRA adapters, which alone are trained then (extra lora); 0 trains all weights."
    )
    lora_alpha: float = Field(
        32.0, gt=0, description="Scale of the adapters: alpha / rank times their product is added."
    )
    lora_targets: str = Field(
        "all-linear", description="Layers with an adapter: all-linear (but the head), or names as q_proj,v_proj."
    )
    chat_template: bool = Field(
        False, description="Ask each prompt as the user's message in the model's chat template; false: as it stands."
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
    grade_workers: int = Field(
        2, ge=1, description="Processes that run an untrusted task's grading code, for each process that samples."
    )
    grade_timeout_s: float = Field(5.0, gt=0, description="Longest time for one grade; then its worker is replaced.")
    grade_memory_mib: int = Field(1024, ge=1, description="Memory that grading may take in a worker, in MiB.")
    grade_input_chars: int = Field(100_000, ge=1, description="Longest completion that is given to grading code.")


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

    engine: Literal["torch", "vllm"] = Field("torch", description="Generation engine; vllm is installed separately.")
    slots: int = Field(192, ge=1, description="Completions decoded side by side by one generator.")
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
    optimizer: Literal["adamw", "adamw_8bit"] = Field(
        "adamw", description="adamw, or adamw_8bit: moments in 8 bits by bitsandbytes (extra optim8bit)."
    )
    grad_clip: float = Field(1.0, gt=0, description="Largest gradient norm (the paper does not say).")
    micro_batch_tokens: int = Field(8192, ge=1, description="Tokens, prompts included, of one forward and backward.")
    gradient_checkpointing: bool = Field(False, description="Compute each layer again when going backward.")
    bad_steps_allowed: int = Field(
        5, ge=0, description="Steps in a row skipped for a loss or gradient that is not finite; one more fails the run."
    )
    flat_steps_allowed: int = Field(
        50, ge=1, description="Steps in a row in which all rewards of each group are equal, after which the run ends."
    )
