"""A run with lag that was killed: other completions, but the same prompts in the same order, and a compute that goes on."""

from __future__ import annotations

import itertools
import json
import os
import signal
from collections import Counter
from pathlib import Path

import pytest

from scalerl_mini.rollout.curriculum import Curriculum
from scalerl_mini.training.row_log import read_rows
from tests.end_to_end.command import TINY, steps_done
from tests.end_to_end.conftest import Launch

pytestmark = pytest.mark.slow

STEPS, PROMPTS, A_STEP, K = 24, 20, 4, 3
SETTINGS = (
    *TINY,
    f"training.steps={STEPS}",
    f"pipeline.prompts_per_step={A_STEP}",
    f"pipeline.k={K}",
    f"task.options={{train_prompts={PROMPTS}, held_out_prompts=20}}",
    "objective.no_positive_resampling=false",
    "runtime.checkpoint_every=5",
    "runtime.generators=2",
    "seed=0",
)


def test_a_killed_run_trains_every_prompt_once_an_epoch_and_its_compute_goes_on(launch: Launch, tmp_path: Path) -> None:
    """The whole of it is killed once, its trainer twice, a generator once; five steps make an epoch."""
    folder = tmp_path / "run"
    run = launch("--out", str(folder), settings=SETTINGS)
    run.wait_for(lambda: steps_done(folder) >= 7, "seven steps")
    os.killpg(run.process.pid, signal.SIGKILL)
    run.end()
    run = launch("--resume", str(folder))
    for done, role in ((9, "trainer"), (13, "generator-1"), (17, "trainer")):
        run.wait_for(lambda done=done: steps_done(folder) >= done, f"{done} steps")  # type: ignore[misc]
        run.role(role).send_signal(signal.SIGKILL)
        run.wait_for(lambda role=role: f"{role} was killed" in run.text.replace("\n", " "), f"the end of {role}")
    code, text = run.end()
    assert code == 0, text
    assert len(json.loads((folder / "run.json").read_text())["deaths"]) == 3

    steps, rewound = read_rows(folder / "steps.jsonl"), read_rows(folder / "steps.rewound.jsonl")
    assert [row["step"] for row in steps] == list(range(1, STEPS + 1))
    assert rewound
    curriculum = Curriculum(PROMPTS, seed=0, threshold=None)
    undisturbed = [curriculum.draw()[0] for _ in range(STEPS * A_STEP)]
    for row in (*steps, *rewound):
        assert row["prompt_indices"] == undisturbed[(row["step"] - 1) * A_STEP : row["step"] * A_STEP]
    assert Counter(undisturbed[:PROMPTS]) == dict.fromkeys(range(PROMPTS), 1)

    assert all(row["lag_max"] <= K for row in (*steps, *rewound))
    assert max(row["lag_max"] for row in steps) > 0
    for earlier, later in itertools.pairwise(steps):
        assert later["generated_tokens"] > earlier["generated_tokens"]
        assert later["wall_seconds"] >= earlier["wall_seconds"] + later["trainer_wait_s"] + later["train_s"] - 1e-2
