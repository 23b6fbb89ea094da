import json

import pytest

from tests.cli.command import run
from tests.scaling.synthetic import noisy


@pytest.fixture
def curves(tmp_path):
    paths = {}
    for name, seed, a in (("high", 1, 0.62), ("low", 2, 0.52), ("high2", 3, 0.62)):
        compute, score = noisy(seed, ratio=5.0, sigma=0.004, a=a)
        paths[name] = tmp_path / f"{name}.csv"
        rows = zip(compute, score, strict=True)
        paths[name].write_text("gpu_hours,pass_rate\n" + "\n".join(f"{c},{s}" for c, s in rows))
    return paths


def test_json_names_the_winner(curves):
    found = json.loads(run("compare", curves["high"], curves["low"], "--json", "--forecast", 20000).stdout)
    pair = found["pairs"][0]
    assert (pair["first"], pair["second"], pair["ceiling"], pair["moved"]) == ("high", "low", "high", "ceiling")
    assert pair["at"][0]["compute"] == 20000
    assert set(found["ceilings"]) == {"high", "low"}


def test_named_sources_are_pooled_and_drawn(curves, tmp_path):
    done = run(
        "compare",
        f"new={curves['high']}",
        f"new={curves['high2']}",
        f"old={curves['low']}",
        "--plot",
        tmp_path / "c.png",
    )
    assert done.returncode == 0
    assert "2 runs" in done.stdout
    assert (tmp_path / "c.png").exists()


def test_files_of_the_same_name_are_two_recipes(curves, tmp_path):
    paths = []
    for name in ("high", "low"):
        (tmp_path / name).mkdir()
        paths.append(tmp_path / name / "log.csv")
        paths[-1].write_bytes(curves[name].read_bytes())
    found = json.loads(run("compare", *paths, "--json").stdout)
    assert set(found["ceilings"]) == set(map(str, paths))


def test_one_source_or_a_bad_one_is_exit_2(curves, tmp_path):
    assert "two recipes" in run("compare", curves["high"]).stderr
    short = tmp_path / "short.csv"
    short.write_text("gpu_hours,pass_rate\n1,.1\n")
    for arguments in (
        [curves["high"]],
        [curves["high"], short],
        [curves["high"], "=x"],
        [curves["high"], "a=none.csv"],
        ["a=" + str(curves["high"]), "a=" + str(curves["high"]), curves["low"]],
        [curves["high"], curves["low"], "--plot", "c.gif"],
    ):
        done = run("compare", *arguments)
        assert done.returncode == 2
        assert "Traceback" not in done.stderr
