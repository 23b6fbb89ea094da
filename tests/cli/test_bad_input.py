"""Bad input of every command in one table: configurations, settings, data files, tasks, checkpoints, command lines.

What is not here: tests/cli/test_train.py has what contradicts the model or the machine, tests/test_config.py each kind of
wrong value, tests/training/test_manifest.py each kind of damage to a checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from scalerl_mini.config import dump_toml, load_config
from tests.cli.refusals import refused
from tests.training.checkpoints import made_up_checkpoint

FEW = ("--set", "task.options={train_prompts=20, held_out_prompts=20}", "--set", "evaluation.prompts=10")
DEEP = 5000


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder, no way to the hub, and no process is started."""

    def refuse(*_: object) -> None:
        raise AssertionError("the run was started")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("scalerl_mini.training.launcher._supervise", refuse)
    return tmp_path


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
    ("unknown configuration key training.optimizer in c.toml", "[training.optimizer]\nlr = 1"),
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
    ("is not on this machine", "runtime.generator_device=meta"),
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


GOOD_CURVE = "step,pass_rate\n" + "\n".join(
    f"{step},{0.3 + 0.3 * step / (step + 50):.4f}" for step in range(0, 400, 20)
)

DATA: list[tuple[str, str | bytes, list[str]]] = [
    ("no rows in it", "", []),
    ("no rows in it", "\n\n\n", []),
    ("no rows in it", "# only a remark\n", []),
    ("no rows in it", "step,pass_rate\n", []),
    ("cannot be read as text", b"\xff\xfe\x00s\x00t", []),
    ("cannot be read as text", bytes(range(256)) * 9, []),
    ("cannot guess the column", "a,b,c\n1,2,3\n", []),
    ("no column 'flops'", GOOD_CURVE, ["--x", "flops"]),
    ("no column 'acc'", GOOD_CURVE, ["--y", "acc"]),
    ("no column ''", GOOD_CURVE, ["--x", ""]),
    ("row 3, column 'pass_rate': 'much'", "step,pass_rate\n1,0.1\n2,much\n", []),
    ("row 2, column 'pass_rate': 'inf'", "step,pass_rate\n1,inf\n", []),
    ("row 2, column 'step': '0x10'", "step,pass_rate\n0x10,0.1\n", []),
    ("row 2, column 'step': compute -1 is negative", "step,pass_rate\n-1,0.1\n", []),
    ("row 2: 3 cells but 2 columns", "step,pass_rate\n1,2,3\n", []),
    ("not a JSON object", '{"step": 1, "pass_rate": 0.1}\n{"step": 2, "pass_ra\n', []),
    ("not a JSON object", "{not json}\n", []),
    ("row 2: a list, not a JSON object", '{"step": 1, "pass_rate": 0.1}\n[2, 0.2]\n', []),
    ("is not a finite number", '{"step": 1, "pass_rate": [0.1]}\n', []),
    ("is not a finite number", '{"step": 1, "pass_rate": true}\n', []),
    ("is not a finite number", '{"step": 1, "pass_rate": {"a": 1}}\n', []),
    ("is not a finite number", '{"step": 1, "pass_rate": Infinity}\n', []),
    ("", "step,pass_rate\n1,0.1\x00\n", []),
    ("pass rate", "step,pass_rate\n1,250\n2,300\n", []),
    ("level 2", GOOD_CURVE, ["--level", "2"]),
    ("level 0", GOOD_CURVE, ["--level", "0"]),
    ("level nan", GOOD_CURVE, ["--level", "nan"]),
    ("cutoff", GOOD_CURVE, ["--cutoff", "-1"]),
    ("--r0", GOOD_CURVE, ["--r0", "start"]),
    ("is not a pass rate", GOOD_CURVE, ["--r0", "7"]),
    ("is not a pass rate", GOOD_CURVE, ["--r0", "nan"]),
    ("--min-compute", GOOD_CURVE, ["--min-compute", "soon"]),
    ("is not a valid float", GOOD_CURVE, ["--max-compute", "1e"]),
    ("is not positive", GOOD_CURVE, ["--forecast", "0"]),
    ("is not one of", GOOD_CURVE, ["--law", "linear"]),
    ("is not one of", GOOD_CURVE, ["--method", "guess"]),
    ("--a-grid", GOOD_CURVE, ["--method", "paper-grid", "--r0", ".3", "--a-grid", "1:0:0"]),
    ("--c-mid-grid", GOOD_CURVE, ["--method", "paper-grid", "--r0", ".3", "--c-mid-grid", "1:2:0"]),
]  # fmt: skip


