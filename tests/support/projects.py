"""A project of its own with the jobs of the repository, in which tests run commands."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import psutil

from deltaworks import clock, processes
from deltaworks.settings import Settings
from tests.support.processes import running

_JOBS = Path(__file__).parents[2] / "jobs"
_PATIENCE_S = 240


@dataclass(frozen=True)
class Project:
    """A folder with `jobs/` and `deltaworks.toml`, and a secret that only a file of it has."""

    folder: Path
    secret: str

    @classmethod
    def make(cls, folder: Path, settings: str, secret_file: str, secret: str) -> Project:
        """A new one.

        Args:
            folder: where.
            settings: text of its `deltaworks.toml`.
            secret_file: name of the file with the secret, to which the settings refer.
            secret: the secret.
        """
        folder.mkdir()
        shutil.copytree(_JOBS, folder / "jobs", ignore=shutil.ignore_patterns("__pycache__"))
        (folder / secret_file).write_text(f"{secret}\n")
        (folder / "deltaworks.toml").write_text(settings)
        return cls(folder, secret)

    @property
    def settings(self) -> Settings:
        return Settings.from_environment(self.environment, cwd=self.folder)

    @property
    def environment(self) -> dict[str, str]:
        """Ours, without what would name another project, home or Kafka."""
        ours = ("DELTAWORKS_HOME", "DELTAWORKS_BOOTSTRAP", "DELTAWORKS_PROJECT")
        return {name: value for name, value in os.environ.items() if name not in ours}

    def deltaworks(self, *arguments: str) -> tuple[int, str]:
        """Exit code and output of a command; fails if a process shows the secret to others meanwhile."""
        log = self.folder / "said.log"
        with running(
            [sys.executable, "-m", "deltaworks.cli", *arguments], environment=self.environment, log=log, cwd=self.folder
        ) as command:
            deadline = clock.ticks_s() + _PATIENCE_S
            while command.poll() is None:
                assert clock.ticks_s() < deadline, log.read_text()
                for process in processes.family(psutil.Process(command.pid)):
                    with contextlib.suppress(psutil.Error):
                        assert self.secret not in " ".join((*process.cmdline(), *process.environ().values()))
        said = log.read_text()
        log.unlink()
        return command.returncode, said

    def is_untouched(self) -> bool:
        """Whether no stream has begun."""
        return not self.settings.pipeline("orders").joinpath("checkpoint").exists() and not list(
            self.folder.glob("home/tables/*")
        )
