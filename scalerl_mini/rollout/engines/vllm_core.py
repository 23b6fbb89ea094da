"""vLLM's own engine, in this process and this thread, reduced to what `VllmEngine` needs; nothing else imports vLLM.

    start(ids) ─► one step: schedule, forward, sample ─► Sampled(token, log-probability, end)
                     ▲
    load(weights) ───┘ between two steps: the key-value cache is kept, and so are the running sequences

It starts with random weights and takes every version, the first included, from the policy, so what the start-up check
sees is what a push has brought. Its cache holds all slots at their full length: nothing is preempted, so keys and values
are never computed a second time under other weights.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

import torch

from scalerl_mini.errors import UserError, WouldComeAgain
from scalerl_mini.policy.model import Policy

if TYPE_CHECKING:
    from scalerl_mini.rollout.engines.vllm_engine import VllmEngine

BLOCK_TOKENS = 32  # of the paged cache; what of a prompt fills a block is shared by its group
STEP_TOKENS = 8192  # prompts that start in one step, in tokens; the rest starts in the next
ENDS: dict[str, Literal["eos", "length"]] = {"stop": "eos", "length": "length"}


@dataclass(frozen=True)
class Sampled:
    """One token of the sequence `name`; logprob: under the sampling distribution; end: why it was the last, or None."""

    name: str
    token: int
    logprob: float
    end: Literal["eos", "length"] | None


class Core(Protocol):
    """What `VllmEngine` asks for. version: of the weights it holds, None before the first; user: who stepped last."""

    version: int | None
    user: VllmEngine | None

    def load(self, policy: Policy) -> None:
        """Take over the policy's weights and version."""

    def start(self, ids: Iterable[int], most: int, seed: int, salt: str) -> str:
        """Have a sequence continued by up to `most` tokens; returns its name. Prefixes are shared within a `salt`."""

    def stop(self, names: list[str]) -> None:
        """Forget sequences."""

    def step(self) -> list[Sampled]:
        """At most one token for each sequence; one that ended is forgotten."""


class VllmCore:
    """`Core` over `LLMEngine`."""

    def __init__(self, policy: Policy, slots: int, longest: int, temperature: float, device: str = "cpu") -> None:
        """longest: tokens of a prompt and its completion together; temperature 0 is greedy.

        Raises UserError when vLLM cannot serve the model; WouldComeAgain when it computes logits in another precision.
        """
        if policy.active_experts < 1:
            raise UserError("rollout.engine = 'vllm' cannot take the weights of a mixture of experts; use torch")
        _prepare_environment(device)
        try:
            from vllm import EngineArgs, LLMEngine, SamplingParams
            from vllm.inputs.engine import tokens_input
            from vllm.sampling_params import RequestOutputKind
        except Exception as error:  # a torchvision built for another torch fails in more than one way
            raise UserError(f"vLLM is installed and cannot be imported ({error}); see docs/engines.md") from error
        logging.getLogger("vllm.model_executor.model_loader.reload").setLevel(logging.ERROR)  # misses rotary "weights"
        self.version: int | None = None
        self.user: VllmEngine | None = None
        self._names = 0
        self._tokens_input = tokens_input
        self._params = lambda most, seed: SamplingParams(
            temperature=temperature,
            max_tokens=most,
            seed=seed,
            stop_token_ids=sorted(policy.eos_ids),
            ignore_eos=True,
            logprobs=0,
            detokenize=False,
            output_kind=RequestOutputKind.DELTA,
        )
        dtype = policy.body.dtype
        head = torch.float32 if policy.fp32_head else dtype
        with tempfile.TemporaryDirectory(prefix="scalerl-vllm-") as folder:
            _save_config(policy, folder)
            arguments = EngineArgs(
                model=folder,
                load_format="dummy",
                skip_tokenizer_init=True,
                generation_config="vllm",
                dtype=_name(dtype),
                hf_overrides={"head_dtype": _name(head)},
                max_model_len=longest,
                max_num_seqs=slots,
                max_num_batched_tokens=max(STEP_TOKENS, slots),
                block_size=BLOCK_TOKENS,
                num_gpu_blocks_override=1 + slots * -(-longest // BLOCK_TOKENS),
                kv_cache_memory_bytes=1,  # blocks are counted above; any size here saves vLLM from measuring
                gpu_memory_utilization=0.05,
                enable_prefix_caching=True,
                logprobs_mode="processed_logprobs",
                async_scheduling=False,
                enforce_eager=device == "cpu",
                disable_log_stats=True,
            )
            self._engine = LLMEngine.from_engine_args(arguments)
        found = self._engine.model_config.head_dtype
        if found != head:
            raise WouldComeAgain(f"vLLM computes logits in {_name(found)} where {_name(head)} is configured")

    def load(self, policy: Policy) -> None:
        weights = iter(checkpoint_tensors(policy).items())
        self._engine.collective_rpc("reload_weights", kwargs={"weights_iterator": weights})
        self.version = policy.version

    def start(self, ids: Iterable[int], most: int, seed: int, salt: str) -> str:
        self._names += 1
        name = str(self._names)
        self._engine.add_request(name, self._tokens_input(list(ids), cache_salt=salt), self._params(most, seed))
        return name

    def stop(self, names: list[str]) -> None:
        self._engine.abort_request(names)

    def step(self) -> list[Sampled]:
        return [_sampled(output) for output in self._engine.step()]


def checkpoint_tensors(policy: Policy) -> Mapping[str, torch.Tensor]:
    """The policy's tensors by the names of its checkpoint, and the head under its own name even where it is tied: on the
    CPU vLLM keeps a repacked copy of the head, which would stay old."""
    head = policy.model.get_output_embeddings()
    name = next(name for name, module in policy.model.named_modules() if module is head)
    tensors = {name: tensor.detach() for name, tensor in policy.named_tensors().items()}
    return {**tensors, f"{name}.weight": policy.head_weight.detach()}


def visible_device(device: str, visible: str | None) -> str:
    """CUDA_VISIBLE_DEVICES that shows `device` ("cuda", "cuda:N") alone; visible: its value so far, or None."""
    index = torch.device(device).index or 0
    return visible.split(",")[index] if visible else str(index)


def _prepare_environment(device: str) -> None:
    """What vLLM reads from the environment, before it is imported."""
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # engine in this process
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    if device == "cpu":
        torch.compiler.set_stance("force_eager")  # its one compiled function costs up to 24 s at the first token
    else:
        os.environ["CUDA_VISIBLE_DEVICES"] = visible_device(device, os.environ.get("CUDA_VISIBLE_DEVICES"))


def _save_config(policy: Policy, folder: str) -> None:
    """All that vLLM reads of the model: its shape. Quantisation is undone in a policy's own tensors."""
    config = type(policy.config).from_dict(policy.config.to_dict())
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    config.architectures = [type(policy.model).__name__]
    config.save_pretrained(folder)


def _sampled(output: Any) -> Sampled:
    (completion,) = output.outputs
    (token,), (logprobs,) = completion.token_ids, completion.logprobs
    reason = completion.finish_reason
    if reason is not None and reason not in ENDS:
        raise RuntimeError(f"vLLM ended a completion with {reason!r}")
    return Sampled(output.request_id, token, logprobs[token].logprob, ENDS[reason] if reason else None)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
