"""A place in an object store, and how it is reached; can be sent to other processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from deltaworks.config import Reference
from deltaworks.object_path import ObjectPath, connect


@dataclass(frozen=True)
class Remote:
    """A folder of a bucket."""

    address: str
    """`s3://<bucket>/<prefix>`"""
    settings: Mapping[str, str | Reference] = field(repr=False)
    """What `[s3]` in `deltaworks.toml` says; secrets are references."""
    local: Path
    """The folder of this machine for what need not last."""

    def check(self) -> None:
        """Raises `ConfigurationError` or `TransientError` if the store cannot be used; see `require_conditions`."""
        from deltaworks.object_store import require_conditions

        path = self.path
        require_conditions(path.store.files(path.key))

    @property
    def path(self) -> ObjectPath:
        """The path of the folder; this process is told how to reach it."""
        from deltaworks.object_store import ObjectStoreAccess  # imports boto3, which only these homes need

        named = {name: value for name, value in self.settings.items() if name in _TEXTS}
        return connect(
            self.address,
            ObjectStoreAccess(
                **named,  # type: ignore[arg-type]  # only the keys may be references
                path_style=self.settings.get("path_style") == "true",
                verify=str(self.settings["ca_file"]) if "ca_file" in self.settings else True,
            ),
            self.local,
        )


_TEXTS = ("endpoint", "region", "access_key", "secret_key")
