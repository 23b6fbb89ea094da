"""Entry points of the spawned processes: each builds its side of the run from the configuration and shared memory.

    trainer     loads the policy, creates the rollout buffer, the weight channel and the evaluation board, then trains
    generator   loads the same model, builds its engine, waits for the first weights, checks the engine, then samples

Both build the task and its token ids for themselves; only ids, numbers and weights cross between them.
"""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import dataclass
from typing import Literal

import torch

from scalerl_mini.config import Config
from scalerl_mini.errors import UserError
from scalerl_mini.gpu import use
from scalerl_mini.policy.model import Policy
from scalerl_mini.policy.weight_bytes import WeightBytes
from scalerl_mini.rollout.curriculum import Curriculum
from scalerl_mini.rollout.engine_check import check_engine
from scalerl_mini.rollout.engines import Engine
from scalerl_mini.rollout.evaluation import EvaluationWorker
from scalerl_mini.rollout.evaluation_sets import EvaluationSet, evaluation_sets
from scalerl_mini.rollout.generator import Generator
from scalerl_mini.rollout.grading import Grader, make_graders
from scalerl_mini.rollout.sampling import RequestFactory, build_engine, build_interruption
from scalerl_mini.runtime.control import Control, Stage
from scalerl_mini.runtime.evaluation_board import EvaluationBoard
from scalerl_mini.runtime.gate import StalenessGate
from scalerl_mini.runtime.rollout_buffer import BufferShape, RolloutBuffer
from scalerl_mini.runtime.waiting import Stopped, wait_until
from scalerl_mini.runtime.weight_channel import TensorSpec, WeightChannel
from scalerl_mini.tasks import load_task
from scalerl_mini.training import garbage
from scalerl_mini.training.checkpoint import read_state, restore_optimizer
from scalerl_mini.training.compute import ComputeMeter
from scalerl_mini.training.evaluator import Evaluator
from scalerl_mini.training.heap import give_back_freed_blocks
from scalerl_mini.training.learner import Learner
from scalerl_mini.training.memory import estimate
from scalerl_mini.training.optimizer import Optimizer
from scalerl_mini.training.row_log import read_rows
from scalerl_mini.training.run_folder import RunFolder
from scalerl_mini.training.run_spec import TRAINER, RunSpec, generator_roles
from scalerl_mini.training.trainer import Trainer

logger = logging.getLogger(__name__)


@dataclass
class Side:
    """What both sides build alike.

    device: where the engine or the optimiser works, and so does the policy - but vLLM holds weights of its own there: what
    it takes them from is the copy in memory that the weight channel is read into.
    """

    config: Config
    device: str
    policy: Policy
    train_prompts: list[tuple[int, ...]]
    requests: RequestFactory
    train_grader: Grader
    evaluated: list[EvaluationSet]

    @classmethod
    def build(cls, spec: RunSpec, side: Literal["generator", "trainer"], number: int = 0) -> Side:
        """number: which generator."""
        config, trains = spec.config, side == "trainer"
        device = config.runtime.trainer_device if trains else config.runtime.generator_devices[number]
        policy_device = "cpu" if side == "generator" and config.rollout.engine == "vllm" else device
        _prepare_torch(config, policy_device)
        model = config.model
        folder = spec.model if trains else spec.start_model  # a generator's weights come by the channel
        policy = Policy.load(folder, model.dtype, policy_device, model.fp32_head_of(side), model.chat_template)
        if trains and model.lora_rank:
            policy.add_adapters(model.lora_rank, model.lora_alpha, model.lora_targets, config.seed)
        task = load_task(config.task.name, **config.task.options)
        interruption = build_interruption(config.rollout, policy)
        train_grader, held_out_grader = make_graders(task, config.task)
        return cls(
            config,
            device,
            policy,
            [policy.prompt_ids(prompt.text) for prompt in task.train],
            RequestFactory(config.seed, config.rollout.max_new_tokens, interruption),
            train_grader,
            evaluation_sets(config, task, held_out_grader, policy),
        )

    @property
    def evaluated_prompts(self) -> list[tuple[int, ...]]:
        """Token ids of all that is evaluated, in the order of the evaluation board."""
        return [prompt for one in self.evaluated for prompt in one.prompts]

    @property
    def prompt_tokens(self) -> int:
        """Length of the longest prompt."""
        return max(len(prompt) for prompt in (*self.train_prompts, *self.evaluated_prompts))

    @property
    def prompts_digest(self) -> str:
        """SHA-256 of all prompts and their order: the curriculum and the evaluations mean prompts by their numbers."""
        text = json.dumps([self.train_prompts, self.evaluated_prompts])
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def evaluated_tokens(self) -> int:
        """Longest completion that an evaluation may ask for."""
        return max(one.requests.max_new_tokens for one in self.evaluated)

    def engine(self) -> Engine:
        """The configured engine, for the training prompts; one for an evaluation fits beside it."""
        return build_engine(self.config.rollout, self.policy, self.prompt_tokens, self.evaluated_tokens, self.device)

    def evaluation_worker(
        self, board: EvaluationBoard, control: Control, role: str, engine: Engine
    ) -> EvaluationWorker:
        return EvaluationWorker(
            board,
            control.roles.index(role),
            engine,
            self.policy,
            self.evaluated,
            lambda: _beat_or_stop(control, role),
        )


