from __future__ import annotations

import time

import pytest

from scalerl_mini.runtime.control import COUNTERS, STOP_REASONS, Control, Stage
from tests.runtime.support import spawned

ROLES = ["trainer", "generator-0", "generator-1"]


@pytest.fixture
def control(prefix: str) -> Control:
    return Control.create(prefix + ".control", ROLES)


def _work(path: str) -> None:
    control = Control.attach(path)
    control.beat("generator-1", Stage.EVALUATING)
    control.add("generator-1", "generated_tokens", 40)
    control.add("generator-1", "generated_tokens", 2)
    control.add("generator-1", "wait_s", 0.25)
    control.put("generator-1", "loaded_checksum", 2**63 - 1)
    control.request_stop("finished")


def test_a_new_block_is_quiet(control: Control) -> None:
    assert control.roles == ROLES
    assert not control.stopping
    assert control.stop_reason is None
    for role in ROLES:
        assert control.stage(role) == Stage.STARTING
        assert 0 <= time.monotonic() - control.last_beat(role) < 60
        assert {name: control.get(role, name) for name in COUNTERS} == dict.fromkeys(COUNTERS, 0) | {
            "loaded_version": -1
        }


def test_another_process_is_seen(control: Control) -> None:
    before = time.monotonic()
    with spawned(_work, str(control.path)) as process:
        process.join(60)
    assert control.stage("generator-1") == Stage.EVALUATING
    assert before < control.last_beat("generator-1") < time.monotonic()
    assert control.get("generator-1", "generated_tokens") == 42
    assert isinstance(control.get("generator-1", "generated_tokens"), int)
    assert control.get("generator-1", "wait_s") == 0.25
    assert control.get("generator-1", "loaded_checksum") == 2**63 - 1
    assert control.get("generator-0", "generated_tokens") == 0
    assert control.stage("generator-0") == Stage.STARTING
    assert control.stop_reason == "finished"


@pytest.mark.parametrize("reason", STOP_REASONS)
def test_the_first_reason_to_stop_stays(control: Control, reason: str) -> None:
    control.request_stop(reason)
    assert control.stopping
    for other in STOP_REASONS:
        control.request_stop(other)
    assert control.stop_reason == reason


def test_an_unknown_reason_or_role_or_counter_is_refused(control: Control, prefix: str) -> None:
    with pytest.raises(ValueError, match="not in tuple"):
        control.request_stop("boredom")
    with pytest.raises(KeyError):
        control.beat("generator-9", Stage.WAITING)
    with pytest.raises(ValueError, match="no field of name"):
        control.add("trainer", "steps", 1)
    with pytest.raises(ValueError, match="two roles of one name"):
        Control.create(prefix + ".other", ["trainer", "trainer"])


def test_last_seen_reads_like_a_sentence(control: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    control.beat("generator-0", Stage.GENERATING)
    seen = control.last_beat("generator-0")
    monkeypatch.setattr(time, "monotonic", lambda: seen + 3.2)
    assert control.last_seen("generator-0") == "generator-0 last seen GENERATING 3.2 s ago"


def test_last_words_reach_another_process_and_are_cut_to_their_room(control: Control) -> None:
    other = Control.attach(control.path)
    assert other.words("trainer") == ""
    control.leave_words("trainer", "the disk is full")
    control.leave_words("generator-0", "ü" * 2000)
    assert other.words("trainer") == "the disk is full"
    assert other.words("generator-0") == "ü" * 512
    assert other.words("generator-1") == ""
