"""Archives unpacked alike by every Python from 3.11.0 on: Debian 12's does not know extractall(filter=) yet."""

from __future__ import annotations

import tarfile
from pathlib import Path


def unpack(archive: tarfile.TarFile, folder: str | Path, *, is_trusted: bool = False) -> None:
    """Unpack below the folder; `is_trusted`: owners, modes and devices too, as a system has them."""
    name = "fully_trusted_filter" if is_trusted else "data_filter"
    if hasattr(tarfile, name):
        archive.extraction_filter = getattr(tarfile, name)
    archive.extractall(folder)
