from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from scalerl_mini.errors import UserError
from scalerl_mini.runtime import segment
from scalerl_mini.runtime.segment import Segment
from tests.runtime.support import eventually, spawned


def _fill(path: Path, value: int) -> None:
    Segment.attach(path).array[:] = value


def _hold_lock_for_ever(path: Path) -> None:
    with Segment.attach(path).lock():
        Segment.attach(path).array[0] = 1
        threading.Event().wait()


def test_two_mappings_share_the_bytes(prefix: str) -> None:
    created = Segment.create(prefix + ".a", 5000)
    attached = Segment.attach(created.path)
    assert created.array.shape == (5000,)
    assert not created.array.any()
    attached.array[4999] = 7
    assert created.array[4999] == 7
    assert created.path == segment.SHM_DIR / (prefix + ".a")
    assert not created.file_backed


def test_a_bare_name_is_looked_for_in_dev_shm(prefix: str) -> None:
    Segment.create(prefix + ".a", 10).array[3] = 9
    assert Segment.attach(prefix + ".a").array[3] == 9


def test_a_taken_name_is_refused(prefix: str) -> None:
    Segment.create(prefix + ".a", 10)
    with pytest.raises(FileExistsError):
        Segment.create(prefix + ".a", 10)


@pytest.mark.parametrize(("name", "size"), [("a/b", 10), ("a", 0), ("a", -1)])
def test_nonsense_is_refused(name: str, size: int) -> None:
    with pytest.raises(ValueError, match="positive size and a plain name"):
        Segment.create(name, size)


def test_a_process_that_only_attached_does_not_remove_the_segment_by_exiting(prefix: str) -> None:
    created = Segment.create(prefix + ".a", 100)
    with spawned(_fill, created.path, 3) as process:
        process.join(60)
        assert process.exitcode == 0
    assert created.path.exists()
    assert (created.array == 3).all()


def test_close_keeps_views_alive_and_unlink_removes_only_the_name(prefix: str) -> None:
    created = Segment.create(prefix + ".a", 100)
    view = created.array[10:20]
    created.close()
    created.close()
    created.unlink()
    created.unlink()
    view[:] = 5
    assert view.sum() == 50
    assert not created.path.exists()
    assert len(created.array) == 0


def test_close_gives_the_descriptors_back(prefix: str) -> None:
    Segment.create(prefix + ".a", 100).close()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        Segment.attach(prefix + ".a").close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_the_pages_are_really_reserved(prefix: str) -> None:
    created = Segment.create(prefix + ".a", 1_000_000)
    assert created.path.stat().st_blocks * 512 >= 1_000_000


def test_descriptors_do_not_leak_into_other_programs(prefix: str) -> None:
    created = Segment.create(prefix + ".a", 100)
    code = "import os; print([os.path.realpath(f'/proc/self/fd/{n}') for n in os.listdir('/proc/self/fd')])"
    output = subprocess.run([sys.executable, "-c", code], close_fds=False, capture_output=True, text=True, check=True)
    assert str(created.path) not in output.stdout


def test_small_shm_falls_back_to_a_file_and_says_so(
    prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = segment.free_bytes
    monkeypatch.setattr(segment, "free_bytes", lambda folder: 64 if folder == segment.SHM_DIR else real(folder))
    created = Segment.create(prefix + ".a", 4096, fallback_dir=tmp_path)
    assert created.path == tmp_path / (prefix + ".a")
    assert created.file_backed
    assert "slower" in caplog.text
    Segment.attach(created.path).array[1] = 2
    assert created.array[1] == 2


def test_missing_shm_falls_back_to_a_file(prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment, "SHM_DIR", tmp_path / "no-such-folder")
    (tmp_path / "disk").mkdir()
    assert Segment.create(prefix + ".a", 4096, fallback_dir=tmp_path / "disk").file_backed


@pytest.mark.parametrize("fallback", [True, False])
def test_no_room_anywhere_names_wanted_available_and_remedy(
    prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fallback: bool
) -> None:
    monkeypatch.setattr(segment, "free_bytes", lambda folder: 2 * segment.MIB)
    with pytest.raises(UserError) as caught:
        Segment.create(prefix + ".a", 3 * segment.MIB, fallback_dir=tmp_path if fallback else None)
    message = str(caught.value)
    for part in ("3.0 MiB", "2.0 MiB", "/dev/shm", "--shm-size", *([str(tmp_path)] if fallback else [])):
        assert part in message
    assert "\n" not in message


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_room_that_vanishes_between_check_and_reservation_leaves_no_file(
    prefix: str, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def full(descriptor: int, offset: int, size: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(UserError):
        Segment.create(prefix + ".a", 4096)
    assert not (segment.SHM_DIR / (prefix + ".a")).exists()


def test_another_error_of_the_reservation_is_not_hidden(prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(descriptor: int, offset: int, size: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "posix_fallocate", broken)
    with pytest.raises(OSError, match="Input/output"):
        Segment.create(prefix + ".a", 4096)
    assert not (segment.SHM_DIR / (prefix + ".a")).exists()


def test_the_lock_excludes_other_mappings_and_threads(prefix: str) -> None:
    one = Segment.create(prefix + ".a", 8)
    two = Segment.attach(one.path)
    counter = one.array[:4].view("int32")

    def increment(by: Segment) -> None:
        for _ in range(300):
            with by.lock():
                value = int(counter[0])
                time.sleep(0.0001)
                counter[0] = value + 1

    threads = [threading.Thread(target=increment, args=(by,)) for by in (one, one, two)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counter[0] == 900


def test_the_lock_is_free_again_when_its_holder_is_killed(prefix: str) -> None:
    created = Segment.create(prefix + ".a", 8)
    with spawned(_hold_lock_for_ever, created.path) as process:
        eventually(lambda: bool(created.array[0]), "the child holds the lock")
        process.kill()
        process.join()
    with created.lock():
        assert created.array[0] == 1
