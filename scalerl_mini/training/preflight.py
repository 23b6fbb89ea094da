"""Everything that can be refused before a run starts, in one clear line each, without importing torch.

A mistake found here costs a second and leaves nothing behind; found by the trainer it would cost a minute and a traceback.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scalerl_mini.chat import chat_ids, check_chat_template
from scalerl_mini.config import Config
from scalerl_mini.config_groups import RolloutConfig
from scalerl_mini.errors import UserError
from scalerl_mini.gpu import ask_gpus
from scalerl_mini.model_folder import check_model_folder, read_json
from scalerl_mini.rollout.vllm_package import check_heads, check_vllm
from scalerl_mini.tasks import Task, load_task
from scalerl_mini.training.extras import check_packages
from scalerl_mini.training.placement import check_placement

MODELS = Path(__file__).parents[1] / "models"
log = logging.getLogger(__name__)

DOWNLOAD = ("*.safetensors", "*.json", "*.txt", "*.model", "*.jinja")


def preflight(config: Config) -> Path:
    """Check a configuration against its model and task; returns the model's folder. Raises UserError."""
    _check_slots(config)
    check_packages(config)
    if config.rollout.engine == "vllm":
        for device in config.runtime.generator_devices:
            check_vllm(device)
    folder = resolve_model(config.model.name)
    check_weights(folder)
    if config.rollout.engine == "vllm":
        for device in config.runtime.generator_devices:
            check_heads(read_json(folder / "config.json"), device)
    task = load_task(config.task.name, **config.task.options)
    check_prompts(task)
    note_repeats(task)
    needed, found = config.pipeline.prompts_per_step, len(task.train)
    if needed > found:
        raise UserError(
            f"pipeline.prompts_per_step = {needed} is larger than the training set of task {config.task.name} "
            f"({found} prompts); lower it or give the task more prompts"
        )
    if config.evaluation.prompts > len(task.held_out):
        raise UserError(
            f"evaluation.prompts = {config.evaluation.prompts} but task {config.task.name} holds out "
            f"{len(task.held_out)} prompts; set evaluation.prompts={len(task.held_out)}, or let the task hold out more"
        )
    tokenizer = Tokenizer(folder, config.model.chat_template)
    check_lengths(task, config.rollout, folder, tokenizer)
    if config.evaluation.downstream.prompts:
        _check_downstream(config, task, folder, tokenizer)
    check_placement(config, ask_gpus)
    return folder


def resolve_model(name: str) -> Path:
    """The local folder of a model: builtin:NAME, a folder, or a hub name (taken from the local cache or downloaded)."""
    if name.startswith("builtin:"):
        known = {f"builtin:{path.name}": path for path in sorted(MODELS.iterdir()) if path.is_dir()}
        if name not in known:
            raise UserError(f"model.name = {name!r} is unknown; built in: {', '.join(known)}")
        return known[name]
    folder = Path(name)
    if not folder.is_dir() and name.count("/") == 1 and not name.startswith((".", "/", "~")):
        folder = _from_hub(name)
    if not folder.is_dir():
        raise UserError(
            f"model folder {name} does not exist; set model.name to a Hugging Face folder or builtin:tiny-adder"
        )
    check_model_folder(folder)
    return folder


def _from_hub(name: str) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=list(DOWNLOAD)))
    except Exception as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"model {name} is neither a folder here nor to be had from the hub ({reason})") from error


def check_weights(folder: Path) -> None:
    """The files open as what they should be: a download that broke off is found here, not by the trainer."""
    from safetensors import SafetensorError, safe_open

    for path in folder.glob("*.safetensors"):
        try:
            safe_open(path, framework="numpy")
        except SafetensorError as error:
            raise UserError(f"model weights {path} cannot be read ({error}); copy or download them again") from None


def check_prompts(task: Task) -> None:
    """Both sets are sequences of prompts with text: a class of the user's own may hold anything."""
    for part in ("train", "held_out"):
        prompts = getattr(task, part)
        if not isinstance(prompts, Sequence):
            raise UserError(f"task {task.name}: {part} is a {type(prompts).__name__}; make it a list of Prompt")
        for number, prompt in enumerate(prompts):
            if not (isinstance(getattr(prompt, "text", None), str) and isinstance(getattr(prompt, "level", None), str)):
                raise UserError(
                    f"task {task.name}: {part}[{number}] is {prompt!r:.80}; make it a Prompt of three texts"
                )


def note_repeats(task: Task) -> None:
    """Say what a task dropped because it was there twice, or held out as well."""
    if repeats := getattr(task, "repeats", 0):
        log.warning("task %s: prompts dropped, met twice or also held out: %d", task.name, repeats)


def check_lengths(task: Task, rollout: RolloutConfig, folder: Path, tokenizer: Tokenizer) -> None:
    """The longest prompt, the longest completion and the interruption fit each other and the model's context."""
    _check_interruption(rollout, tokenizer)
    _check_context(rollout, folder, _longest_prompt(task, tokenizer))


