"""Training seconds until the held-out pass rate is .7: this package's default job against TRL's GRPOTrainer on the CPU.

    python -m tests.bench.bench_trl [--short] [--json FILE]

Same model, prompts, group size, batch, CISPO with batch-scaled advantages and AdamW settings; TRL on-policy with two
threads, ours two processes of one thread. TRL has no forced interruption, no prompt-level averaging and no zero-variance
filter. Both are judged every 10 steps by the same engine on 300 held-out prompts x 2 (TRL) or by the run itself
(ours, same prompts); that time is left out on both sides. The crossing is interpolated between two evaluations.
"""

from __future__ import annotations

import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.bench.harness import Ratio, main

TARGET, PROMPTS, SAMPLES = 0.7, 300, 2


def crossing(points: list[tuple[float, float]]) -> float | None:
    """Seconds at which the pass rate passes the target; points are (training seconds, pass rate)."""
    for (t0, p0), (t1, p1) in itertools.pairwise(points):
        if p0 < TARGET <= p1:
            return t0 + (t1 - t0) * (TARGET - p0) / (p1 - p0)
    return None


def ours(seed: int, steps: int) -> list[tuple[float, float]]:
    settings = (f"training.steps={steps}", f"evaluation.prompts={PROMPTS}", f"evaluation.samples={SAMPLES}",
                "evaluation.every=10", "runtime.checkpoint_every=100000", f"seed={seed}")  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "scalerl_mini", "train", "--out", f"{folder}/run"]
        command += [part for setting in settings for part in ("--set", setting)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        rows = (Path(folder) / "run" / "evals.jsonl").read_text(encoding="utf-8").splitlines()
    return [(row["wall_seconds"], row["pass_rate"]) for row in map(json.loads, rows)]


def trl(seed: int, steps: int) -> list[tuple[float, float]]:
    """Training seconds and pass rate at every evaluation."""
    import torch
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    from scalerl_mini.config import Config
    from scalerl_mini.policy import Policy
    from scalerl_mini.rollout.sampling import RequestFactory, build_engine, build_interruption
    from scalerl_mini.tasks import load_task
    from scalerl_mini.training.preflight import resolve_model

    torch.set_num_threads(2)
    config, task = Config(), load_task("arithmetic")
    judge = Policy.load(resolve_model(config.model.name))
    prompts = [tuple(judge.encode(prompt.text)) for prompt in task.held_out[:PROMPTS]]
    engine = build_engine(config.rollout, judge, max(map(len, prompts)))
    requests = RequestFactory(seed, config.rollout.max_new_tokens, build_interruption(config.rollout, judge))
    points: list[tuple[float, float]] = []
    by_text = {prompt.text: prompt for prompt in task.train}

    def reward(prompts: list[str], completion_ids: list[list[int]], **_: Any) -> list[float]:
        return [task.grade(by_text[text], judge.decode(ids)) for text, ids in zip(prompts, completion_ids, strict=True)]

    class Judge(TrainerCallback):
        spent = 0.0

        def on_train_begin(self, *_: Any, **__: Any) -> None:
            self.start = time.perf_counter()
            self.evaluate()

        def on_step_end(self, _: Any, state: Any, control: Any, **__: Any) -> None:
            if state.global_step % 10 == 0:
                self.evaluate()
                control.should_training_stop = points[-1][1] >= TARGET + 0.01

        @torch.no_grad()
        def evaluate(self) -> None:
            begin = time.perf_counter()
            judge.model.load_state_dict(trainer.model.state_dict())
            for number, prompt in enumerate(prompts):
                for sample in range(SAMPLES):
                    engine.submit(requests.make(prompt, (number, sample), "held-out", number, 0, sample))
            rewards = []
            while engine.running:
                for done in engine.step():
                    rewards.append(task.grade(task.held_out[done.key[0]], judge.decode(done.tokens)))
            points.append((begin - self.start - self.spent, statistics.mean(rewards)))
            self.spent += time.perf_counter() - begin
            print(f"trl: {points[-1][1]:.3f} after {points[-1][0]:.1f} s", file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory() as folder:
        options = GRPOConfig(
            output_dir=folder, use_cpu=True, max_steps=steps, seed=seed, learning_rate=config.training.lr,
            lr_scheduler_type="constant_with_warmup", warmup_steps=config.training.warmup_steps,
            adam_beta1=config.training.betas[0], adam_beta2=config.training.betas[1], adam_epsilon=config.training.eps,
            weight_decay=config.training.weight_decay, max_grad_norm=config.training.grad_clip,
            per_device_train_batch_size=config.pipeline.prompts_per_step * config.rollout.group_size,
            num_generations=config.rollout.group_size, max_completion_length=config.rollout.max_new_tokens,
            loss_type="cispo", scale_rewards="batch", epsilon_high=5.0, beta=0.0, temperature=1.0, top_k=0,
            bf16=False, gradient_checkpointing=False, save_strategy="no", report_to="none", logging_steps=1000,
            disable_tqdm=True,
        )  # fmt: skip
        learner = Policy.load(resolve_model(config.model.name))
        learner.model.set_attn_implementation("sdpa")
        trainer = GRPOTrainer(
            model=learner.model, reward_funcs=reward, args=options, processing_class=learner.tokenizer,
            train_dataset=Dataset.from_list([{"prompt": prompt.text} for prompt in task.train]), callbacks=[Judge()],
        )  # fmt: skip
        trainer.train()
    return points


def measure(short: bool) -> list[Ratio]:
    seeds, steps = (1, 150) if short else (2, 160)
    found: dict[str, list[float]] = {"ours": [], "trl": []}
    for seed in range(seeds):
        for name, side in (("ours", ours), ("trl", trl)):
            points = side(seed, steps)
            print(
                f"{name}, seed {seed}: {[(round(t, 1), round(p, 3)) for t, p in points]}", file=sys.stderr, flush=True
            )
            reached = crossing(points)
            if reached is None:
                raise RuntimeError(f"{name}, seed {seed}: {TARGET} was not reached in {steps} steps")
            found[name].append(reached)
    text = "; ".join(f"{name} {', '.join(f'{t:.0f}' for t in times)} s" for name, times in found.items())
    return [Ratio("time to .7 / TRL", statistics.mean(found["trl"]) / statistics.mean(found["ours"]), 3, True, text)]


if __name__ == "__main__":
    main(measure, __doc__)
