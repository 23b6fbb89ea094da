"""Asynchronous RL for language models on one workstation, by the ScaleRL recipe (arXiv 2510.13786)."""

__version__ = "0.1.0"
