"""Sampled against rescored before the first update: an error for an fp32 body, a sentence for the others."""

from __future__ import annotations

import pytest

from scalerl_mini.config_groups import ModelConfig
from scalerl_mini.errors import WouldComeAgain
from scalerl_mini.training.self_check import self_check, self_check_lines


def gaps(mean: float | None, largest: float | None) -> dict[str, float | None]:
    return {"logprob_gap_mean": mean, "logprob_gap_max": largest}


def test_fp32_sides_that_disagree_end_the_run() -> None:
    self_check(gaps(1e-7, 9e-4), ModelConfig())
    with pytest.raises(WouldComeAgain, match=r"a log-probability differs by 0\.0020 where less than 0\.001"):
        self_check(gaps(1e-7, 2e-3), ModelConfig())


def test_a_mixture_is_judged_by_its_mean() -> None:
    """One token whose second expert was chosen by a rounding error is no fault of either side."""
    self_check(gaps(5e-5, 0.3), ModelConfig(), experts=True)
    with pytest.raises(WouldComeAgain, match=r"the mean log-probability differs by 0\.0002"):
        self_check(gaps(2e-4, 0.3), ModelConfig(), experts=True)


def test_low_precision_and_an_empty_batch_pass() -> None:
    self_check(gaps(0.1, 2.0), ModelConfig(dtype="bfloat16"))
    self_check(gaps(None, None), ModelConfig())


def test_the_line_names_the_setting_and_a_wide_gap_its_remedy() -> None:
    (line,) = self_check_lines(gaps(2e-4, 3e-3), ModelConfig(dtype="float16"))
    assert "float16 body, fp32 head on both sides" in line
    assert "differ by 2.0e-04, at most 3.0e-03" in line
    warning = self_check_lines(gaps(0.02, 0.5), ModelConfig(dtype="bfloat16", fp32_head="none"))[1]
    assert "try model.fp32_head = both" in warning
    warning = self_check_lines(gaps(0.02, 0.5), ModelConfig(dtype="bfloat16"))[1]
    assert "try model.dtype = float16 or float32" in warning
