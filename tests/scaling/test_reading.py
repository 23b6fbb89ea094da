import json

import numpy as np
import pytest

from scalerl_mini.errors import UserError
from scalerl_mini.scaling import read_curve
from scalerl_mini.scaling.curve import Curve


def write(tmp_path, text, name="curve.csv"):
    path = tmp_path / name
    path.write_text(text)
    return path


def test_columns_are_guessed_and_the_guess_is_said(tmp_path):
    path = write(tmp_path, "loss,gpu_hours,Accuracy\n1,2,.3\n1,1,.2\n")
    curve = read_curve(path)
    assert (curve.x, curve.y) == ("gpu_hours", "Accuracy")
    np.testing.assert_array_equal(curve.compute, [1, 2])  # sorted
    assert {"x = gpu_hours (guessed)", "y = Accuracy (guessed)"} <= set(curve.notes)


def test_named_columns_win_and_two_unknown_columns_are_taken_in_order(tmp_path):
    path = write(tmp_path, "step,loss,pass_rate\n1,.9,.1\n2,.8,.2\n")
    assert read_curve(path, x="step", y="loss").score.tolist() == [0.9, 0.8]
    assert read_curve(write(tmp_path, "foo,bar\n1,.1\n2,.3\n")).x == "foo"


@pytest.mark.parametrize("mark", [",", ";", "\t"])
def test_separators_and_files_without_header(tmp_path, mark):
    curve = read_curve(write(tmp_path, f"1{mark}0.1\n2{mark}0.4\n"))
    assert curve.compute.tolist() == [1, 2]
    assert curve.score.tolist() == [0.1, 0.4]


def test_percent_empty_cells_duplicates_and_compute_0(tmp_path):
    curve = read_curve(write(tmp_path, "step,eval_acc\n0,15\n0,17\n1,\n2,30\n2,34\n3,nan\n4,40\n"))
    assert curve.percent
    assert curve.r0 == pytest.approx(0.16)
    assert curve.compute.tolist() == [2, 4]
    assert curve.score.tolist() == pytest.approx([0.32, 0.40])
    said = " | ".join(curve.notes)
    for part in ("percent", "averaged", "empty cell", "R_0"):
        assert part in said


def test_rows_of_an_aborted_run_are_left_out_and_said(tmp_path):
    curve = read_curve(write(tmp_path, "step,acc\n1,.5\n2,.6\n3,.7\n1,.1\n2,.2\n3,.3\n4,.4\n"))
    assert curve.score.tolist() == [0.1, 0.2, 0.3, 0.4]
    assert any("restarts 1 time" in note and "first 3 rows" in note for note in curve.notes)


@pytest.mark.parametrize("order", [[3, 1, 2, 0, 5, 4], [5, 4, 3, 2, 1, 0], [0, 1, 3, 2, 4, 5]])
def test_an_unsorted_file_is_not_taken_for_a_restart(tmp_path, order):
    rows = [f"{i},{0.1 * i}" for i in range(1, 7)]
    curve = read_curve(write(tmp_path, "step,acc\n" + "\n".join(rows[i] for i in order) + "\n"))
    assert curve.compute.tolist() == [1, 2, 3, 4, 5, 6]


