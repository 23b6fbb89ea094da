import json

import pytest

from tests.cli.command import run


def test_curves_are_written_and_can_be_fitted(tmp_path):
    done = run("simulate", "curves", tmp_path / "runs", "--count", 2, "--ratio", 4, "--sigma", 0.004, "--n", 40)
    assert done.returncode == 0
    truth = json.loads((tmp_path / "runs" / "truth.json").read_text())["runs"]["run-0001.csv"]
    found = json.loads(run("fit", tmp_path / "runs" / "run-0001.csv", "--json").stdout)
    low, high = found["intervals"]["A"]
    assert low - 0.02 < truth["A"] < high + 0.02


@pytest.mark.slow
def test_validate_prints_a_table_or_json_and_draws(tmp_path):
    options = ("--count", 6, "--phi", 0.3, "--workers", 1)
    done = run("simulate", "validate", *options, "--plot", tmp_path / "c.png", "--out", tmp_path / "c.json")
    assert done.returncode == 0
    assert "6 curves a cell" in done.stdout
    assert (tmp_path / "c.png").exists()
    printed = json.loads(run("simulate", "validate", *options, "--json").stdout)
    assert printed == json.loads((tmp_path / "c.json").read_text())
    assert len(printed["cells"]) == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ["validate", "--n", "9-3"],
        ["validate", "--law", "linear"],
        ["validate", "--fault", "gremlins"],
        ["curves", "/dev/null/x"],
        ["curves", "out", "--ratio", "-1"],
        ["curves", "out", "--seed", "-1"],
        ["curves", "out", "--a", ".2", "--r0", ".5"],
        ["validate", "--phi", "1"],
        ["validate", "--count", "1000000", "--plot", "x.gif"],
    ],
)
def test_bad_input_is_one_line_and_exit_2(arguments):
    done = run("simulate", *arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
