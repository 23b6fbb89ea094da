from __future__ import annotations

import numpy as np
import pytest

from scalerl_mini.runtime.gate import StalenessGate, Ticket
from scalerl_mini.runtime.rollout_buffer import BufferShape, ClaimLost, Finish, RolloutBuffer, SlotState
from scalerl_mini.runtime.weight_channel import TensorSpec, WeightChannel

SHAPE = BufferShape(capacity=4, group_size=3, prompt_tokens=5, completion_tokens=7)


@pytest.fixture
def buffer(prefix: str) -> RolloutBuffer:
    return RolloutBuffer.create(prefix + ".rollouts", SHAPE)


def issue(buffer: RolloutBuffer, *sequences: int, needs_version: int = 0) -> None:
    for sequence in sequences:
        buffer.issue(Ticket(sequence, needs_version), prompt_index=100 + sequence, epoch=sequence // 10)


def complete(buffer: RolloutBuffer, owner: int = 0) -> int:
    record = buffer.claim(owner, 10**6)
    assert record is not None
    buffer.commit(int(record["sequence"]))
    return int(record["sequence"])


def test_everything_a_generator_writes_reaches_the_trainer_without_a_copy(buffer: RolloutBuffer) -> None:
    issue(buffer, 0, 1)
    other = RolloutBuffer.attach(buffer.path)
    assert other.shape == SHAPE
    record = other.claim(owner=7, loaded_version=0)
    assert record is not None
    assert (record["sequence"], record["prompt_index"], record["epoch"], record["owner"]) == (0, 100, 0, 7)
    values = np.random.default_rng(0)
    written = {}
    for name in ("prompt", "tokens", "lengths", "logprobs", "versions", "mask", "rewards", "finish", "interrupted"):
        written[name] = values.integers(0, 2, record[name].shape).astype(record[name].dtype)
        record[name][:] = written[name]
    record["prompt_length"] = 4
    record["finish"][0] = Finish.LENGTH
    assert buffer.ready([0, 1]) == 0
    other.commit(0)
    assert buffer.ready([0, 1]) == 1
    seen = buffer.view(0)
    assert seen["prompt_length"] == 4
    written["finish"][0] = 1
    for name, value in written.items():
        assert np.array_equal(seen[name], value)
        assert seen[name].flags.c_contiguous
        assert seen[name].flags.aligned
    other.claim(7, 0)
    record["rewards"][2] = 0.5
    assert seen["rewards"][2] == 0.5


def test_the_layout_of_a_record() -> None:
    shapes = {name: SHAPE.record[name].shape for name in ("prompt", "tokens", "lengths", "mask", "rewards")}
    assert shapes == {"prompt": (5,), "tokens": (3, 7), "lengths": (3,), "mask": (3, 7), "rewards": (3,)}
    assert SHAPE.nbytes == 4 * SHAPE.record.itemsize
    assert SHAPE.record.itemsize % 8 == 0


def test_an_issued_slot_is_cleared_of_the_group_before(buffer: RolloutBuffer) -> None:
    issue(buffer, 0)
    record = buffer.claim(0, 0)
    assert record is not None
    record["mask"][:] = True
    record["tokens"][:] = 9
    buffer.commit(0)
    buffer.free([0])
    issue(buffer, 4)
    fresh = buffer.claim(0, 0)
    assert fresh is not None
    assert not fresh["mask"].any()
    assert not fresh["tokens"].any()


def test_a_group_issued_again_is_cleared_of_what_the_dead_generator_wrote(buffer: RolloutBuffer) -> None:
    issue(buffer, 0, 1)
    record = buffer.claim(5, 0)
    kept = buffer.claim(6, 0)
    assert record is not None
    assert kept is not None
    record["mask"][:] = kept["mask"][:] = True
    record["prompt_length"] = 3
    buffer.reissue(5)
    assert not record["mask"].any()
    assert record["prompt_length"] == 0
    assert kept["mask"].all()


def test_several_are_issued_in_one_move(buffer: RolloutBuffer) -> None:
    buffer.issue_all([(Ticket(sequence, 0), 100 + sequence, 0) for sequence in range(3)])
    assert buffer.counts()["issued"] == 3
    assert [complete(buffer) for _ in range(3)] == [0, 1, 2]


def test_the_lowest_sequence_is_claimed_first_also_after_the_slots_wrapped(buffer: RolloutBuffer) -> None:
    issue(buffer, 0, 1, 2, 3)
    assert [complete(buffer), complete(buffer)] == [0, 1]
    buffer.free([0, 1])
    issue(buffer, 5, 4)
    assert [complete(buffer) for _ in range(4)] == [2, 3, 4, 5]
    assert buffer.claim(0, 0) is None


def test_a_generator_with_old_weights_gets_nothing(buffer: RolloutBuffer) -> None:
    issue(buffer, 0, needs_version=2)
    issue(buffer, 1, needs_version=3)
    assert buffer.claim(0, -1) is None
    assert buffer.claim(0, 1) is None
    record = buffer.claim(0, 2)
    assert record is not None
    assert record["sequence"] == 0
    assert buffer.claim(0, 2) is None
    assert buffer.claim(0, 3) is not None


def test_counts_by_state(buffer: RolloutBuffer) -> None:
    assert buffer.counts() == {"free": 4, "issued": 0, "claimed": 0, "ready": 0}
    issue(buffer, 0, 1, 2)
    complete(buffer)
    buffer.claim(0, 0)
    assert buffer.counts() == {"free": 1, "issued": 1, "claimed": 1, "ready": 1}


def test_a_group_is_ready_only_under_its_own_sequence(buffer: RolloutBuffer) -> None:
    issue(buffer, 0)
    complete(buffer)
    assert buffer.ready([0]) == 1
    assert buffer.ready([4]) == 0
    with pytest.raises(RuntimeError, match="view sequence 4: its slot holds sequence 0 in state READY"):
        buffer.view(4)


@pytest.mark.parametrize("state", [SlotState.FREE, SlotState.ISSUED, SlotState.CLAIMED])
@pytest.mark.parametrize("move", ["view", "free"])
def test_what_is_not_ready_is_neither_viewed_nor_freed(buffer: RolloutBuffer, state: SlotState, move: str) -> None:
    if state != SlotState.FREE:
        issue(buffer, 0)
    if state == SlotState.CLAIMED:
        buffer.claim(0, 0)
    with pytest.raises(RuntimeError, match=f"cannot {move} sequence 0: .* in state {state.name}"):
        buffer.view(0) if move == "view" else buffer.free([0])


@pytest.mark.parametrize("state", [SlotState.ISSUED, SlotState.CLAIMED, SlotState.READY])
def test_a_slot_in_use_is_not_issued(buffer: RolloutBuffer, state: SlotState) -> None:
    issue(buffer, 0)
    if state != SlotState.ISSUED:
        buffer.claim(0, 0)
    if state == SlotState.READY:
        buffer.commit(0)
    with pytest.raises(RuntimeError, match=f"issue sequence 4: its slot holds sequence 0 in state {state.name}"):
        issue(buffer, 4)


def test_what_was_not_claimed_here_is_not_committed(buffer: RolloutBuffer) -> None:
    issue(buffer, 0)
    with pytest.raises(ClaimLost):
        buffer.commit(0)
    other = RolloutBuffer.attach(buffer.path)
    other.claim(1, 0)
    with pytest.raises(ClaimLost):
        buffer.commit(0)
    other.commit(0)
    with pytest.raises(ClaimLost):
        other.commit(0)


def test_groups_of_a_dead_generator_are_issued_again_and_its_claim_is_void(buffer: RolloutBuffer) -> None:
    dead, living = RolloutBuffer.attach(buffer.path), RolloutBuffer.attach(buffer.path)
    issue(buffer, 0, 1, 2, 3)
    dead.claim(5, 0)
    living.claim(6, 0)
    dead.claim(5, 0)
    complete(dead, 5)
    assert buffer.reissue(5) == [0, 2]
    assert buffer.reissue(5) == []
    assert buffer.counts() == {"free": 0, "issued": 2, "claimed": 1, "ready": 1}
    with pytest.raises(ClaimLost):
        dead.commit(0)
    record = living.claim(6, 0)
    assert record is not None
    assert (record["sequence"], record["prompt_index"]) == (0, 100)
    living.commit(0)
    living.commit(1)
    assert buffer.ready(range(4)) == 3


def test_a_restarted_generator_of_the_same_number_does_not_revive_the_old_claim(buffer: RolloutBuffer) -> None:
    old, new = RolloutBuffer.attach(buffer.path), RolloutBuffer.attach(buffer.path)
    issue(buffer, 0)
    old.claim(5, 0)
    buffer.reissue(5)
    new.claim(5, 0)
    with pytest.raises(ClaimLost):
        old.commit(0)
    new.commit(0)


def test_a_claim_does_not_survive_the_reuse_of_its_slot(buffer: RolloutBuffer) -> None:
    old, new = RolloutBuffer.attach(buffer.path), RolloutBuffer.attach(buffer.path)
    issue(buffer, 0)
    old.claim(5, 0)
    buffer.reissue(5)
    complete(new)
    buffer.free([0])
    issue(buffer, 4)
    new.claim(5, 0)
    with pytest.raises(ClaimLost):
        old.commit(0)
    new.commit(4)


@pytest.mark.parametrize("wrong", [(0, 1, 1, 1), (1, 0, 1, 1), (1, 1, 0, 1), (1, 1, 1, -1)])
def test_an_empty_shape_is_refused(wrong: tuple[int, int, int, int]) -> None:
    with pytest.raises(ValueError, match="must be positive"):
        BufferShape(*wrong)


def test_another_kind_of_segment_is_refused(prefix: str) -> None:
    channel = WeightChannel.create(prefix + ".weights", [TensorSpec("a", "float32", (1,), 4)])
    with pytest.raises(ValueError, match="not a rollout-buffer segment"):
        RolloutBuffer.attach(channel.path)


def test_gate_and_buffer_fit_together_for_many_steps(prefix: str) -> None:
    """The trainer's whole cycle on one thread: capacity (k + 1) P is always enough, and everything comes in order."""
    gate = StalenessGate(prompts_per_step=3, k=2)
    buffer = RolloutBuffer.create(prefix + ".rollouts", BufferShape(gate.capacity, 1, 1, 1))
    for version in range(50):
        issue(buffer, *(gate.issue().sequence for _ in range(gate.may_issue())))
        assert buffer.counts()["free"] == 0
        assert [complete(buffer) for _ in range(3)] == list(gate.batch(version))
        assert buffer.ready(gate.batch(version)) == 3
        assert [buffer.view(s)["prompt_index"] for s in gate.batch(version)] == [100 + s for s in gate.batch(version)]
        gate.publish(version + 1)
        buffer.free(gate.batch(version))