def run_trainer(spec: RunSpec) -> None:
    """Main function of the trainer process."""
    control = Control.attach(spec.control)
    if spec.config.training.gradient_checkpointing and spec.config.runtime.trainer_device == "cpu":
        give_back_freed_blocks()
    side = Side.build(spec, "trainer")
    trainer = build_trainer(spec, side, control)
    logger.info("%s", estimate(side.policy, spec.config, side.prompt_tokens))
    garbage.set_aside()
    control.beat(TRAINER, Stage.WAITING)  # tells the generators that the segments are there
    reason = trainer.run()
    if reason:
        trainer.folder.update_record(reason=reason)
    control.request_stop("finished")
    control.beat(TRAINER, Stage.DONE)


def build_trainer(spec: RunSpec, side: Side, control: Control) -> Trainer:
    """A trainer with its segments created; continues `spec.resume` when there is one."""
    config, policy = spec.config, side.policy
    folder = RunFolder(spec.folder)
    if config.training.gradient_checkpointing:
        policy.checkpoint_activations()
    optimizer = Optimizer(policy.trained_tensors(), config.training)
    curriculum = Curriculum(len(side.train_prompts), config.seed, config.objective.no_positive_resampling)
    meter = ComputeMeter.of(policy, len(config.runtime.generator_devices) + 1)
    outstanding: dict[int, tuple[int, int]] = {}
    learner = Learner(policy, optimizer, config, _reference(spec))
    evaluated = [row["policy_version"] for row in read_rows(folder.evals)]
    if spec.resume:
        state = read_state(spec.resume)
        if state["prompts"] != side.prompts_digest:
            raise UserError(
                f"{spec.folder}: the prompts of task {config.task.name} are not those that the run began with; "
                "restore its data, or start anew with --out"
            )
        policy.version = state["version"]
        if policy.adapters:
            policy.restore_adapters(spec.resume)
        restore_optimizer(spec.resume, optimizer, state["updates"])
        optimizer.restore_scaler(state["loss_scaler"])
        learner.clipped_tokens.restore(state["clipped_tokens"])
        curriculum.restore(state["curriculum"])
        meter.restore(state["compute"])
        outstanding = {sequence: (prompt, epoch) for sequence, prompt, epoch in state["outstanding"]}
    gate = StalenessGate(config.pipeline.prompts_per_step, config.pipeline.largest_lag, policy.version)
    shape = BufferShape(gate.capacity, config.rollout.group_size, side.prompt_tokens, config.rollout.max_new_tokens)
    manifest = [
        TensorSpec(name, str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), tensor.nbytes)
        for name, tensor in policy.named_tensors().items()
    ]
    evaluation = config.evaluation
    board = EvaluationBoard.create(
        f"{spec.prefix}.evaluation", len(side.evaluated_prompts), evaluation.samples, spec.folder
    )
    worker = None
    if evaluation.trainer_helps and config.rollout.engine == "torch":
        rollout = config.rollout.model_copy(update={"max_new_tokens": side.evaluated_tokens})
        worker = side.evaluation_worker(board, control, TRAINER, build_engine(rollout, policy, side.prompt_tokens))
    generators = generator_roles(config)
    trainer = Trainer(
        config=config,
        folder=folder,
        policy=policy,
        learner=learner,
        curriculum=curriculum,
        gate=gate,
        buffer=RolloutBuffer.create(f"{spec.prefix}.rollouts", shape, spec.folder),
        channel=WeightChannel.create(f"{spec.prefix}.weights", manifest, spec.folder),
        control=control,
        evaluator=Evaluator(
            board,
            worker,
            control,
            folder,
            side.evaluated,
            config.runtime.wait_timeout_s,
            generators,
            newest=max(evaluated, default=-1),
        ),
        meter=meter,
        generators=generators,
        prompts_digest=side.prompts_digest,
        outstanding=outstanding,
    )
    if spec.resume:
        trainer.health.restore(state["health"])
    return trainer


