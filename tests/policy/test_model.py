"""The policy as a whole: scoring, loading, saving, and models it must refuse."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, MistralConfig, Qwen2Config

from scalerl_mini.errors import UserError
from scalerl_mini.policy import Policy
from tests.policy.tiny import EOS, Tiny, plain, plain_logprobs, tiny_policy

ROWS = [[1, 5, 7, 9, 2], [1, 6, 4], [1, 8, 8, 8, 8, 3, 2]]


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("tiny", [Tiny("llama", tied=True), Tiny("qwen2", kv_heads=4), Tiny("qwen3")])
@torch.no_grad()
def test_score_is_the_log_softmax_of_plain_transformers(tiny: Tiny, temperature: float) -> None:
    policy = tiny_policy(tiny)
    targets = torch.tensor([1, 3, 4, 6, 7, 9, 14])  # places in the flat row: of row 0, of row 1 (5..7), of row 2
    lengths = torch.tensor([len(row) for row in ROWS])
    logprobs, entropy = policy.score(
        torch.tensor([token for row in ROWS for token in row]), lengths, targets, temperature
    )
    model = plain(policy)
    tables = [plain_logprobs(model, row, temperature) for row in ROWS]
    places = [(0, 1), (0, 3), (0, 4), (1, 1), (1, 2), (2, 1), (2, 6)]
    expected = torch.stack([tables[row][at - 1, ROWS[row][at]] for row, at in places])
    assert torch.allclose(logprobs, expected, atol=1e-5)
    spread = torch.stack([-(tables[row][at - 1].exp() * tables[row][at - 1]).sum() for row, at in places])
    assert torch.allclose(entropy, spread, atol=1e-5)


@pytest.fixture
def transition() -> Policy:
    """A policy whose next token depends on the last one alone, by a known matrix: all layers add nothing, the final
    norm scales each one-hot embedding to sqrt(2), and the head undoes that."""
    policy = tiny_policy(Tiny("llama", hidden=8, heads=4, kv_heads=4))
    with torch.no_grad():
        for layer in policy.body.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        policy.body.embed_tokens.weight.zero_()
        policy.body.embed_tokens.weight[0, 0] = policy.body.embed_tokens.weight[1, 1] = 1.0
        policy.body.norm.weight.fill_(1.0)
        policy.head_weight.fill_(0.0)
        policy.head_weight[:, :2] = -100.0
        policy.head_weight[:2, :2] = TRANSITIONS.log().T / 8**0.5  # [next, last]; rms of a one-hot of 8 is 8**-0.5
    return policy


TRANSITIONS = torch.tensor([[0.9, 0.1], [0.3, 0.7]])  # [last, next]


@torch.no_grad()
def test_two_tokens_with_a_known_transition_matrix(transition: Policy) -> None:
    """Each completion token is scored from the token before it, the first one from the end of its own prompt."""
    ids, lengths = torch.tensor([0, 1, 0, 0, 1, 1, 0]), torch.tensor([4, 3])  # 01|00 and 1|10
    logprobs, entropy = transition.score(ids, lengths, torch.tensor([2, 3, 5, 6]), 1.0)
    assert logprobs.exp().tolist() == pytest.approx([0.3, 0.9, 0.7, 0.3], abs=1e-4)
    assert entropy[1].item() == pytest.approx(-(0.9 * math.log(0.9) + 0.1 * math.log(0.1)), abs=1e-4)
    halved, _ = transition.score(ids, lengths, torch.tensor([3]), 0.5)
    assert halved.exp().item() == pytest.approx(0.81 / (0.81 + 0.01), abs=1e-4)


def test_scoring_the_first_completion_token_reaches_the_weights(transition: Policy) -> None:
    logprobs, _ = transition.score(torch.tensor([0, 1, 0]), torch.tensor([3]), torch.tensor([1]), 1.0)
    logprobs.sum().backward()
    # d log p(1 | 0) / d logits = onehot(1) - p: the head's rows 0 and 1 move by -+0.9 times the hidden state sqrt(8)
    assert transition.head_weight.grad[:2, 0].tolist() == pytest.approx([-0.9 * 8**0.5, 0.9 * 8**0.5], rel=1e-3)
    assert transition.head_weight.grad[:, 1].abs().max() == 0


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_saved_policy_loads_again_here_and_in_plain_transformers(tmp_path: Path, tied: bool, dtype: str) -> None:
    policy = tiny_policy(Tiny(tied=tied, dtype=dtype))
    policy.save(tmp_path)
    again = Policy.load(tmp_path, dtype=dtype)
    assert again.named_tensors().keys() == policy.named_tensors().keys()
    for name, tensor in policy.named_tensors().items():
        assert torch.equal(again.named_tensors()[name], tensor), name
    assert (again.head_weight is again.model.get_input_embeddings().weight) == tied
    assert "ragged" not in (tmp_path / "config.json").read_text(encoding="utf-8")
    stock = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    expected = plain_logprobs(plain(policy).float(), ROWS[2])
    assert torch.allclose(plain_logprobs(stock, ROWS[2]), expected, atol=1e-5)


def test_text_and_ids_round_trip(qwen3: Policy) -> None:
    text = "<bos>12+30=<think>2+0=2 1+3=4</think>42<eos>"
    ids = qwen3.encode(text)
    assert qwen3.decode(ids) == text
    assert ids[-1] == EOS
    assert ids.count(1) == 1  # exactly the <bos> of the text


def test_every_end_token_of_the_generation_config_counts() -> None:
    policy = tiny_policy(Tiny())
    policy.model.generation_config.eos_token_id = [2, 5]
    assert policy.eos_ids == {2, 5}
    policy.model.generation_config.eos_token_id = 7
    assert policy.eos_ids == {7}
    policy.model.generation_config.eos_token_id = None
    assert policy.eos_ids == {EOS}


def refused_config(folder: Path, **changes: object) -> str:
    """The message with which a saved model with changed configuration values is refused."""
    tiny_policy(Tiny("qwen2")).save(folder)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps(config | changes), encoding="utf-8")
    with pytest.raises(UserError) as error:
        Policy.load(folder)
    return str(error.value)


@pytest.mark.parametrize("key", ["final_logit_softcapping", "logits_scaling", "logit_scale", "attn_logit_softcapping"])
def test_models_with_more_than_a_linear_head_are_refused(tmp_path: Path, key: str) -> None:
    message = refused_config(tmp_path, **{key: 30.0})
    assert key in message
    assert "\n" not in message


@pytest.mark.parametrize("kind", ["sliding_attention", "chunked_attention", "linear_attention"])
def test_layers_without_full_attention_are_refused(tmp_path: Path, kind: str) -> None:
    assert kind in refused_config(tmp_path, layer_types=["full_attention", kind])


def test_a_sliding_window_without_layer_types_is_refused(tmp_path: Path) -> None:
    """Mistral states its window by one number and has no `layer_types`."""
    config = MistralConfig(
        vocab_size=24, hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, sliding_window=4, max_position_embeddings=64, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    folder = tmp_path / "model"
    Policy(AutoModelForCausalLM.from_config(config), tiny_policy(Tiny()).tokenizer).save(folder)
    with pytest.raises(UserError, match="sliding_window"):
        Policy.load(folder)


@pytest.mark.parametrize("rope_type", ["dynamic", "longrope"])
def test_rotary_angles_that_depend_on_the_batch_are_refused(tmp_path: Path, rope_type: str) -> None:
    """They are computed for the longest sequence of a batch, so a completion would be scored by its neighbours."""
    rope = {"rope_type": rope_type, "rope_theta": 1e4, "factor": 2.0, "original_max_position_embeddings": 64}
    message = refused_config(tmp_path, rope_parameters=rope | {"short_factor": [1.0] * 4, "long_factor": [2.0] * 4})
    assert rope_type in message


def test_a_model_with_all_layers_full_is_not_refused(tmp_path: Path) -> None:
    assert set(Qwen2Config().layer_types) == {"full_attention"}
    tiny_policy(Tiny("qwen2")).save(tmp_path)
    assert Policy.load(tmp_path).version == 0


def test_a_folder_that_is_no_model_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has no config\.json") as error:
        Policy.load(tmp_path)
    assert "\n" not in str(error.value)
