"""Folders of results: rejected when finished, locked while in use, replaced as a whole, and files of others stay."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest

from bftrain import BadInput, UsageError, generate_log, result_folder, save_log
from bftrain.result_folder import (
    DRAFT,
    LOCK_FILE,
    PAGE_MARK,
    READY,
    REPORT_FILE,
    SUMS,
    FolderLock,
    ResultFolder,
    ResultKind,
    complete_replacement,
    this_process,
    write_page,
)

KIND = ResultKind(
    title="replay",
    form="bftrain replay",
    names=frozenset({"summary.json", "tasks.csv", "tasks.parquet", REPORT_FILE}),
    records={"unfinished.jsonl": b'{"format":"bftrain answers '},
    prints=frozenset({"workers.log"}),
)
PAGE = f'<!DOCTYPE html>{PAGE_MARK}1.0"></html>'


def files(number: int, *, complete: bool = True, table: str = "tasks.csv") -> dict[str, str]:
    summary = json.dumps({"format": "bftrain replay 1", "complete": complete, "number": number})
    return {"summary.json": summary, table: f"name\n{number}\n", REPORT_FILE: f"{PAGE}{number}"}


def put(folder: Path, content: dict[str, str]) -> None:
    for name, text in content.items():
        (folder / name).write_text(text, encoding="utf-8")


def replace(folder: Path, content: dict[str, str], *, overwrite: bool = True) -> None:
    with ResultFolder(folder, KIND, overwrite=overwrite) as result:
        result.replace(lambda draft: put(draft, content))


def content_of(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir() if path.name != SUMS}


def test_a_result_is_written_whole_and_its_sums_hold(tmp_path: Path) -> None:
    replace(tmp_path / "deep" / "out", files(1), overwrite=False)
    assert content_of(tmp_path / "deep" / "out") == files(1)
    checked = subprocess.run(
        ["sha256sum", "--check", SUMS], cwd=tmp_path / "deep" / "out", capture_output=True, text=True, check=True
    )
    assert checked.stdout == "summary.json: OK\ntasks.csv: OK\n"


def test_a_finished_result_is_refused_unless_it_may_be_overwritten(tmp_path: Path) -> None:
    replace(tmp_path, files(1))
    with pytest.raises(
        UsageError,
        match=r"contains a finished replay, and is left unchanged \(--overwrite replaces it, or name another folder",
    ):
        replace(tmp_path, files(2), overwrite=False)
    assert content_of(tmp_path) == files(1)
    replace(tmp_path, files(2, table="tasks.parquet"))
    assert content_of(tmp_path) == files(2, table="tasks.parquet")  # the table in the other form went with the old one


@pytest.mark.parametrize("ended", ["interrupted", "overload"])
def test_a_part_may_be_replaced_and_a_run_that_ended_by_itself_is_no_part(tmp_path: Path, ended: str) -> None:
    summary = {"format": "bftrain replay 1", "complete": False, "ended": ended}
    replace(tmp_path, {"summary.json": json.dumps(summary)})
    if ended == "interrupted":
        replace(tmp_path, files(2), overwrite=False)
        assert content_of(tmp_path) == files(2)
    else:
        with pytest.raises(UsageError, match="contains a finished replay"):
            replace(tmp_path, files(2), overwrite=False)


@pytest.mark.parametrize("name", ["tasks.csv", REPORT_FILE, "summary.json", "unfinished.jsonl", "workers.log", SUMS])
def test_a_file_of_others_is_named_and_left_alone(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine", encoding="utf-8")
    with pytest.raises(UsageError, match=f"{name}: was not written .*left unchanged .move it away, or name another"):
        replace(tmp_path, files(1))
    assert content_of(tmp_path) | ({SUMS: "mine"} if name == SUMS else {}) == {name: "mine"}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("tasks.csv", "changed since bftrain wrote it"),
        ("tasks.parquet", "was not written with a result of bftrain"),
        (REPORT_FILE, "was not written with a result of bftrain"),
    ],
)
def test_beside_a_result_too(tmp_path: Path, name: str, said: str) -> None:
    replace(tmp_path, files(1))
    (tmp_path / name).write_text("mine", encoding="utf-8")
    before = content_of(tmp_path)
    with pytest.raises(UsageError, match=f"{name}: {said}"):
        replace(tmp_path, files(2))
    assert content_of(tmp_path) == before


def test_a_file_that_came_while_it_ran_is_left_alone(tmp_path: Path) -> None:
    def write(draft: Path) -> None:
        put(draft, files(1))
        (tmp_path / "tasks.csv").write_text("mine", encoding="utf-8")

    with pytest.raises(UsageError, match=r"tasks\.csv: was not written with"), ResultFolder(tmp_path, KIND) as result:
        result.replace(write)
    assert content_of(tmp_path) == {"tasks.csv": "mine"}


@pytest.mark.parametrize("kind", ["folder", "link"])
def test_a_folder_or_a_link_of_that_name_is_not_ours(tmp_path: Path, kind: str) -> None:
    replace(tmp_path, files(1))
    path = tmp_path / "tasks.csv"
    path.unlink()
    (tmp_path / "elsewhere").write_text("name\n1\n", encoding="utf-8")
    if kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("elsewhere")
    with pytest.raises(UsageError, match=r"tasks\.csv: changed since"):
        replace(tmp_path, files(2))
    assert os.path.lexists(path)


@pytest.mark.parametrize(("name", "method"), [("summary.json", "read_bytes"), (SUMS, "read_text")])
def test_a_file_that_may_not_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, method: str
) -> None:
    replace(tmp_path, files(1))

    def refused(path: Path, **_: object) -> NoReturn:
        assert path.name == name
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, method, refused)
    with pytest.raises(PermissionError, match=name):
        replace(tmp_path, files(2))


@pytest.mark.parametrize("name", ["summary.json", SUMS])
def test_a_folder_in_the_place_of_a_file_is_named(tmp_path: Path, name: str) -> None:
    replace(tmp_path, files(1))
    (tmp_path / name).unlink()
    (tmp_path / name).mkdir()
    with pytest.raises(UsageError, match=f"{name}: was not written "):
        replace(tmp_path, files(2))


def test_files_of_another_user_in_a_sticky_folder_are_refused_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace(tmp_path, files(1))
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    replace(tmp_path, files(2))
    tmp_path.chmod(0o1777)
    with pytest.raises(UsageError, match="belongs to another user, and only owners may replace files in this folder"):
        replace(tmp_path, files(3))
    assert content_of(tmp_path) == files(2)


def test_a_reader_who_may_not_finish_a_replacement_learns_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace(tmp_path, files(1))
    (tmp_path / READY).mkdir()

    def refused(*_: object) -> NoReturn:
        raise PermissionError(errno.EACCES, "Permission denied", str(tmp_path / LOCK_FILE))

    monkeypatch.setattr(os, "open", refused)
    with pytest.raises(BadInput, match=r"killed, and you cannot finish that: Permission denied \(ask its owner to run"):
        complete_replacement(tmp_path)


def test_another_kind_of_result_is_not_mixed_with_it(tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text('{"format": "bftrain schedule 1"}', encoding="utf-8")
    with pytest.raises(UsageError, match=r"summary\.json: belongs to a 'bftrain schedule 1', and is left unchanged"):
        replace(tmp_path, files(1))


def test_a_result_without_sums_is_known_by_its_names(tmp_path: Path) -> None:
    put(tmp_path, files(1))
    replace(tmp_path, files(2))
    assert content_of(tmp_path) == files(2)


def test_other_names_are_not_touched(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")
    replace(tmp_path, files(1))
    replace(tmp_path, files(2))
    assert content_of(tmp_path) == {**files(2), "notes.txt": "mine"}


def test_records_may_be_cut_off_anywhere(tmp_path: Path) -> None:
    for head in (b"", b'{"form', b'{"format":"bftrain answers 1","log":'):
        (tmp_path / "unfinished.jsonl").write_bytes(head)
        (tmp_path / "workers.log").write_text("printed", encoding="utf-8")
        with ResultFolder(tmp_path, KIND):
            assert (tmp_path / "unfinished.jsonl").read_bytes() == head


def test_the_old_result_stays_if_writing_the_new_one_fails(tmp_path: Path) -> None:
    replace(tmp_path, files(1))

    def fail(draft: Path) -> None:
        put(draft, {"tasks.csv": "half"})
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), ResultFolder(tmp_path, KIND, overwrite=True) as result:
        result.replace(fail)
    assert content_of(tmp_path) == files(1)


def test_all_files_are_on_the_disk_before_they_are_valid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One by one, each would cost a commit of the file system's journal."""
    synced: list[str] = []
    content = files(1)
    draft = {*content, result_folder.SUMS, ".obsolete"}

    def seen(number: int) -> None:
        there = {path.name for path in (tmp_path / result_folder.DRAFT).iterdir()}  # so it is not yet valid
        assert there == draft
        synced.append(Path(f"/proc/self/fd/{number}").readlink().name)

    monkeypatch.setattr(os, "fsync", seen)
    replace(tmp_path, content)
    assert sorted(synced) == sorted(draft)