def _reference(spec: RunSpec) -> Policy | None:
    """The frozen start model of the KL term, when there is one."""
    if not spec.config.objective.kl_coefficient:
        return None
    config = spec.config
    return Policy.load(
        spec.start_model, config.model.dtype, config.runtime.trainer_device, config.model.fp32_head_of("trainer")
    )


def run_generator(spec: RunSpec, number: int) -> None:
    """Main function of generator process `number`."""
    role = generator_roles(spec.config)[number]
    control = Control.attach(spec.control)
    side = Side.build(spec, "generator", number)
    engine = side.engine()
    try:
        wait_until(
            lambda: control.get(TRAINER, "loaded_version") >= 0,
            "the trainer's first weights",
            control=control,
            role=role,
            deadline_s=spec.config.runtime.wait_timeout_s,
            who=[TRAINER],
        )
    except Stopped:
        return
    generator = build_generator(spec, number, side, control, engine)
    generator.load()
    gap = check_engine(
        engine,
        side.policy,
        side.train_prompts,
        spec.config.rollout.temperature,
        int(control.get(role, "loaded_checksum")),
    )
    logger.info("engine %s: %s", spec.config.rollout.engine, gap)
    generator.run()
    control.beat(role, Stage.DONE)


def build_generator(spec: RunSpec, number: int, side: Side, control: Control, engine: Engine) -> Generator:
    """Generator `number`, attached to the segments that the trainer has created."""
    role = generator_roles(spec.config)[number]
    side.policy.version = -1  # nothing is sampled before the first published version is loaded
    board = EvaluationBoard.attach(spec.segment_path("evaluation"))
    return Generator(
        owner=number,
        role=role,
        policy=side.policy,
        weights=WeightBytes(side.policy),
        engine=engine,
        grader=side.train_grader,
        prompts=side.train_prompts,
        requests=side.requests,
        evaluation=side.evaluation_worker(board, control, role, engine.beside(side.evaluated_tokens)),
        buffer=RolloutBuffer.attach(spec.segment_path("rollouts")),
        channel=WeightChannel.attach(spec.segment_path("weights")),
        control=control,
        group_size=spec.config.rollout.group_size,
    )


def _beat_or_stop(control: Control, role: str) -> None:
    """Sign of life during an evaluation, which a Ctrl-C need not wait out; it is done again after a resume."""
    control.beat(role, Stage.EVALUATING)
    if control.stopping:
        raise Stopped(str(control.stop_reason))


def _prepare_torch(config: Config, device: str) -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(config.runtime.threads)
    torch.manual_seed(config.seed)
    use(device)