@pytest.mark.parametrize(("message", "content", "options"), **numbered(DATA))
def test_a_data_file(capsys, place: Path, message: str, content: str | bytes, options: list[str]) -> None:
    (place / "curve.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
    refused(capsys, place, message, "fit", "curve.csv", *options)


HEAD = "import sys\nfrom scalerl_mini.tasks import Prompt\nclass Mine:\n  name = 'mine'\n"
GRADE = "  def grade(self, prompt, completion): return 0.0\n"
PROMPTS = "  train = held_out = [Prompt('<bos>1+1=', '2', 'all')] * 50\n"
TASKS = [
    ("ValueError: no data", HEAD + GRADE + "  def __init__(self): raise ValueError('no data')"),
    ("SystemExit: 3", HEAD + GRADE + "  def __init__(self): sys.exit(3)"),
    ("SystemExit: 0", "import sys\nsys.exit(0)"),
    ("RecursionError", HEAD + GRADE + "  def __init__(self): self.__init__()"),
    ("train is a int; make it a list of Prompt", HEAD + GRADE + "  train = held_out = 3"),
    ("train is a generator", HEAD + GRADE + "  train = held_out = (x for x in 'ab')"),
    ("train[0] is 'a'; make it a Prompt", HEAD + GRADE + "  train = held_out = ['a'] * 50"),
    ("train[0] is", HEAD + GRADE + "  train = held_out = [Prompt(3, '2', 'all')] * 50"),
    ("train[0] is", HEAD + GRADE + "  train = held_out = [Prompt('<bos>', '2', None)] * 50"),
    ("(0 prompts)", HEAD + GRADE + "  train = held_out = []"),
    ("holds out 0 prompts", HEAD + GRADE + PROMPTS + "  held_out = []"),
    ("prompt '' has no tokens; begin it", HEAD + GRADE + PROMPTS + "  held_out = [Prompt('', '', '')] * 50"),
    ("cannot encode", HEAD + GRADE + "  train = held_out = [Prompt('<bos>hello', '2', 'all')] * 50"),
    ("cannot encode", HEAD + GRADE + "  train = held_out = [Prompt('<bos>\\ud800', '2', 'all')] * 50"),
    ("a longer context", HEAD + GRADE + "  train = held_out = [Prompt('<bos>' + '1' * 300, '2', 'all')] * 50"),
    ("is no Task; it needs name, train", HEAD + PROMPTS),
    ("unexpected keyword argument 'size'", HEAD + PROMPTS + GRADE + "  def __init__(self): pass"),
]  # fmt: skip


@pytest.mark.parametrize(("message", "code"), **numbered(TASKS))
def test_a_task_of_ones_own(capsys, place: Path, message: str, code: str) -> None:
    (place / "mine.py").write_text(code)
    option = ("--set", "task.options.size=3") if "'size'" in message else ()
    refused(
        capsys, place, message, "train", "--set", "task.name=mine.py:Mine", "--set", "evaluation.prompts=10", *option
    )


def damaged(path: str, content: bytes | None) -> Callable[[Path], None]:
    """Overwrite a file of the run, or take it away."""

    def act(run: Path) -> None:
        if content is None:
            (run / path).unlink()
        else:
            (run / path).write_bytes(content)

    return act


def evil_name(run: Path) -> None:
    manifest = run / "checkpoints" / "step-00004" / "manifest.json"
    tree = json.loads(manifest.read_text())
    tree["files"]["../../../outside"] = {"bytes": 0, "sha256": "0"}
    manifest.write_text(json.dumps(tree))


CHECKPOINT = "checkpoints/step-00004/"
RUNS = [
    ("config.toml is missing", damaged("config.toml", None)),
    ("run.json is missing", damaged("run.json", None)),
    ("is not valid TOML", damaged("config.toml", b"\x00")),
    ("unknown configuration key", damaged("config.toml", b"stepz = 3")),
    ("trainer.json is missing", damaged(CHECKPOINT + "trainer.json", None)),
    ("optimizer.safetensors is missing", damaged(CHECKPOINT + "optimizer.safetensors", None)),
    ("manifest.json is missing", damaged(CHECKPOINT + "manifest.json", None)),
    ("manifest.json is not what was written", damaged(CHECKPOINT + "manifest.json", b"[]")),
    ("model.safetensors has 3 bytes", damaged(CHECKPOINT + "model.safetensors", b"abc")),
    ("model.safetensors was changed", damaged(CHECKPOINT + "model.safetensors", bytes([9, 0]) * 2000)),
    ("pytorch_model.bin is not in manifest.json", damaged(CHECKPOINT + "pytorch_model.bin", b"\x80\x04.")),
    ("which is not a file of the checkpoint", evil_name),
]  # fmt: skip


@pytest.mark.parametrize(("message", "damage"), **numbered(RUNS))
def test_a_run_that_is_resumed(capsys, place: Path, message: str, damage: Callable[[Path], None]) -> None:
    run = place / "run"
    made_up_checkpoint(run, 4)
    (run / "config.toml").write_text(dump_toml(load_config(None, (FEW[1], FEW[3]))))
    (run / "run.json").write_text('{"state": "stopped", "reason": null}')
    damage(run)
    refused(capsys, place, message, "train", "--resume", "run")


def test_there_are_more_than_a_hundred_of_them() -> None:
    assert sum(map(len, (TOML, SETTINGS, COMMANDS, DATA, TASKS, RUNS))) > 150