def _longest_prompt(task: Task, tokenizer: Tokenizer) -> int:
    counts = []
    for prompt in (*task.train, *task.held_out):
        counts.append(tokenizer.count_prompt(prompt.text))
        if not counts[-1]:
            raise UserError(f"task {task.name}: prompt {prompt.text!r} has no tokens; begin it with a special token")
    return max(counts)


class Tokenizer:
    """Counts tokens; uses the small `tokenizers` library where it can, `transformers` only where it must: for a chat
    template, and where there is no tokenizer.json."""

    def __init__(self, folder: Path, chat_template: bool) -> None:
        self.with_template = None
        try:
            if chat_template:
                self.with_template = self._load_with_transformers(folder)
            self.encode = self._load(folder)
        except Exception as error:  # tokenizers raises plain Exception
            reason = str(error).partition("\n")[0]
            raise UserError(
                f"model folder {folder} has no tokenizer that can be read ({reason}); add its files"
            ) from error
        if chat_template:
            check_chat_template(self.with_template, folder)

    @classmethod
    def _load(cls, folder: Path) -> Any:
        if (folder / "tokenizer.json").exists():
            from tokenizers import Tokenizer

            return Tokenizer.from_file(str(folder / "tokenizer.json")).encode
        return cls._load_with_transformers(folder).encode

    @staticmethod
    def _load_with_transformers(folder: Path) -> Any:
        if not [*folder.glob("tokenizer*"), *folder.glob("vocab*")]:
            raise FileNotFoundError("there are no tokenizer files")  # transformers would make up an empty one
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(folder, trust_remote_code=False)

    def count_prompt(self, text: str) -> int:
        """Tokens of a task's prompt, the chat template's included where there is one."""
        return len(chat_ids(self.with_template, text)) if self.with_template else self.count(text)

    def count(self, text: str) -> int:
        try:
            ids = self.encode(text, add_special_tokens=False)
        except Exception as error:  # a vocabulary without these characters and without an unknown token
            raise UserError(
                f"the model's tokenizer cannot encode {text!r} ({error}); use characters it knows"
            ) from error
        return len(getattr(ids, "ids", ids))


def _check_slots(config: Config) -> None:
    for key, count in (
        ("rollout.group_size", config.rollout.group_size),
        ("evaluation.samples", config.evaluation.samples),
    ):
        if count > config.rollout.slots:
            raise UserError(f"{key} = {count} does not fit rollout.slots = {config.rollout.slots}; raise the slots")


def _check_downstream(config: Config, trained: Task, folder: Path, tokenizer: Tokenizer) -> None:
    """The same checks for the downstream task; and that none of its prompts is trained, or it would not be downstream."""
    downstream = config.evaluation.downstream
    rollout = downstream.rollout(config.rollout)
    try:
        task = load_task(downstream.name, **downstream.options)
        check_prompts(task)
        check_lengths(task, rollout, folder, tokenizer)
    except UserError as error:
        raise UserError(
            f"evaluation.downstream, whose keys stand in the place of task's and rollout's: {error}"
        ) from None
    if downstream.prompts > len(task.held_out):
        raise UserError(
            f"evaluation.downstream.prompts = {downstream.prompts} but task {downstream.name} holds out "
            f"{len(task.held_out)} prompts; lower it or let the task hold out more"
        )
    known = {prompt.text for prompt in trained.train}
    shared = sum(prompt.text in known for prompt in task.held_out[: downstream.prompts])
    if shared:
        raise UserError(
            f"evaluation.downstream: {shared} of its {downstream.prompts} prompts are training prompts of task "
            f"{config.task.name}; change evaluation.downstream.options or task.options"
        )


def _check_interruption(rollout: RolloutConfig, tokenizer: Tokenizer) -> None:
    options = rollout.interruption
    if not options.enabled:
        return
    for key, text in (("phrase", options.phrase), ("think_end", options.think_end)):
        if tokenizer.count(text) == 0:
            raise UserError(f"rollout.interruption.{key} = {text!r} has no tokens; set it, or set enabled to false")
    needed = options.max_tokens + tokenizer.count(options.phrase) + 1
    if needed > rollout.max_new_tokens:
        raise UserError(
            f"rollout.max_new_tokens = {rollout.max_new_tokens} leaves no room for an answer after "
            f"interruption.max_tokens = {options.max_tokens} and the phrase; raise it to more than {needed - 1}"
        )


def _check_context(rollout: RolloutConfig, folder: Path, prompt_tokens: int) -> None:
    limit = read_json(folder / "config.json").get("max_position_embeddings")
    needed = prompt_tokens + rollout.max_new_tokens
    if limit is not None and needed > limit:
        raise UserError(
            f"rollout.max_new_tokens = {rollout.max_new_tokens} and prompts of {prompt_tokens} tokens need a context "
            f"of {needed}, the model has {limit}; "
            + (
                f"lower rollout.max_new_tokens to {limit - prompt_tokens} or less"
                if limit > prompt_tokens
                else "choose a model with a longer context or a task with shorter prompts"
            )
        )
