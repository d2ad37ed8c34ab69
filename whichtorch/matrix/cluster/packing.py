"""Attempt folders on their way: packed on the worker, unpacked into the client's run."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from whichtorch.records.stored_runs import folder_of, with_folder, without_files

if TYPE_CHECKING:
    from whichtorch.model import Record
    from whichtorch.records.store import RunStore

DELIVERY = "delivery.json"


def pack(delivery: str, records: Iterable[Record], home: Path) -> bytes:
    """Return a delivery and the folders of its records' attempts as one gzipped tar archive."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1) as archive:
        text = delivery.encode()
        header = tarfile.TarInfo(DELIVERY)
        header.size = len(text)
        archive.addfile(header, io.BytesIO(text))
        packed: set[PurePosixPath] = set()  # the tests of a command have theirs in the command's
        for folder in map(PurePosixPath, dict.fromkeys(folder_of(record.attempt) for record in records)):
            if (home / folder).is_dir() and folder.name and packed.isdisjoint(folder.parents):
                archive.add(home / folder, arcname=str(folder), filter=_plain)
                packed.add(folder)
    return buffer.getvalue()


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Leave out all that is neither a file nor a folder, and who owned it."""
    if not (member.isfile() or member.isdir()):
        return None
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


class Parcel:
    """A packed delivery that has arrived."""

    def __init__(self, data: bytes) -> None:
        self._archive = tarfile.open(fileobj=io.BytesIO(data), mode="r:gz")  # noqa: SIM115  closed with the parcel
        self._folders: dict[str, str] = {}  # here, of the attempts whose files were moved, by those there
        file = self._archive.extractfile(DELIVERY)
        assert file is not None
        self.delivery = file.read()

    def close(self) -> None:
        """Forget the data."""
        self._archive.close()

    def moved(self, record: Record, store: RunStore) -> Record:
        """Return a record with the files of its attempt in a run; without them where they did not come."""
        attempt = record.attempt
        folder = self._moved_folder(folder_of(attempt), store)
        moved = with_folder(attempt, folder) if folder else without_files(attempt)
        return record.model_copy(update={"attempt": moved})

    def _moved_folder(self, old: str, store: RunStore) -> str:
        """Return the folder of an attempt in a run, "" where none came; the tests of a command share the command's."""
        for shared in map(str, (PurePosixPath(old), *PurePosixPath(old).parents)):
            if shared in self._folders:
                return self._folders[shared] + old.removeprefix(shared)
        members = [member for member in self._archive.getmembers() if member.name.startswith(f"{old}/")] if old else []
        if not members:
            return ""
        folder = store.attempt_folder()
        for member in members:
            inside = member.replace(name=member.name.removeprefix(f"{old}/"), deep=False)
            self._archive.extract(inside, folder, filter="data")
        store.redactor.tree(folder)
        self._folders[old] = store.path_of(folder)
        return self._folders[old]
