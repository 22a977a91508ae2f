"""Reads the manifests of the served stores, before the packages that read tables are imported."""

import threading
from pathlib import Path
from typing import Any, Final

from mcptally.review.place import file_of_store
from mcptally.store.manifest import manifest_version, read_manifest


class State:
    """The state of a store, its base and the answers about it, which threads may share.

    Args:
        path: the store.
        base: an earlier store to compare with.
        reviews: the file of review answers; by default, the file in the archive's folder.

    Raises:
        StoreError: there is no store at `path` or at `base`.
    """

    def __init__(self, path: Path, base: Path | None = None, reviews: Path | None = None) -> None:
        self.path: Final = path
        self.base: Final = base
        self.given_reviews: Final = reviews
        """The file of review answers that the user named."""
        self._lock: Final = threading.Lock()
        self._version = manifest_version(path)
        self._manifest = read_manifest(path, archive=False)
        if base is not None:
            read_manifest(base, archive=False)
        self.reviews: Final = reviews or file_of_store(self._manifest, path)
        """The file of review answers, if it can be written; it may be missing."""

    def manifest(self) -> dict[str, Any]:
        """Return the store's manifest, reloaded after a run has replaced the store."""
        with self._lock:
            if (version := manifest_version(self.path)) != self._version:
                self._manifest, self._version = read_manifest(self.path, archive=False), version
            return self._manifest

    def mark(self) -> object:
        """Return a value that changes whenever the store, its base or the review answers change."""
        file = self.reviews
        answered = file.stat().st_mtime_ns if file is not None and file.exists() else None
        return manifest_version(self.path), self.base and manifest_version(self.base), answered
