"""Sample and grade: the evaluation of a run (`rollout.evaluation`) without the run, in this process.

Seeds depend on the run's seed, the prompt and the sample alone, so a checkpoint that is evaluated again on the questions of
its run gives the completions that its run had graded (up to rounding, which depends on what is computed side by side).
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from transformers.utils import logging as transformers_logging

from scalerl_mini.evaluating.questions import Question
from scalerl_mini.evaluating.result import Evaluation, TaskResult
from scalerl_mini.evaluating.subject import Subject
from scalerl_mini.gpu import use
from scalerl_mini.policy.model import Policy
from scalerl_mini.policy.weight_bytes import WeightBytes
from scalerl_mini.rollout.engine_check import check_engine
from scalerl_mini.rollout.engines import Engine
from scalerl_mini.rollout.evaluation import EvaluationWorker, summarise
from scalerl_mini.rollout.evaluation_sets import EvaluationSet, evaluation_set
from scalerl_mini.rollout.grading import make_graders
from scalerl_mini.rollout.sampling import build_engine
from scalerl_mini.runtime.evaluation_board import EvaluationBoard
from scalerl_mini.runtime.segment_names import clear_stale, run_prefix, unlink_all
from scalerl_mini.runtime.weight_channel import checksum

Progress = Callable[[int, int], None]  # (prompts done, prompts in all)


def evaluate(
    subject: Subject, questions: list[Question], samples: int, ks: tuple[int, ...], progress: Progress
) -> Evaluation:
    """Ask everything, `samples` times each, and sum it up. Raises UserError when the model or a grader cannot be used."""
    config = subject.config
    policy = _load(subject)
    sets = [
        evaluation_set(
            "downstream" if one.downstream else "held-out",
            one.task,
            one.prompts,
            make_graders(one.task, one.config)[1],
            one.rollout,
            policy,
            config.seed,
        )
        for one in questions
    ]
    engine = _engine(subject, policy, sets, samples)
    start = time.monotonic()
    rows = _sample(policy, sets, engine, samples, progress)
    seconds = time.monotonic() - start
    ends = np.cumsum([len(one.prompts) for one in sets])[:-1]
    results = [
        TaskResult.of(
            one.config.name, one.config.options, one.downstream, part, of.levels, ks, summarise(part, of.levels)
        )
        for one, of, part in zip(questions, sets, np.split(rows, ends), strict=True)
    ]
    return Evaluation(subject.name, subject.version, _settings(subject, samples), results, seconds)


def _load(subject: Subject) -> Policy:
    config, model, device = subject.config, subject.config.model, _device(subject)
    transformers_logging.disable_progress_bar()
    torch.set_num_threads(config.runtime.threads)
    use(device)
    policy = Policy.load(subject.folder, model.dtype, device, model.fp32_head_of("generator"), model.chat_template)
    policy.version = subject.version
    return policy


def _device(subject: Subject) -> str:
    """Where the policy works; vLLM holds weights of its own and takes them from a copy in memory."""
    vllm = subject.config.rollout.engine == "vllm"
    return "cpu" if vllm else subject.config.runtime.generator_devices[0]


def _engine(subject: Subject, policy: Policy, sets: list[EvaluationSet], samples: int) -> Engine:
    """The configured engine, with slots for all samples of a prompt and room for the longest of everything."""
    config = subject.config
    prompts = [prompt for one in sets for prompt in one.prompts]
    limits = {
        "slots": max(config.rollout.slots, samples),
        "max_new_tokens": max(one.requests.max_new_tokens for one in sets),
    }
    rollout = config.rollout.model_copy(update=limits)
    device = config.runtime.generator_devices[0]
    engine = build_engine(rollout, policy, max(map(len, prompts)), device=device)
    if rollout.engine == "vllm":
        held = checksum(WeightBytes(policy).pull().values())
        check_engine(engine, policy, prompts, rollout.temperature, held)
    return engine


def _sample(policy: Policy, sets: list[EvaluationSet], engine: Engine, samples: int, progress: Progress) -> np.ndarray:
    """Result rows of all prompts, one set after another."""
    folder = Path(tempfile.gettempdir())
    clear_stale(folder)
    prefix, prompts = run_prefix(), sum(len(one.prompts) for one in sets)
    try:
        board = EvaluationBoard.create(f"{prefix}.evaluation", prompts, samples, folder)
        board.open(policy.version)
        worker = EvaluationWorker(board, 0, engine, policy, sets, lambda: progress(board.done, prompts))
        worker.share()
        progress(prompts, prompts)
        rows = board.results.copy()
        board.close()
    finally:
        unlink_all(prefix, folder)
    return rows


def _settings(subject: Subject, samples: int) -> dict[str, object]:
    config = subject.config
    interruption = config.rollout.interruption
    return {
        "samples": samples,
        "seed": config.seed,
        "engine": config.rollout.engine,
        "device": config.runtime.generator_devices[0],
        "dtype": config.model.dtype,
        "chat_template": config.model.chat_template,
        "temperature": config.rollout.temperature,
        "max_new_tokens": config.rollout.max_new_tokens,
        "thinking_tokens": [interruption.min_tokens, interruption.max_tokens] if interruption.enabled else None,
    }
