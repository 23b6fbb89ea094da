"""`scalerl-mini eval`: bad input is one line and nothing created; what is printed; a run's last evaluation met again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scalerl_mini.config import dump_toml, load_config
from scalerl_mini.runtime import segment
from scalerl_mini.training.preflight import MODELS, preflight
from scalerl_mini.training.row_log import read_rows
from tests.cli.refusals import call, refused
from tests.end_to_end.command import TINY
from tests.training.checkpoints import made_up_checkpoint

MODEL = "builtin:tiny-adder"
DATA = '{path="data.jsonl", held_out_prompts=4, level="kind", template="<bos>{prompt}=<think>"}'


def make_run(folder: Path, *versions: int) -> None:
    """A run folder with checkpoints that `verify` takes for whole."""
    folder.mkdir()
    (folder / "config.toml").write_text(dump_toml(load_config(None)))
    (folder / "run.json").write_text("{}")
    for version in versions:
        made_up_checkpoint(folder, version)


def make_data(path: Path) -> None:
    rows = [{"prompt": f"{n}+{n}", "answer": 2 * n, "kind": "odd" if n % 2 else "even"} for n in range(11, 31)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


REFUSED = [
    ("Missing argument 'RUN_OR_MODEL'", []),
    ("model folder absent does not exist", ["absent"]),
    ("run empty has no checkpoint yet; --checkpoint 0", ["empty"]),
    ("run run has checkpoints of steps 3, 5", ["run", "--checkpoint", "4"]),
    ("give a step, or latest", ["run", "--checkpoint", "newest"]),
    ("checkpoint run/checkpoints/step-00004 does not exist; the run has checkpoints", ["run/checkpoints/step-00004"]),
    ("is a checkpoint already", ["run/checkpoints/step-00003", "--checkpoint", "5"]),
    ("step-00005 is damaged (", ["run", "--checkpoint", "5"]),
    ("has a configuration of its own; change it by --set", ["run", "--config", "c.toml"]),
    (f"{MODEL} is no run folder", [MODEL, "--checkpoint", "latest"]),
    ("cannot read configuration c.toml", [MODEL, "--config", "c.toml"]),
    ("model does not say what to ask; name a task", ["model"]),
    ("task.name: 'chess' is unknown", [MODEL, "--task", "chess"]),
    ("1 --options for 2 --task", [MODEL, "--task", "arithmetic", "--task", "math", "--options", "{}"]),
    ("--options 'path=3' is no TOML table", [MODEL, "--task", "jsonl", "--options", "path=3"]),
    ("--options '{}\\nseed = 3' is no TOML table", [MODEL, "--options", "{}\nseed = 3"]),
    ("its options are: train_prompts", [MODEL, "--options", "{digits=3}"]),
    ("No such file", [MODEL, "--task", "jsonl", "--options", '{path="absent.jsonl"}']),
    ("need a context of", [MODEL, "--max-new-tokens", "400"]),
    ("--k 8 cannot be estimated from --samples 4", [MODEL, "--samples", "4", "--k", "1,8"]),
    ("write whole numbers from 1 up", [MODEL, "--k", "1,x"]),
    ("write whole numbers from 1 up", [MODEL, "--k", "0"]),
    ("rollout.temperature in --set: Input should be greater than 0", [MODEL, "--temperature", "0"]),
    ("0 is not in the range", [MODEL, "--prompts", "0"]),
    ("runtime.generator_device = 'tpu' is not a device", [MODEL, "--device", "tpu"]),
    ("cannot write a file there", [MODEL, "--json", "absent/e.json"]),
    ("cannot write a file there", [MODEL, "--json", "run"]),
]


@pytest.mark.parametrize(("message", "arguments"), REFUSED, ids=[str(number) for number in range(len(REFUSED))])
def test_bad_input(capsys, place: Path, message: str, arguments: list[str]) -> None:
    make_run(place / "empty")
    make_run(place / "run", 3, 5)
    (place / "run" / "checkpoints" / "step-00005" / "config.json").write_text("{} ")
    (place / "model").symlink_to(MODELS / "tiny-adder")
    refused(capsys, place, message, "eval", *arguments)


def evaluated(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    """The JSON object that is printed, and nothing else is; no shared memory stays."""
    assert call("eval", *map(str, arguments), "--json", "-") == 0
    assert not list(segment.SHM_DIR.glob(f"scalerl-{os.getpid()}-*"))
    return json.loads(capsys.readouterr().out)


def test_several_tasks_each_with_its_options_levels_and_limits(capsys, place: Path) -> None:
    make_data(place / "data.jsonl")
    asked = ["--task", "arithmetic", "--options", "{max_digits=3}", "--task", "jsonl", "--options", DATA]
    found = evaluated(capsys, MODEL, *asked, "--prompts", "6", "--samples", "8", "--k", "1,8", "--max-new-tokens", "44")
    assert (found["model"], found["samples"], found["max_new_tokens"], found["seed"]) == (MODEL, 8, 44, 0)
    sums, data = found["tasks"]
    assert (sums["task"], sums["prompts"], list(sums["levels"])) == ("arithmetic", 6, ["2 digits", "3 digits"])
    assert (data["task"], data["prompts"], set(data["levels"])) == ("jsonl", 4, {"even", "odd"})
    for one in (sums, data, *sums["levels"].values()):
        assert one["pass_at_k"]["1"]["value"] == pytest.approx(one["mean"])  # rewards are 0 or 1
        assert one["pass_at_k"]["8"]["value"] >= one["mean"]
        assert 0 <= one["truncation_rate"] <= 1
    weights = [level["prompts"] * level["mean"] for level in data["levels"].values()]
    assert sum(weights) / data["prompts"] == pytest.approx(data["mean"])
    again = evaluated(capsys, MODEL, *asked[4:], "--prompts", "6", "--samples", "8", "--max-new-tokens", "44")
    assert again["tasks"][0]["mean"] == data["mean"], "what else is asked changes nothing"


def test_a_grader_that_fails_is_counted_apart(capsys, place: Path) -> None:
    make_data(place / "data.jsonl")
    (place / "own.py").write_text("def never(answer, text):\n    raise OSError('no')\n")
    options = DATA.removesuffix("}") + ', grading="own.py:never"}'
    asked = (MODEL, "--task", "jsonl", "--options", options, "--prompts", "2", "--samples", "2")
    (found,) = evaluated(capsys, *asked)["tasks"]
    assert (found["mean"], found["mean_stderr"], found["grading_errors"], found["grading_timeouts"]) == (0, None, 4, 0)
    assert call("eval", *asked, "--json", "e.json") == 0
    assert "grading failed: 4 errors, 0 time-outs" in capsys.readouterr().out
    assert json.loads((place / "e.json").read_text())["tasks"][0]["grading_errors"] == 4


def test_only_the_result_is_on_stdout_whatever_a_task_prints(place: Path) -> None:
    (place / "own.py").write_text(
        "import os\nfrom scalerl_mini.tasks.arithmetic import Arithmetic\nprint('hello')\nos.system('echo hello')\n"
        "class Loud(Arithmetic):\n    def grade(self, *asked):\n        print('hello')\n        return 1.0\n"
    )
    asked = ["eval", MODEL, "--task", "own.py:Loud", "--prompts", "2", "--samples", "1", "--json", "-"]
    done = subprocess.run([sys.executable, "-m", "scalerl_mini", *asked], capture_output=True, text=True)
    assert (done.returncode, json.loads(done.stdout)["tasks"][0]["mean"]) == (0, 1.0)
    assert done.stderr.count("hello") == 4


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run with a downstream task, trained as a user does."""
    folder = tmp_path_factory.mktemp("eval") / "run"
    settings = (*TINY, "training.lr=0.002", "evaluation.downstream={prompts=4, options={min_digits=7, max_digits=7}}")
    command = [sys.executable, "-m", "scalerl_mini", "train", "--out", str(folder), "--seed", "3"]
    command += [word for setting in settings for word in ("--set", setting)]
    done = subprocess.run(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
def test_a_run_s_last_evaluation_is_met_again(capsys, place: Path, finished: Path) -> None:
    """Same seeds, same prompts, same limits: the same completions, so the same figures."""
    last = read_rows(finished / "evals.jsonl")[-1]
    found = evaluated(capsys, str(finished))
    assert (found["policy_version"], found["seed"], found["samples"]) == (6, 3, 4)
    held_out, downstream = found["tasks"]
    assert (held_out["downstream"], downstream["downstream"]) == (False, True)
    for one, prefix in ((held_out, ""), (downstream, "downstream_")):
        assert one["mean"] == last[f"{prefix}pass_rate"]
        assert one["mean_stderr_same_prompts"] == last[f"{prefix}pass_rate_stderr"]
        for key in ("prompts", "mean_length", "truncation_rate", "interruption_rate"):
            assert one[key] == last[prefix + key], key
    by_level = last["pass_rate_by_level"]
    assert {level: one["mean"] for level, one in held_out["levels"].items()} == by_level


@pytest.mark.slow
def test_the_start_model_and_other_samples_differ(capsys, place: Path, finished: Path) -> None:
    first = read_rows(finished / "evals.jsonl")[0]
    start, *_ = evaluated(capsys, str(finished), "--checkpoint", "0")["tasks"]
    assert (start["mean"], start["mean_length"]) == (first["pass_rate"], first["mean_length"])
    trained, *_ = evaluated(capsys, str(finished / "checkpoints" / "step-00006"))["tasks"]
    other, *_ = evaluated(capsys, str(finished), "--seed", "4")["tasks"]
    lengths = [one["mean_length"] for one in (start, trained, other)]
    assert len(set(lengths)) == 3


def test_repeated_prompts_are_said_before_a_run_and_before_an_evaluation(
    capsys, caplog: pytest.LogCaptureFixture, place: Path
) -> None:
    make_data(place / "data.jsonl")
    twice = (place / "data.jsonl").read_text()
    (place / "data.jsonl").write_text(twice + twice.splitlines()[0] + "\n")
    said = "task jsonl: prompts dropped, met twice or also held out: 1"
    evaluated(capsys, MODEL, "--task", "jsonl", "--options", DATA, "--prompts", "1", "--samples", "1")
    assert caplog.messages == [said]
    settings = ("task.name=jsonl", f"task.options={DATA}", "evaluation.prompts=4", "pipeline.prompts_per_step=4")
    preflight(load_config(None, settings))
    assert caplog.messages == [said, said]
