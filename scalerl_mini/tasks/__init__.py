"""What is asked and how it is graded. Text only: nothing here imports torch or a tokenizer."""

from scalerl_mini.tasks.base import Prompt, Task
from scalerl_mini.tasks.registry import load_task

__all__ = ["Prompt", "Task", "load_task"]
