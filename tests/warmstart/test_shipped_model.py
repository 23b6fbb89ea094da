"""The model folder that comes with the package is a stock one and does what its README says."""

from __future__ import annotations

from importlib.resources import files

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from scalerl_mini.tasks.arithmetic import Arithmetic
from scalerl_mini.warmstart.model import SIZES, build_model
from scalerl_mini.warmstart.tokenizer import VOCABULARY

FOLDER = str(files("scalerl_mini") / "models" / "tiny-adder")


@pytest.fixture(scope="module")
def model():
    return AutoModelForCausalLM.from_pretrained(FOLDER)


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(FOLDER)


def test_it_is_the_tiny_qwen3_in_fp32(model) -> None:
    reference = build_model(SIZES["tiny"], seed=0)
    assert type(model) is type(reference)
    assert model.dtype == torch.float32
    assert {name: tensor.shape for name, tensor in model.state_dict().items()} == {
        name: tensor.shape for name, tensor in reference.state_dict().items()
    }
    assert model.lm_head.weight is not model.model.embed_tokens.weight


def test_generation_stops_at_eos(model, tokenizer) -> None:
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id == VOCABULARY["<eos>"]
    assert model.generation_config.pad_token_id == tokenizer.pad_token_id


def test_no_file_is_pickled() -> None:
    names = {path.name for path in (files("scalerl_mini") / "models" / "tiny-adder").iterdir()}
    assert names == {
        "README.md",
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }


def test_it_writes_columns_but_is_careless(model, tokenizer) -> None:
    """40 held-out prompts x 4 samples: some right, most wrong, nearly all of the right form."""
    task = Arithmetic()
    rewards, closed = [], 0
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for prompt in task.held_out[:40]:
            ids = torch.tensor([tokenizer.encode(prompt.text)])
            out = model.generate(ids, max_new_tokens=60, num_return_sequences=4, top_k=0)
            texts = tokenizer.batch_decode(out[:, ids.shape[1] :])
            rewards += [task.grade(prompt, text) for text in texts]
            closed += sum("</think>" in text for text in texts)
    assert 0.03 <= sum(rewards) / len(rewards) <= 0.30
    assert closed >= 0.85 * len(rewards)


def test_it_can_do_a_sum_it_never_saw(model, tokenizer) -> None:
    """Among 64 samples of a held-out problem at least one is right: there is something to reinforce."""
    task = Arithmetic(train_prompts=5, held_out_prompts=5)
    prompt = task.held_out[1]
    ids = torch.tensor([tokenizer.encode(prompt.text)])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        out = model.generate(ids, max_new_tokens=60, num_return_sequences=64, top_k=0)
    texts = tokenizer.batch_decode(out[:, ids.shape[1] :])
    assert any(task.grade(prompt, text) for text in texts)
