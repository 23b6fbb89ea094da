"""The fitter and the simulator are for people without a GPU: importing them imports neither torch nor matplotlib."""

import subprocess
import sys

import pytest

MODULES = (
    "scalerl_mini.scaling, scalerl_mini.scaling.compare_plots, simulate.validation, simulate.tables, simulate.files"
)


def loaded(statement):
    code = f"import sys\n{statement}\nprint(*sorted(m for m in sys.modules if '.' not in m))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    return set(out.split())


def test_scaling_and_simulate_import_no_torch():
    assert not {"torch", "transformers", "matplotlib"} & loaded(f"import {MODULES}")


@pytest.mark.parametrize("name", ["fit", "compare", "simulate"])
def test_help_imports_no_numpy(name):
    call = f"assert CliRunner().invoke(cli, [{name!r}, '--help']).exit_code == 0"
    statement = f"from click.testing import CliRunner\nfrom scalerl_mini.cli import cli\n{call}"
    assert not {"torch", "numpy", "scipy", "pydantic"} & loaded(statement)
