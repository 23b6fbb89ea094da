"""`python -m simulate ...` is `scalerl-mini simulate ...`."""

from scalerl_mini.cli.simulate import command

if __name__ == "__main__":
    command(prog_name="python -m simulate")
