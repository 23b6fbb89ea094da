"""`python -m scalerl_mini` is `scalerl-mini`."""

from scalerl_mini.cli import main

main()
