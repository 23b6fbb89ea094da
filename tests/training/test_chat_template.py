"""`model.chat_template`: prompts of training and evaluation in the model's own chat template, applied exactly once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import processors

from scalerl_mini.chat import chat_ids
from scalerl_mini.config import Config, load_config
from scalerl_mini.errors import UserError
from scalerl_mini.evaluating import running
from scalerl_mini.evaluating.subject import find_subject
from scalerl_mini.policy import Policy
from scalerl_mini.tasks import Prompt
from scalerl_mini.training.preflight import preflight
from scalerl_mini.warmstart.tokenizer import VOCABULARY, build_tokenizer
from tests.fakes import uniform_model
from tests.training.loop import SMALL, Loop

BOS = VOCABULARY["<bos>"]
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}({{ message['content'] }}){% endfor %}"
    "{% if add_generation_prompt %}<think>{% endif %}"
)


def chat_tokenizer(template: str = TEMPLATE) -> Any:
    """The tokenizer of 24 tokens, with a chat template; like Llama's it puts <bos> before a text by itself."""
    tokenizer = build_tokenizer()
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<bos> $A", special_tokens=[("<bos>", BOS)]
    )
    tokenizer.chat_template = template
    return tokenizer


def with_template(folder: Path, template: str = TEMPLATE) -> Path:
    """A model folder whose tokenizer has a chat template."""
    chat_tokenizer(template).save_pretrained(uniform_model(folder))
    return folder


def test_the_template_stands_around_the_prompt_once_with_one_begin() -> None:
    tokenizer = chat_tokenizer()
    ids = chat_ids(tokenizer, "1+2=")
    assert tokenizer.decode(ids) == "<bos>(1+2=)<think>"
    assert ids.count(BOS) == 1
    assert tokenizer("1").input_ids == [BOS, VOCABULARY["1"]], "the tokenizer adds a <bos>, or this shows nothing"


def test_a_policy_asks_with_the_template_or_without(tmp_path: Path) -> None:
    for chat_template, asked in ((True, "<bos>(1+2=)<think>"), (False, "1+2=")):
        policy = Policy.load(with_template(tmp_path), chat_template=chat_template)
        assert policy.decode(policy.prompt_ids("1+2=")) == asked


class Plain:
    """Prompts without a single special token."""

    name = "plain"
    trusted = True
    train = tuple(Prompt(f"{number}", "", "all") for number in range(12))
    held_out = tuple(Prompt(f"{number}+", "", "all") for number in range(5))

    def grade(self, prompt: Prompt, completion: str) -> float:
        return float(completion[0] in "02468")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """The model of `make_loop`."""
    return with_template(tmp_path / "model")


def test_training_held_out_and_downstream_prompts_are_asked_alike(make_loop: Callable[..., Loop]) -> None:
    task = "tests.training.test_chat_template:Plain"
    downstream = ("evaluation.downstream.prompts=2", f"evaluation.downstream.name={task}")
    loop = make_loop("model.chat_template=true", f"task.name={task}", *downstream)
    (generator,) = loop.generators
    decode = generator.policy.decode
    assert {decode(ids) for ids in generator.prompts} == {f"<bos>({number})<think>" for number in range(12)}
    asked = {one.role: {decode(ids) for ids in one.prompts} for one in generator.evaluation.sets}
    assert asked["held-out"] == {f"<bos>({number}+)<think>" for number in range(5)}
    assert asked["downstream"] == {f"<bos>({number}+)<think>" for number in range(2)}
    loop.run()
    assert loop.trainer.policy.version == 6


def test_scalerl_mini_eval_asks_like_the_run(model: Path) -> None:
    subject = find_subject(str(model), settings=("model.chat_template=true",))
    policy = running._load(subject)
    assert policy.decode(policy.prompt_ids("1+2=")) == "<bos>(1+2=)<think>"


def settings(folder: Path, *more: str) -> Config:
    return load_config(None, (*SMALL, f'model.name="{folder}"', "model.chat_template=true", *more))


def test_a_tokenizer_without_a_template_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"model\.chat_template = true, but the tokenizer of .* has no chat template"):
        preflight(settings(uniform_model(tmp_path)))


def test_a_template_that_wants_another_conversation_is_refused(tmp_path: Path) -> None:
    with_template(tmp_path, "{{ raise_exception('a system message first') }}")
    with pytest.raises(UserError, match=r"prompt '<bos>0=' cannot be put into .*a system message first"):
        preflight(settings(tmp_path))


def test_the_template_counts_for_the_context(tmp_path: Path) -> None:
    with_template(tmp_path, TEMPLATE.replace("(", "(" + "<think>" * 120))
    with pytest.raises(UserError, match=r"need a context of .*, the model has 128"):
        preflight(settings(tmp_path))
    preflight(load_config(None, (*SMALL, f'model.name="{tmp_path}"')))