def test_a_disk_that_fails_to_write_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace(tmp_path, files(1))
    monkeypatch.setattr(os, "fsync", lambda _number: fail_with(errno.EIO))
    with pytest.raises(OSError, match="Input/output") as raised:
        replace(tmp_path, files(2))
    assert Path(raised.value.filename).parent == tmp_path
    assert content_of(tmp_path) == files(1)


def test_a_full_disk_names_the_file_and_not_the_draft(tmp_path: Path) -> None:
    def fail(draft: Path) -> None:
        raise OSError(28, "No space left on device", str(draft / "tasks.csv"))

    with pytest.raises(OSError, match="No space") as refused, ResultFolder(tmp_path, KIND) as result:
        result.replace(fail)
    assert refused.value.filename == str(tmp_path / "tasks.csv")


@pytest.mark.parametrize("call", ["mkdir", "rename", "replace"])
def test_a_folder_that_became_read_only_is_named_and_not_what_is_hidden_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def refuse(path: Path, *_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    with ResultFolder(tmp_path, KIND) as result, monkeypatch.context() as read_only:
        read_only.setattr(Path, call, refuse)
        with pytest.raises(PermissionError) as refused:
            result.replace(lambda draft: put(draft, files(1)))
    assert "/." not in str(refused.value.filename)
    assert str(refused.value.filename).startswith(str(tmp_path))


def test_a_lock_that_cannot_be_made_names_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / LOCK_FILE).mkdir()  # which cannot be opened as a file, by root neither
    with pytest.raises(OSError, match="directory") as refused:
        FolderLock(tmp_path).__enter__()
    assert refused.value.filename == str(tmp_path)
    (tmp_path / LOCK_FILE).rmdir()

    def refuse(path: Path, **_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    with monkeypatch.context() as read_only, FolderLock(tmp_path):
        read_only.setattr(Path, "unlink", refuse)
    with FolderLock(tmp_path):
        assert (tmp_path / LOCK_FILE).exists()


def test_a_file_in_a_folder_that_cannot_be_entered_is_named_and_not_its_draft(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, *_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", refuse)
    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(PermissionError) as refused:
        save_log(generate_log(4, 0.1, 1), tmp_path / "log.csv")
    assert refused.value.filename == str(tmp_path / "log.csv")


def test_a_folder_that_cannot_be_written_to_is_named() -> None:
    with pytest.raises(BadInput, match=r"^/proc/self: cannot be written to: "):
        ResultFolder(Path("/proc/self"), KIND).__enter__()


@pytest.mark.parametrize(("kind", "said"), [("file", "is a file, not a"), ("link", "is a broken link")])
def test_what_is_no_folder_is_named(tmp_path: Path, kind: str, said: str) -> None:
    path = tmp_path / "out"
    if kind == "file":
        path.touch()
    else:
        path.symlink_to("nowhere")
    with pytest.raises(BadInput, match=f"out: {said}"):
        ResultFolder(path, KIND).__enter__()


@pytest.mark.parametrize("moves", range(5))
def test_killed_while_files_are_moved_it_is_finished_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moves: int
) -> None:
    replace(tmp_path, files(1))
    really, left = Path.replace, moves

    def die(self: Path, target: Path) -> Path:
        nonlocal left
        if self.parent.name == READY:
            left -= 1
            if left < 0:
                raise MemoryError
        return really(self, target)

    monkeypatch.setattr(Path, "replace", die)
    monkeypatch.setattr(result_folder.shutil, "rmtree", lambda *_a, **_k: None)
    try:
        replace(tmp_path, files(2, table="tasks.parquet"))
    except MemoryError:
        assert (tmp_path / READY).is_dir()
    monkeypatch.undo()
    complete_replacement(tmp_path)
    assert content_of(tmp_path) == files(2, table="tasks.parquet")


def test_a_draft_of_a_killed_process_goes(tmp_path: Path) -> None:
    (tmp_path / DRAFT).mkdir()
    (tmp_path / DRAFT / "tasks.csv").write_text("half", encoding="utf-8")
    replace(tmp_path, files(1))
    assert content_of(tmp_path) == files(1)


def test_a_locked_folder_is_refused_at_once_and_names_the_holder(tmp_path: Path) -> None:
    with FolderLock(tmp_path), pytest.raises(UsageError) as refused:
        ResultFolder(tmp_path, KIND).__enter__()
    said = str(refused.value)
    assert said.startswith(f"{tmp_path}: is in use by process {os.getpid()} on ")
    assert said.endswith("(wait until it exits, or name another folder)")
    replace(tmp_path, files(1))
    assert not (tmp_path / LOCK_FILE).exists()


def test_a_lock_whose_holder_was_killed_before_it_said_who_it_is(tmp_path: Path) -> None:
    (tmp_path / LOCK_FILE).write_text("?", encoding="utf-8")
    replace(tmp_path, files(1))
    with FolderLock(tmp_path):
        (tmp_path / LOCK_FILE).write_text("?", encoding="utf-8")
        with pytest.raises(UsageError, match="is in use by another process"):
            FolderLock(tmp_path).__enter__()


def test_a_link_of_the_lock_s_name_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine", encoding="utf-8")
    (tmp_path / LOCK_FILE).symlink_to("mine")
    with pytest.raises(UsageError, match=r"\.bftrain\.lock: is a link, and is left unchanged \(remove it"):
        replace(tmp_path, files(1))
    assert content_of(tmp_path) == {"mine": "mine", LOCK_FILE: "mine"}


def test_a_lock_on_a_full_disk_is_named_and_released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", fail)
    with pytest.raises(OSError, match="No space left on device") as ended:
        FolderLock(tmp_path).__enter__()
    assert ended.value.filename == str(tmp_path)
    monkeypatch.undo()
    with FolderLock(tmp_path):
        assert (tmp_path / LOCK_FILE).exists()


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
def test_without_locks_on_the_file_system_a_result_is_written_with_a_remark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    monkeypatch.setattr(fcntl, "flock", lambda *_: fail_with(code))
    with pytest.warns(UserWarning, match="^.*: its file system has no locks: do not start a second command") as caught:
        replace(tmp_path, files(1))
    assert len(caught) == 1
    assert content_of(tmp_path) == files(1)


def test_a_disk_that_fails_when_it_is_locked_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fcntl, "flock", lambda *_: fail_with(errno.EIO))
    with pytest.raises(OSError, match="Input/output error") as ended:
        FolderLock(tmp_path).__enter__()
    assert ended.value.filename == str(tmp_path)


