"""What an archive may have in it before it is unpacked."""

from __future__ import annotations

from pathlib import PurePosixPath


def require_plain(name: str, error: type[Exception], *, is_plain: bool) -> None:
    """Refuses what is neither a file nor a folder, and what would be written outside of the folder.

    Args:
        name: of a member.
        error: raised in that case.
        is_plain: whether the archive says that it is a file or a folder.
    """
    path = PurePosixPath(name)
    if not is_plain or path.is_absolute() or ".." in path.parts:
        raise error(f"'{name}' is a link, a device or leads out of the folder")
