"""The generator's loop, turn by turn, against real shared memory and a fake engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from scalerl_mini.rollout.generator import Generator
from scalerl_mini.runtime.rollout_buffer import SlotState
from scalerl_mini.runtime.weight_channel import WeightChannel
from scalerl_mini.training import processes
from tests.fakes import LONGEST, FakeEngine, uniform_model
from tests.training.loop import Loop, fake


@pytest.fixture
def loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Loop]:
    """A trainer that does only what the test tells it, and one generator with room for four groups of two."""
    monkeypatch.setattr(processes, "build_engine", lambda config, policy, *_: FakeEngine(policy, config.slots, LONGEST))
    made = Loop(tmp_path / "run", uniform_model(tmp_path / "model"), ("pipeline.k=3",))
    yield made
    made.close()


@pytest.fixture
def generator(loop: Loop) -> Generator:
    return loop.generators[0]


def publish(loop: Loop, version: int) -> None:
    """The next version, its every weight a little larger."""
    for parameter in loop.trainer.policy.named_tensors().values():
        parameter.data += 0.01
    loop.trainer.policy.version = version
    loop.trainer.channel.publish(version, loop.trainer.weights.pull())


def issue(loop: Loop, count: int) -> None:
    """Groups 0, 1, 2 ... of prompts 0, 1, 2 ..."""
    for _ in range(count):
        ticket = loop.trainer.gate.issue()
        loop.trainer.buffer.issue(ticket, ticket.sequence % 12, ticket.sequence // 12)


def states(loop: Loop) -> dict[str, int]:
    return {name: count for name, count in loop.trainer.buffer.counts().items() if count}


def test_nothing_is_sampled_before_the_first_version(loop: Loop, generator: Generator) -> None:
    issue(loop, 3)
    generator.turn()
    assert states(loop)["issued"] == 3
    assert not fake(generator.engine).sampled
    assert loop.control.get("generator-0", "wait_s") > 0
    assert loop.control.get("generator-0", "loaded_version") == -1


def test_it_claims_the_oldest_groups_and_no_more_than_fit(loop: Loop, generator: Generator) -> None:
    issue(loop, 6)
    publish(loop, 0)
    generator.turn()
    claimed = {key[0] for key, _ in fake(generator.engine).sampled}
    assert claimed == {0, 1, 2, 3}  # eight slots, two completions a group
    assert all(version == 0 for _, version in fake(generator.engine).sampled)


def test_a_group_is_handed_over_whole_with_what_the_engine_said(loop: Loop, generator: Generator) -> None:
    said: dict[tuple[int, int], object] = {}
    fake(generator.engine).spoil = lambda finished: said.update({finished.key: finished})
    issue(loop, 3)
    publish(loop, 0)
    while states(loop).get("ready", 0) < 3:
        generator.turn()
        for slot in loop.trainer.buffer._slots:
            if slot["state"] == SlotState.READY:
                assert {(int(slot["sequence"]), sample) for sample in range(2)} <= set(said)
    for sequence in range(3):
        record = loop.trainer.buffer.view(sequence)
        prompt = generator.prompts[sequence]
        assert record["prompt"][: record["prompt_length"]].tolist() == list(prompt)
        for sample in range(2):
            finished = said[sequence, sample]
            length = int(record["lengths"][sample])
            for name in ("tokens", "logprobs", "versions", "mask"):
                np.testing.assert_array_equal(record[name][sample, :length], getattr(finished, name))
            text = generator.policy.decode(record["tokens"][sample, :length])
            assert record["rewards"][sample] == float(text[0] in "02468")
            assert not record["mask"][sample, length:].any()
    lengths = sum(int(loop.trainer.buffer.view(sequence)["lengths"].sum()) for sequence in range(3))
    assert loop.control.get("generator-0", "generated_tokens") == lengths


def test_new_weights_are_taken_in_the_midst_of_completions(loop: Loop, generator: Generator) -> None:
    issue(loop, 3)
    publish(loop, 0)
    generator.turn()
    generator.turn()
    publish(loop, 1)
    generator.turn()
    versions = [version for _, version in fake(generator.engine).sampled]
    assert set(versions) == {0, 1}
    assert versions == sorted(versions)
    for name, tensor in generator.policy.named_tensors().items():
        np.testing.assert_array_equal(tensor.detach(), loop.trainer.policy.named_tensors()[name].detach())
    assert loop.control.get("generator-0", "loaded_version") == 1
    assert loop.control.get("generator-0", "weight_loads") == 2


def test_weights_are_loaded_before_a_group_is_claimed(loop: Loop, generator: Generator) -> None:
    """A version that is out when the turn begins samples the first token of every group claimed in it."""
    publish(loop, 0)
    generator.turn()
    publish(loop, 1)
    issue(loop, 3)
    generator.turn()
    assert {version for _, version in fake(generator.engine).sampled} == {1}


def test_a_version_that_comes_between_two_looks_is_loaded_for_its_evaluation(
    loop: Loop, generator: Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trainer publishes version 1 and asks for its evaluation just after the generator has looked for weights."""
    publish(loop, 0)
    generator.turn()

    looks = 0

    def look(channel: WeightChannel) -> int:
        nonlocal looks
        looks += 1
        version = int(channel._words["latest"]) >> 1
        if looks == 1:
            publish(loop, 1)
            loop.trainer.evaluator.board.open(1)
        return version

    monkeypatch.setattr(WeightChannel, "version", property(look))
    generator.turn()
    assert {version for _, version in fake(generator.evaluation.engine).sampled} == {1}
    assert loop.trainer.evaluator.board.done == 5


def test_training_completions_wait_while_an_evaluation_goes_on(loop: Loop, generator: Generator) -> None:
    issue(loop, 3)
    publish(loop, 0)
    generator.turn()
    before = len(fake(generator.engine).sampled)
    generator.evaluation.board.open(0)

    def nothing_moves() -> None:
        assert len(fake(generator.engine).sampled) == before

    fake(generator.evaluation.engine).before_step = nothing_moves
    generator.turn()
    assert generator.evaluation.board.done == 5
    assert len(fake(generator.engine).sampled) > before  # and they go on in the same turn


def test_each_visit_of_a_prompt_is_sampled_anew(loop: Loop, generator: Generator) -> None:
    """Seeds: the samples of a group differ, and so do two epochs; nothing else does."""
    submitted: list[tuple[tuple[int, int], int]] = []
    submit = generator.engine.submit

    def keep(request) -> None:
        submitted.append((request.key, request.seed))
        submit(request)

    generator.engine.submit = keep  # type: ignore[method-assign]
    publish(loop, 0)
    for sequence, epoch in ((0, 0), (1, 1)):
        loop.trainer.buffer.issue(loop.trainer.gate.issue(), 7, epoch)
        assert sequence == loop.trainer.gate.issued - 1
    generator.turn()
    assert [key for key, _ in submitted] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert len({seed for _, seed in submitted}) == 4


def test_it_ends_when_it_is_told_to(loop: Loop, generator: Generator) -> None:
    publish(loop, 0)
    fake(generator.engine).before_step = lambda: loop.control.request_stop("finished")
    issue(loop, 1)
    generator.run()
    assert len(fake(generator.engine).sampled) == 2
