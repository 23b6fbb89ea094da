"""Bad data files, tasks of one's own and damaged runs in tables; `test_bad_input` has what is typed.

What is not here: tests/scaling/test_fuzz.py has random curves, tests/training/test_manifest.py each kind of damage to a
checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from scalerl_mini.config import dump_toml, load_config
from tests.cli.refusals import refused
from tests.cli.test_bad_input import DEEP, FEW, numbered
from tests.training.checkpoints import made_up_checkpoint

pytestmark = pytest.mark.usefixtures("place")


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
    ("", '{"step": ' + "9" * DEEP + ', "pass_rate": 0.1}\n', []),
    ("", '{"step": ' + "[" * 100_000 + "\n", []),
    ("", 'step,pass_rate\n"1,0.1\n2,0.2\n', []),
    ("", "step,pass_rate\n" + "1" * 200_000 + ",0.1\n", []),
    ("give such an ending", GOOD_CURVE, ["--plot", "fit.exe"]),
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
