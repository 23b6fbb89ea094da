import json
from pathlib import Path

import pytest

from tests.cli.command import run
from tests.scaling.synthetic import noisy

PAPER_8B = Path(__file__).parents[1] / "scaling" / "scalerl_8b.csv"  # Figure 1 up to 40k GPU-hours; published A .645


@pytest.fixture
def curve(tmp_path):
    path = tmp_path / "curve.csv"
    compute, score = noisy(1, ratio=4.0)
    path.write_text("hours,acc\n" + "\n".join(f"{c},{100 * s}" for c, s in zip(compute, score, strict=True)))
    return path


def test_the_papers_8b_run_is_fitted_within_its_margin():
    found = json.loads(run("fit", PAPER_8B, "--json", "--forecast", 100).stdout)
    assert found["A"] == pytest.approx(0.645, abs=0.02)
    low, high = found["intervals"]["A"]
    assert low < 0.645 < high
    assert found["verdict"] != "unidentified"
    low, high = found["forecast"][0]["interval"]
    assert low < 0.643 < high  # what the run measured at 89-100k hours


def test_json_is_alone_on_stdout(curve):
    done = run("fit", curve, "--json", "--forecast", 2e4, "--forecast", 1e6, "--worth", 0.02)
    assert done.returncode == 0
    found = json.loads(done.stdout)
    keys = "status verdict A B C_mid R0 intervals form_robust forecast flags n n_used x y cutoff level"
    assert set(keys.split()) <= set(found)
    assert [row["compute"] for row in found["forecast"]] == [2e4, 1e6]
    assert {"value", "interval", "gain"} <= set(found["forecast"][0])
    assert found["forecast"][0]["decision"] in ("GO", "NO", "UNDECIDED")
    assert "far_forecast" in found["flags"]
    assert found["x"] == "hours"


def test_report_says_what_was_taken_and_decides(curve):
    text = run("fit", curve, "--forecast", 13000, "--worth", 0.2).stdout
    for part in ("x = hours (guessed)", "acc read as percent", "if other saturating laws", "A by cut", "NO: P(gain"):
        assert part in text


def test_methods_and_laws(curve):
    power = json.loads(run("fit", curve, "--law", "power", "--json").stdout)
    assert (power["method"], power["verdict"], power["C_mid"]) == ("power", "unidentified", None)
    grid = json.loads(
        run("fit", curve, "--method", "paper-grid", "--r0", 0.3, "--c-mid-grid", "100:6000:60", "--json").stdout
    )
    assert grid["A"] * 200 == pytest.approx(round(grid["A"] * 200))
    plain = json.loads(run("fit", curve, "--law", "sigmoid", "--json").stdout)
    assert plain["form_robust"]["A"] is None


def test_plot_is_written_and_said_on_stderr(curve, tmp_path):
    done = run("fit", curve, "--plot", tmp_path / "fit.svg")
    assert (tmp_path / "fit.svg").exists()
    assert "wrote" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["--x", "flops"], "no column 'flops'"),
        (["--r0", "last"], "--r0"),
        (["--r0", "1.5"], "1.5"),
        (["--min-compute", "soon"], "--min-compute"),
        (["--level", "2"], "level"),
        (["--forecast", "-5"], "not positive"),
        (["--plot", "fit.gif"], ".gif"),
        (["--method", "paper-grid"], "R_0"),
        (["--method", "paper-grid", "--r0", ".3", "--a-grid", "1"], "--a-grid"),
        (["--a-grid", ".5:.6:.1"], "belong to --method paper-grid"),
        (["--worth", "2"], "worth"),
        (["--min-compute", "5000", "--max-compute", "2000"], "nothing lies"),
    ],
)
def test_bad_options_give_one_line_and_exit_2(curve, arguments, part):
    done = run("fit", curve, *arguments)
    assert done.returncode == 2
    assert part in done.stderr
    assert "Traceback" not in done.stderr


def test_bad_file_names_row_and_column(tmp_path):
    path = tmp_path / "bad.csv"
    path.write_text("step,acc\n1,0.1\n2,much\n")
    done = run("fit", path)
    assert done.returncode == 2
    assert "row 3, column 'acc'" in done.stderr
    assert run("fit", tmp_path / "none.csv").returncode == 2


def test_too_short_and_falling_curves_are_answers_not_errors(tmp_path):
    for name, rows in (("short", "1,.1\n2,.2"), ("falling", "\n".join(f"{i},{0.6 - 0.02 * i}" for i in range(1, 20)))):
        path = tmp_path / f"{name}.csv"
        path.write_text("step,acc\n" + rows + "\n")
        done = run("fit", path, "--json")
        assert done.returncode == 0
        assert json.loads(done.stdout)["status"] in ("too_few_points", "no_rise", "collapse")
        assert "no fit" in run("fit", path).stdout
