"""Bad configurations, settings and command lines in tables; `test_bad_data` has files, tasks and runs.

What is not here: tests/cli/test_train.py has what contradicts the model or the machine, tests/test_config.py each kind of
wrong value.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.refusals import refused

pytestmark = pytest.mark.usefixtures("place")

FEW = ("--set", "task.options={train_prompts=20, held_out_prompts=20}", "--set", "evaluation.prompts=10")
DEEP = 5000


def numbered(table: list) -> dict:
    """Short test names."""
    return {"argvalues": table, "ids": [str(number) for number in range(len(table))]}


TOML = [
    ("is not valid TOML", "seed"),
    ("is not valid TOML", "seed = "),
    ("is not valid TOML", "= 3"),
    ("is not valid TOML", "[training\nsteps = 3"),
    ("is not valid TOML", "[training]\nsteps = 3\nsteps = 4"),
    ("is not valid TOML", "[training]\n[training]"),
    ("is not valid TOML", "seed = 01"),
    ("is not valid TOML", "model = {name = 'x'"),
    ("is not valid TOML", "seed = 1 seed = 2"),
    ("is not valid TOML", "seed = \x00"),
    ("is not valid TOML", "seed = " + "9" * DEEP),
    ("is not valid TOML", "seed = " + "[" * DEEP + "]" * DEEP),
    ("is not valid TOML", '{"training": {"steps": 3}}'),
    ("is not valid TOML", "training:\n  steps: 3"),
    ("unknown configuration key Training in c.toml", "[Training]\nsteps = 3"),
    ("unknown configuration key steps in c.toml", "steps = 3"),
    ("unknown configuration key training.adam in c.toml", "[training.adam]\nlr = 1"),
    ("unknown configuration key training.Ünï in c.toml", "[training]\n'Ünï' = 3"),
    ("unknown configuration key training. in c.toml", "[training]\n'' = 3"),
    ("configuration key training in c.toml is a group", "training = [1, 2]"),
    ("configuration key training in c.toml is a group", "[[training]]\nsteps = 3"),
    ("configuration key rollout.interruption in c.toml is a group", "[rollout]\ninterruption = true"),
    ("training.steps in c.toml: Input should be a valid integer", "[training.steps]\nx = 3"),
    ("training.steps in c.toml: Input should be a valid integer", "training.steps = 1979-05-27"),
    ("training.steps in c.toml: Input should be a valid integer", "training.steps = []"),
    ("training.steps in c.toml: Input should be a valid integer", "training.steps = 3.0"),
    ("training.betas", "training.betas = 0.9"),
    ("training.betas", "training.betas = [0.9, 0.99, 0.999]"),
    ("training.betas.0", "training.betas = ['a', 0.9]"),
    ("training.lr in c.toml: Input should be a finite number", "training.lr = nan"),
    ("training.lr in c.toml: Input should be a finite number", "training.lr = -inf"),
    ("training.bad_steps_allowed in c.toml: Input should be greater than or equal to 0", "training.bad_steps_allowed = -1"),
    ("training.flat_steps_allowed in c.toml: Input should be greater than or equal to 1", "training.flat_steps_allowed = 0"),
    ("task.grade_workers in c.toml: Input should be greater than or equal to 1", "task.grade_workers = 0"),
    ("task.grade_timeout_s in c.toml: Input should be greater than 0", "task.grade_timeout_s = 0"),
    ("task.grade_memory_mib in c.toml: Input should be a valid integer", "task.grade_memory_mib = '1G'"),
    ("constants.eps_max must be greater than 0", "objective.constants = {eps_max = 0.0}"),
    ("objective.constants", "objective.constants = {eps_max = 'x'}"),
    ("has no constant 'eps'", "[objective]\nloss = 'cispo'\nconstants = {eps = 0.2}"),
    ("objective.loss", "objective.loss = ['cispo']"),
    ("objective.loss", "objective.loss = {cispo = 1}"),
    ("a length penalty needs both", "objective.length_penalty_limit = 40"),
    ("length_penalty_cache must not be above", "objective = {length_penalty_limit = 4, length_penalty_cache = 5}"),
    ("model.name in c.toml: Input should be a valid string", "model.name = 3"),
    ("model.name in c.toml: Input should be a valid string", "model.name = ['a', 'b']"),
    ("model.dtype", "model.dtype = 'int8'"),
    ("model.fp32_head", "model.fp32_head = 'yes'"),
    ("seed in c.toml: Input should be a valid integer", "seed = 'random'"),
    ("runtime.generators", "runtime.generators = 0"),
    ("evaluation.stop_horizon", "evaluation.stop_horizon = 1.0"),
]  # fmt: skip


@pytest.mark.parametrize(("message", "text"), **numbered(TOML))
def test_a_configuration_file(capsys, place: Path, message: str, text: str) -> None:
    (place / "c.toml").write_text(text)
    refused(capsys, place, message, "train", "--config", "c.toml", "--out", "run")


SETTINGS = [
    ("write it as group.key=value", ""),
    ("write it as group.key=value", "="),
    ("write it as group.key=value", "training..steps=3"),
    ("write it as group.key=value", "." * DEEP + "=3"),
    ("write it as group.key=value", "a." * DEEP + "a=3"),
    ("unknown configuration key __class__", "__class__=3"),
    ("unknown configuration key training.__dict__", "training.__dict__=3"),
    ("unknown configuration key 'training'", "'training'.steps=3"),
    ("training.steps in --set: Input should be a valid integer", "training.steps=3\nseed = 4"),
    ("training.steps in --set: Input should be a valid integer", "training.steps=" + "[" * 200),
    ("training.steps in --set: Input should be a valid integer", "training.steps=" + "9" * DEEP),
    ("training.steps in --set: Input should be a valid integer", "training.steps=0x"),
    ("training.steps in --set: Input should be a valid integer", "training.steps=__import__('os').getpid()"),
    ("is a group; set one of its keys", "rollout=fast"),
    ("is a group; set one of its keys", "rollout.interruption=[]"),
    ("model folder", "model.name=../../../../etc"),
    ("model folder", "model.name=~/model"),
    ("model folder", "model.name="),
    ("model.name = 'builtin:../models/tiny-adder' is unknown", "model.name=builtin:../models/tiny-adder"),
    ("model.name = 'builtin:' is unknown", "model.name=builtin:"),
    ("task.name: '' is unknown", "task.name="),
    ("cannot be loaded", "task.name=:Task"),
    ("cannot be loaded", "task.name=os:"),
    ("is no class", "task.name=os:sep"),
    ("is no Task", "task.name=builtins:dict"),
    ("task options", "task.name=os:system"),
    ("train_prompts: 0 is not a positive number", "task.options.train_prompts=0"),
    ("train_prompts: True is not a whole number", "task.options.train_prompts=true"),
    ("is larger than the training set", "pipeline.prompts_per_step=99999999"),
    ("mode 'ppo' takes k steps a phase", "pipeline={mode='ppo', k=0}"),
    ("is not a device", "runtime.trainer_device=cuda:"),
    ("is not a device", "runtime.trainer_device="),
    ("is not a device", "runtime.generator_device=meta"),
    ("is not a device", "runtime.generator_device=cpu,"),
    ("names 2 devices", "runtime={generator_device='cpu,cpu', generators=3}"),
    ("leaves no room for an answer", "rollout.interruption.phrase=" + "</think>" * 20),
    ("leaves no room for an answer", "rollout.max_new_tokens=2"),
]  # fmt: skip


@pytest.mark.parametrize(("message", "setting"), **numbered(SETTINGS))
def test_a_setting(capsys, place: Path, message: str, setting: str) -> None:
    refused(capsys, place, message, "train", *FEW, "--set", setting, "--out", "run")


LONG = "x" * 300

COMMANDS = [
    ("No such command 'tain'", ["tain"]),
    ("No such option '--steps'", ["train", "--steps", "3"]),
    ("is not a valid integer range", ["train", "--seed", "1.5"]),
    ("recipe 'best' is unknown", ["train", "--recipe", "best"]),
    ("recipe 'best' is unknown", ["recipes", "best"]),
    ("recipe '../config' is unknown", ["recipes", "../config"]),
    ("Missing option '--out'", ["ablate"]),
    ("variant 'nothing' is unknown", ["ablate", "--variants", "base,nothing", "--out", "study"]),
    ("at least two variants", ["ablate", "--variants", "base", "--out", "study"]),
    ("write it as KEY=A,B,C", ["ablate", "--grid", "pipeline.k", "--out", "study"]),
    ("0 is not in the range", ["ablate", "--seeds", "0", "--out", "study"]),
    ("unknown configuration key training.step", ["ablate", "--variants", "loo", "--set", "training.step=3", "--out", "s"]),
    ("Missing argument 'SOURCE'", ["fit"]),
    ("no such file or run folder", ["fit", "absent.csv"]),
    ("no evals.jsonl in it", ["fit", "."]),
    ("no such file or run folder", ["compare", "a.csv", "b.csv"]),
    ("Missing argument", ["compare"]),
    ("give SOURCE or NAME=SOURCE", ["compare", "=a.csv", "b=b.csv"]),
    ("Missing argument 'FOLDER'", ["simulate", "curves"]),
    ("No such command 'curve'", ["simulate", "curve"]),
    ("0 is not in the range", ["simulate", "curves", "c", "--count", "0"]),
    ("choose from", ["simulate", "curves", "c", "--law", "linear"]),
    ("choose from", ["simulate", "curves", "c", "--fault", "gremlins"]),
    ("2.0 is not in the range", ["simulate", "curves", "c", "--a", "2"]),
    ("'xml' is not one of", ["simulate", "curves", "c", "--format", "xml"]),
    ("--n 'few'", ["simulate", "validate", "--n", "few"]),
    ("the range must run upwards", ["simulate", "validate", "--n", "20-10"]),
    ("0 is not in the range", ["simulate", "validate", "--workers", "0"]),
    ("no run there", ["train", "--resume", "absent"]),
    ("leave --out, --config, --recipe and --overwrite away", ["train", "--resume", "a", "--recipe", "scalerl"]),
    ("cannot read configuration", ["train", "--config", LONG]),
]  # fmt: skip


@pytest.mark.parametrize(("message", "arguments"), **numbered(COMMANDS))
def test_a_command_line(capsys, place: Path, message: str, arguments: list[str]) -> None:
    refused(capsys, place, message, *arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        ["train", *FEW, "--out", LONG],
        ["train", "--resume", LONG],
        ["train", *FEW, "--set", f"model.name=./{LONG}", "--out", "run"],
        ["fit", LONG],
    ],
    ids=["out", "resume", "model", "fit"],
)
def test_a_name_that_the_system_refuses(capsys, place: Path, arguments: list[str]) -> None:
    refused(capsys, place, "File name too long", *arguments, code=1)