def fail_with(code: int) -> NoReturn:
    raise OSError(code, os.strerror(code))


def test_the_holder_is_named_by_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/usr/lib/bftrain/__main__.py", "replay", "-o", "out"])
    assert this_process().endswith(": bftrain replay -o out")


def test_pages_replace_pages_only(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    write_page(page, PAGE)
    write_page(page, f"{PAGE}2")
    assert page.read_text(encoding="utf-8") == f"{PAGE}2"
    page.write_text("<html>mine</html>", encoding="utf-8")
    with pytest.raises(UsageError, match=r"page\.html: is not a page that bftrain wrote, and is left"):
        write_page(page, PAGE)
    assert page.read_text(encoding="utf-8") == "<html>mine</html>"


def test_an_error_before_the_first_file_leaves_no_folder_that_was_not_there(tmp_path: Path) -> None:
    def fail(folder: Path, name: str = "") -> None:
        with ResultFolder(folder, KIND):
            if name:
                (folder / name).touch()
            raise UsageError("no cluster can be made")

    (tmp_path / "there").mkdir()
    for folder, name, stays in (("new", "", False), ("there", "", True), ("full", "workers.log", True)):
        with pytest.raises(UsageError):
            fail(tmp_path / folder, name)
        assert (tmp_path / folder).exists() is stays
