"""What an evaluation asks: the held-out prompts, and those of a downstream task that is never trained.

The paper watches AIME-24 beside its held-out curve (section 6): does what is learned carry over to harder questions? Both
sets are sampled in the same pause, under the same version; the downstream set has limits of its own, because harder
questions need longer answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from scalerl_mini.config import Config
from scalerl_mini.config_groups import RolloutConfig
from scalerl_mini.policy.model import Policy
from scalerl_mini.rollout.grading import Grader, make_graders
from scalerl_mini.rollout.sampling import RequestFactory, build_interruption
from scalerl_mini.tasks import Task, load_task

Role = Literal["held-out", "downstream"]


@dataclass(frozen=True)
class EvaluationSet:
    """Prompts that are reported together. role: part of the seeds, so neither set changes the samples of the other.

    prompts: token ids. levels: difficulty label of each. requests: with the limits of this set.
    """

    role: Role
    prompts: list[tuple[int, ...]]
    levels: list[str]
    grader: Grader
    requests: RequestFactory

    @property
    def prefix(self) -> str:
        """What its keys in evals.jsonl begin with."""
        return "downstream_" if self.role == "downstream" else ""


def evaluation_set(
    role: Role, task: Task, count: int, grader: Grader, rollout: RolloutConfig, policy: Policy, seed: int
) -> EvaluationSet:
    """The first `count` held-out prompts of a task, sampled within the limits of `rollout`. seed: the run's."""
    asked = task.held_out[:count]
    prompts = [policy.prompt_ids(prompt.text) for prompt in asked]
    requests = RequestFactory(seed, rollout.max_new_tokens, build_interruption(rollout, policy))
    return EvaluationSet(role, prompts, [prompt.level for prompt in asked], grader, requests)


def evaluation_sets(config: Config, task: Task, grader: Grader, policy: Policy) -> list[EvaluationSet]:
    """The first held-out prompts of the trained task, with their grader, and of the downstream task when there is one."""
    rollout, seed = config.rollout, config.seed
    sets = [evaluation_set("held-out", task, config.evaluation.prompts, grader, rollout, policy, seed)]
    downstream = config.evaluation.downstream
    if downstream.prompts:
        options = downstream.task(config.task)
        other = load_task(options.name, **options.options)
        _, others_grader = make_graders(other, options)
        rollout = downstream.rollout(config.rollout)
        sets.append(evaluation_set("downstream", other, downstream.prompts, others_grader, rollout, policy, seed))
    return sets


def find_set(sets: list[EvaluationSet], prompt: int) -> tuple[EvaluationSet, int]:
    """The set that a prompt of the evaluation board belongs to, and its number there; sets lie one after another."""
    for one in sets:
        if prompt < len(one.prompts):
            return one, prompt
        prompt -= len(one.prompts)
    raise IndexError(f"prompt {prompt} is behind the last evaluation set")
