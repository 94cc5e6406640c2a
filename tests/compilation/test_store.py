"""The store on disk: what is put is read again or is gone, whatever happens to the process, the file or the disk."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from grammar_backends.compilation import ArtifactStore
from grammar_backends.compilation import store as store_module

KEY, OTHER_KEY = "a" * 64, "b" * 64
WRITERS = Path(__file__).with_name("store_writers.py")


class Clock:
    """A time that goes on by a second whenever somebody asks."""

    def __init__(self) -> None:
        self.now = 1_000_000_000.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


@pytest.fixture
def store(tmp_path: Path) -> ArtifactStore:
    return ArtifactStore(tmp_path / "cache", clock=Clock())


def entry(store: ArtifactStore, key: str = KEY) -> Path:
    return store._path(key)


def start(task: str, directory: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, WRITERS, task, directory], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def figures(process: subprocess.Popen[str]) -> list[int]:
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return list(map(int, output.split()))


@pytest.mark.parametrize("data", [b"", b"x", bytes(range(256)) * 1000, os.urandom(300_000)], ids=len)
def test_e9_what_is_put_is_read_again_by_this_and_any_later_store(store: ArtifactStore, data: bytes) -> None:
    assert store.get(KEY) is None
    store.put(KEY, data)
    assert store.get(KEY) == data
    assert ArtifactStore(store._directory).get(KEY) == data
    assert store.get(OTHER_KEY) is None


def test_e9_what_is_put_again_replaces_what_was_there(store: ArtifactStore) -> None:
    store.put(KEY, b"old")
    store.put(KEY, b"new")
    assert store.get(KEY) == b"new"
    assert len(store) == 1


def test_e9_what_is_removed_is_gone_and_need_not_have_been_there(store: ArtifactStore) -> None:
    store.put(KEY, b"x")
    store.remove(KEY)
    store.remove(KEY)
    assert store.get(KEY) is None


@pytest.mark.parametrize("key", ["", "abc", "A" * 64, "../" + "a" * 61, "a" * 63 + "\n", "a/b" * 20, "a" * 129])
def test_e9_a_key_is_a_digest_and_never_a_path(store: ArtifactStore, key: str) -> None:
    for call in (store.get, store.remove, lambda key: store.put(key, b"x")):
        with pytest.raises(ValueError, match="no digest"):
            call(key)


def test_e9_damage_anywhere_makes_an_entry_go(store: ArtifactStore) -> None:
    store.put(KEY, random.Random(0).randbytes(200))
    whole = entry(store).read_bytes()
    for place in range(len(whole)):
        for bit in range(8):
            damaged = bytearray(whole)
            damaged[place] ^= 1 << bit
            entry(store).write_bytes(damaged)
            assert store.get(KEY) is None
            assert not entry(store).exists()
    assert store.damaged == 8 * len(whole)


def test_e9_a_file_that_is_too_short_or_too_long_goes(store: ArtifactStore) -> None:
    store.put(KEY, b"some bytes")
    whole = entry(store).read_bytes()
    for damaged in [whole[:end] for end in range(len(whole))] + [whole + b"\0", whole * 2]:
        entry(store).write_bytes(damaged)
        assert store.get(KEY) is None
        assert not entry(store).exists()


def test_e9_an_entry_of_another_version_goes(store: ArtifactStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(store_module, "MAGIC", b"GBSTORE0")
        store.put(KEY, b"x")
        assert store.get(KEY) == b"x"
    assert store.get(KEY) is None
    assert not entry(store).exists()


def test_e9_an_entry_under_the_name_of_another_goes(store: ArtifactStore, caplog: pytest.LogCaptureFixture) -> None:
    store.put(KEY, b"x")
    os.rename(entry(store), entry(store, OTHER_KEY))
    assert store.get(OTHER_KEY) is None
    assert len(store) == 0
    assert "damaged or foreign" in caplog.text


def test_e9_an_entry_is_not_followed_out_of_the_directory(store: ArtifactStore, tmp_path: Path) -> None:
    elsewhere = ArtifactStore(tmp_path / "elsewhere")
    elsewhere.put(KEY, b"planted")
    entry(store).symlink_to(entry(elsewhere))
    assert store.get(KEY) is None


def test_b11_the_sum_is_bounded_and_what_was_not_used_for_longest_goes_first(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path, max_bytes=100_000, clock=Clock())
    keys = [f"{number:064x}" for number in range(200)]
    rng = random.Random(0)
    for key in keys:
        store.put(key, rng.randbytes(2_000))
        assert store.get(keys[0]) is not None, "what is used all the time went"
        assert store.nbytes <= 100_000 * (1 + store_module.RESCAN)
    kept = [key for key in keys if entry(store, key).exists()]
    assert kept == [keys[0], *keys[-len(kept) + 1 :]]
    assert len(kept) > 40
    assert store.evictions == len(keys) - len(kept)


def test_b11_what_is_larger_than_everything_together_is_not_kept(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path, max_bytes=10_000)
    store.put(KEY, b"x")
    store.put(OTHER_KEY, os.urandom(20_000))
    assert store.get(OTHER_KEY) is None
    assert store.get(KEY) == b"x"


def test_b11_a_new_process_sees_what_others_have_left(tmp_path: Path) -> None:
    clock = Clock()
    for number in range(40):
        ArtifactStore(tmp_path, max_bytes=20_000, clock=clock).put(f"{number:064x}", os.urandom(1_000))
    assert ArtifactStore(tmp_path).nbytes <= 20_000


def test_e9_files_of_killed_writers_are_swept_and_others_are_left_alone(tmp_path: Path) -> None:
    clock = Clock()
    old, young, foreign = (tmp_path / name for name in (f".{'1' * 32}.writing", f".{'2' * 32}.writing", "notes.txt"))
    for path, age in ((old, store_module.ABANDONED_SECONDS + 60), (young, 60), (foreign, 1e9)):
        path.write_bytes(b"half")
        os.utime(path, (clock.now - age,) * 2)
    ArtifactStore(tmp_path, clock=clock).put(KEY, b"x")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted((young.name, foreign.name, f"{KEY}.artifact"))


def test_e9_a_writer_that_is_killed_at_any_moment_leaves_no_wrong_entry(tmp_path: Path) -> None:
    unfinished, found, damaged = figures(start("kill_writers", tmp_path))
    assert unfinished > 0, "no kill came while a file was written: the test shows nothing"
    assert found > 0
    assert damaged == 0


def test_e9_processes_that_write_read_remove_and_evict_at_once_see_right_entries_only(tmp_path: Path) -> None:
    results = [figures(process) for process in [start("work_at_once", tmp_path) for _ in range(4)]]
    assert sum(evictions for evictions, _, _ in results) > 0
    assert [damaged for _, _, damaged in results] == [0] * 4
    assert ArtifactStore(tmp_path).nbytes <= (1 << 20) * (1 + 4 * store_module.RESCAN)


def test_e9_threads_share_a_store(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path, max_bytes=200_000)
    wrong: list[str] = []

    def work(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(200):
            key = f"{rng.randrange(20):064x}"
            expected = random.Random(key).randbytes(20_000)
            if rng.random() < 0.5:
                store.put(key, expected)
            elif (data := store.get(key)) is not None and data != expected:
                wrong.append(key)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert store.damaged == 0


def test_k4_a_disk_that_is_full_costs_a_line_and_no_request(tmp_path: Path) -> None:
    process = start("fill_disk", tmp_path)  # a limit holds for a whole process, and for what it prints
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    assert output.split() == ["0", "1", "1"], "no large entry, the small one, and no half file"
    assert errors.count("cannot be written") == len(errors.splitlines()) == 1


def test_k4_writing_is_tried_again_later(store: ArtifactStore, caplog: pytest.LogCaptureFixture) -> None:
    clock = store._clock
    assert isinstance(clock, Clock)
    directory = store._directory
    directory.rmdir()
    directory.touch()
    for _ in range(5):
        store.put(KEY, b"x")
        clock.now += store_module.PAUSE_SECONDS
    store.put(KEY, b"x")
    directory.unlink()
    directory.mkdir()
    store.put(KEY, b"x")
    assert store.get(KEY) is None
    clock.now += store_module.PAUSE_SECONDS
    store.put(KEY, b"x")
    assert store.get(KEY) == b"x"
    assert [record.levelname for record in caplog.records] == ["WARNING"], "a reason is told once"


def test_k4_a_directory_that_is_deleted_costs_what_was_in_it(store: ArtifactStore) -> None:
    store.put(KEY, b"x")
    shutil.rmtree(store._directory)
    assert store.get(KEY) is None
    assert (len(store), store.nbytes) == (0, 0)
    store.put(KEY, b"y")
    assert store.get(KEY) == b"y"
    assert store._directory.stat().st_mode & 0o777 == 0o700


def test_k4_a_directory_that_comes_back_untrusted_is_left_alone(store: ArtifactStore) -> None:
    shutil.rmtree(store._directory)
    store._write_at_once = lambda path, content: open_to_all(store._directory) or _absent()  # type: ignore[method-assign,func-returns-value]  # somebody is quicker
    store.put(KEY, b"x")
    assert list(store._directory.iterdir()) == []
    assert not store._usable


def _absent() -> None:
    raise FileNotFoundError


@pytest.mark.parametrize("jump", [-1e9, 1e9, 1e30, -1e30, float("nan")])
def test_k4_a_clock_that_jumps_loses_nothing_but_what_has_to_go(tmp_path: Path, jump: float) -> None:
    clock = Clock()
    store = ArtifactStore(tmp_path, max_bytes=20_000, clock=clock)
    store.put(KEY, b"before")
    clock.now += jump
    for number in range(100):
        key = f"{number:064x}"
        store.put(key, random.Random(number).randbytes(1_000))
        assert store.get(key) == random.Random(number).randbytes(1_000), "what was just put is there"
    assert store.nbytes <= 20_000 * (1 + store_module.RESCAN)


def test_k4_a_clock_that_is_set_back_makes_no_pause_longer(store: ArtifactStore) -> None:
    clock = store._clock
    assert isinstance(clock, Clock)
    store._directory.rmdir()
    store._directory.touch()
    store.put(KEY, b"x")
    store._directory.unlink()
    store._directory.mkdir()
    clock.now -= 1e6
    store.put(KEY, b"x")
    assert store.get(KEY) == b"x"


def in_the_way(path: Path) -> None:
    path.write_text("a file where the directory should be")


def open_to_all(path: Path) -> None:
    path.mkdir()
    path.chmod(0o777)


def open_to_its_group(path: Path) -> None:
    path.mkdir()
    path.chmod(0o775)


def behind_a_link(path: Path) -> None:
    open_to_all(path.with_name("elsewhere"))
    path.symlink_to(path.with_name("elsewhere"))


def a_link_to_nowhere(path: Path) -> None:
    path.symlink_to(path.with_name("nowhere"))


def of_somebody_else(path: Path) -> None:
    path.mkdir(mode=0o755)
    os.chown(path, 12345, 12345)


def need_root(needed: bool = True) -> None:
    if needed and os.geteuid():
        pytest.skip("only root can give files away")


@pytest.mark.parametrize(
    "prepare", [in_the_way, open_to_all, open_to_its_group, behind_a_link, a_link_to_nowhere, of_somebody_else]
)
def test_k4_a_directory_that_cannot_be_trusted_or_used_is_left_alone(
    tmp_path: Path, prepare: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    need_root(prepare is of_somebody_else)
    prepare(tmp_path / "cache")
    store = ArtifactStore(tmp_path / "cache")
    store.put(KEY, b"x")
    assert store.get(KEY) is None
    assert (len(store), store.nbytes) == (0, 0)
    assert len(caplog.records) == 1
    assert "no artifacts are kept" in caplog.text


def test_k4_a_directory_is_made_for_its_owner_alone(store: ArtifactStore) -> None:
    store.put(KEY, b"x")
    assert store._directory.stat().st_mode & 0o777 == 0o700
    assert entry(store).stat().st_mode & 0o777 == 0o600


def test_k4_a_link_to_a_directory_that_can_be_trusted_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "cache").symlink_to(tmp_path / "real")
    ArtifactStore(tmp_path / "cache").put(KEY, b"x")
    assert ArtifactStore(tmp_path / "real").get(KEY) == b"x"


@pytest.mark.parametrize("prepare", [open_to_its_group, of_somebody_else])
def test_k4_a_cache_of_a_group_is_trusted_by_who_says_so(tmp_path: Path, prepare: Callable[[Path], None]) -> None:
    need_root(prepare is of_somebody_else)
    prepare(tmp_path / "cache")
    ArtifactStore(tmp_path / "cache", shared=True).put(KEY, b"x")
    store = ArtifactStore(tmp_path / "cache", shared=True)
    assert store.get(KEY) == b"x"
    assert entry(store).stat().st_mode & 0o777 == 0o660
    assert ArtifactStore(tmp_path / "cache").get(KEY) is None


def test_k4_what_everybody_may_write_to_is_trusted_by_nobody(tmp_path: Path) -> None:
    open_to_all(tmp_path / "cache")
    store = ArtifactStore(tmp_path / "cache", shared=True)
    store.put(KEY, b"x")
    assert (store.get(KEY), list((tmp_path / "cache").iterdir())) == (None, [])


def test_k4_a_directory_that_is_made_to_be_shared_can_be(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path / "cache", shared=True)
    assert store._directory.stat().st_mode & 0o7777 == 0o2770


def a_file_of_somebody_else(path: Path) -> None:
    need_root()
    os.chown(path, 12345, 12345)


def a_file_open_to_all(path: Path) -> None:
    path.chmod(0o666)


def a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize("plant", [a_file_of_somebody_else, a_file_open_to_all, a_pipe])
def test_k4_a_file_that_cannot_be_trusted_is_not_read_however_its_directory_is(
    store: ArtifactStore, plant: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    store.put(KEY, b"x")
    plant(entry(store))
    assert [store.get(KEY), store.get(KEY)] == [None, None]
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    store.put(KEY, b"y")
    assert store.get(KEY) == b"y"


def test_k4_a_file_without_end_is_no_entry(store: ArtifactStore) -> None:
    with open(entry(store), "wb") as file:
        file.truncate(1 << 40)
    store._max_bytes = 1 << 20
    assert store.get(KEY) is None
    assert not entry(store).exists()


def test_k4_a_directory_that_can_only_be_read_serves_all_the_same(tmp_path: Path) -> None:
    assert figures(start("read_only", tmp_path)) == [1, 0, 1], "the old entry, no new one, and one line"


def test_k4_a_file_system_without_room_costs_a_line_and_no_request(tmp_path: Path) -> None:
    mount = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    small = f"mount -t tmpfs -o size=64k,mode=700 none {tmp_path} && exec {sys.executable} {WRITERS} no_room {tmp_path}"
    done = subprocess.run([*mount, small], capture_output=True, text=True, timeout=120, check=False)
    if "unshare" in done.stderr or "mount:" in done.stderr:
        pytest.skip(f"no file system can be made here: {done.stderr}")
    assert done.stdout.split() == ["0", "1", "1"], done.stderr
    assert done.stderr.count("No space left on device") == 1


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"directory": 5}, "directory must be the path of a directory, not 5"),
        ({"directory": ""}, "a path is needed"),
        ({"max_bytes": "1 GB"}, "max_bytes must be a number of bytes, not '1 GB'"),
        ({"max_bytes": True}, "max_bytes"),
        ({"max_bytes": -1}, "max_bytes must be at least 0"),
        ({"shared": 1}, "shared must be True or False"),
        ({"clock": 1.0}, "clock must be a function"),
    ],
)
def test_e10_arguments_that_make_no_sense_are_refused_at_once(
    tmp_path: Path, wrong: dict[str, Any], words: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        ArtifactStore(**{"directory": tmp_path, **wrong})


def test_k4_an_entry_that_cannot_be_opened_is_not_there(store: ArtifactStore, caplog: pytest.LogCaptureFixture) -> None:
    entry(store).mkdir()
    assert store.get(KEY) is None
    assert "cannot be read" in caplog.text