def test_jsonl_and_a_number_with_a_percent_sign(tmp_path):
    rows = [{"step": 0, "score": 0.1}, {"step": 5, "score": 0.2, "note": [1]}, {"step": 9}]
    curve = read_curve(write(tmp_path, "\n".join(map(json.dumps, rows)), "log.jsonl"))
    assert curve.compute.tolist() == [5]
    assert read_curve(write(tmp_path, "step,acc\n1,12%\n2,30%\n")).score.tolist() == [0.12, 0.30]
    assert read_curve(write(tmp_path, "step,acc\n1,0.5%\n2,0.75%\n")).score.tolist() == [0.005, 0.0075]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("step,acc\n1,.1\n2,oops\n", ("row 3", "'acc'", "'oops'")),
        ("step,acc\n1,.1\ninf,.2\n", ("row 3", "'step'")),
        ("step,acc\n-1,.1\n2,.2\n", ("row 2", "'step'", "negative")),
        ("step,acc\n1,.1,7\n", ("row 2", "3 cells")),
        ("a,b,c\n1,2,3\n", ("--x", "a, b, c")),
        ("step,b,c\n1,2,3\n", ("--y", "step, b, c")),
        ("step,acc\n1,-1\n2,1\n", ("row 2", "'acc'", "-1", "reward")),
        ("step,acc\n1,5\n2,5000\n", ("row 3", "'acc'", "5000")),
        ("step,acc\n10%,.1\n", ("row 2", "'step'", "'10%'")),
        ('step,note,acc\n1,"two\nlines",.1\n2,,oops\n', ("row 4", "'oops'")),
        ("step,acc\n1," + 200_000 * "9" + "\n", ("row 2", "CSV")),
        ("step,acc,acc\n1,.1,.2\n", ("2 columns", "'acc'", "rename")),
        ("acc\n.1\n", ("a column of compute", "it has acc")),
        ('[{"step": 1, "acc": 0.1}]', ("JSON list", "each line")),
        ('{"step": ' + 5000 * "9" + "}\n", ("row 1", "JSON")),
        ('{"step": ' + 100_000 * "[" + "\n", ("row 1", "JSON")),
        ("", ("no rows",)),
        ('{"step": 1}\n[1]\n', ("row 2", "list")),
        ('{"step": 1}\n{oops\n', ("row 2", "JSON")),
        ('{"step": 1, "acc": true}\n', ("row 1", "'acc'")),
    ],
)
def test_bad_files_name_the_row_and_column(tmp_path, text, parts):
    with pytest.raises(UserError) as error:
        read_curve(write(tmp_path, text))
    for part in parts:
        assert part in str(error.value)
    assert "\n" not in str(error.value)


def test_missing_file_folder_without_evals_and_wrong_column(tmp_path):
    with pytest.raises(UserError, match="no such file"):
        read_curve(tmp_path / "nothing.csv")
    with pytest.raises(UserError, match=r"evals\.jsonl"):
        read_curve(tmp_path)
    with pytest.raises(UserError, match="no column 'flops'; it has step, acc"):
        read_curve(write(tmp_path, "step,acc\n1,.1\n"), x="flops")
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00\x81")
    with pytest.raises(UserError, match="text"):
        read_curve(tmp_path / "binary.csv")


def run_folder(tmp_path, device):
    rows = [
        {
            "step": s,
            "device_hours": s * 0.1,
            "generated_tokens": s * 1000,
            "pass_rate": 0.2 + 0.01 * s,
            "pass_rate_stderr": 0.004,
        }
        for s in range(0, 60, 10)
    ]
    (tmp_path / "evals.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    (tmp_path / "run.json").write_text(json.dumps({"device": device}))
    return tmp_path


@pytest.mark.parametrize(("device", "x"), [("cuda:0", "device_hours"), ("cpu", "generated_tokens")])
def test_run_folder_has_its_own_compute_and_a_measured_r0(tmp_path, device, x):
    curve = read_curve(run_folder(tmp_path, device))
    assert (curve.x, curve.y, curve.name) == (x, "pass_rate", tmp_path.name)
    assert (curve.r0, curve.r0_sd) == (0.2, 0.004)
    assert len(curve) == 5
    assert read_curve(tmp_path, x="step").compute.tolist() == [10, 20, 30, 40, 50]


def test_run_json_that_names_no_device_asks_for_the_column(tmp_path):
    folder = run_folder(tmp_path, "cpu")
    (folder / "run.json").write_text("{oops")
    with pytest.raises(UserError, match=r"run\.json.*--x"):
        read_curve(folder)
    assert read_curve(folder, x="step").x == "step"


@pytest.mark.parametrize(("highest", "percent"), [(1.0, False), (1.02, False), (1.2, True), (60.0, True)])
def test_a_score_that_cannot_be_a_fraction_means_percent(highest, percent):
    curve = Curve.of([1, 2], [0.5, highest])
    assert curve.percent == percent
    assert curve.score[1] == pytest.approx(highest / 100 if percent else highest)


def test_thinning_averages_neighbours_and_says_so():
    curve = Curve.of(np.arange(1, 8), np.arange(1, 8) / 10)
    assert curve.thinned(7) is curve
    thin = curve.thinned(3)
    assert thin.compute.tolist() == [2, 5, 7]
    assert thin.score.tolist() == pytest.approx([0.2, 0.5, 0.7])
    assert "7 points averaged in groups of 3" in thin.notes


def test_curve_from_arrays_of_different_length():
    with pytest.raises(UserError, match="3 compute values but 2 scores"):
        Curve.of([1, 2, 3], [0.1, 0.2])
