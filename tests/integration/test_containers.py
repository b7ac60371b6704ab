"""What containers run, natively in their layout: the wheel instead of a clone, and a project that `init` has made.

The image's files, commands, probes and variables are those that the Dockerfile, the compose file and the manifests say;
only folders, host names and the database are others. There is no Airflow and no Kafka in it.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from zipfile import ZipFile

import pytest
import yaml

from tests.integration.control.server import Server
from tests.support.live_stack import reachable

ROOT = Path(__file__).parents[2]
HOST = "127.0.0.2"
"""Of the supervisor: not this machine's usual one, as in a container."""
_START_S = 60.0


@dataclass(frozen=True)
class Image:
    """What the builder makes of a project: a folder instead of `/opt/deltaworks`, and one with the installed wheel."""

    folder: Path
    site: Path
    dockerfile: str

    def contents(self) -> dict[str, float]:
        """All files, and when they were written."""
        return {str(file): file.stat().st_mtime for top in (self.folder, self.site) for file in top.rglob("*")}


@dataclass(frozen=True)
class Container:
    """A service of the compose file, or a pod."""

    image: Image
    command: tuple[str, ...]
    environment: dict[str, str]
    probe: tuple[str, ...] = ()
    grace_s: float = 0.0

    def start(self, command: tuple[str, ...], log: Path) -> subprocess.Popen[bytes]:
        """Runs a command as the container does; its variables are the only ones."""
        program, *arguments = [word for word in command if word not in ("dumb-init", "--")]
        assert program == "python"
        variables = {"PATH": os.environ["PATH"], "HOME": str(self.image.folder.parent), "PYTHONDONTWRITEBYTECODE": "1"}
        with log.open("ab") as file:
            return subprocess.Popen(
                [sys.executable, *arguments],
                cwd=self.image.folder,
                env=variables | {"PYTHONPATH": str(self.image.site)} | self.environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
            )


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    """The image of a new project, with the wheel of this clone."""
    dist, project, site, folder = (tmp_path_factory.mktemp(name) for name in ("dist", "shop", "site", "image"))
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", dist], cwd=ROOT, check=True)
    (wheel,) = dist.glob("*.whl")
    with ZipFile(wheel) as archive:
        archive.extractall(site)
    only_the_wheel = {"PATH": os.environ["PATH"], "HOME": str(dist), "PYTHONPATH": str(site)}
    init = [sys.executable, "-m", "deltaworks.cli", "init", "."]
    subprocess.run(init, cwd=project, env=only_the_wheel, check=True, stdout=subprocess.DEVNULL)
    shutil.copy(wheel, project)
    compose = [*init[:3], "compose", "--force", "--wheel", wheel.name]
    subprocess.run(compose, cwd=project, env=only_the_wheel, check=True, stdout=subprocess.DEVNULL)
    (project / ".env").write_text("POSTGRES_PASSWORD=secret\n")
    _copy(project, folder)
    return Image(folder, site, (project / "Dockerfile").read_text())


def _copy(project: Path, folder: Path) -> None:
    """`COPY . .`: the builder gets what .dockerignore excepts."""
    first, *lines = [line for line in (project / ".dockerignore").read_text().splitlines() if line[:1] != "#"]
    assert first == "*"
    for line in lines:
        source = project / line.removeprefix("!")
        if source.is_dir():
            shutil.copytree(source, folder / source.name)
        elif source.is_file():
            shutil.copy(source, folder)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with tempfile.TemporaryDirectory(prefix="deltaworks-containers-") as folder:
        found = Server(reachable(Path(folder)))
        found.start()
        try:
            yield found
        finally:
            found.stop()


def of_compose(image: Image, url: str, tmp_path: Path) -> tuple[Container, Container]:
    """The services `registry` and `supervisor`."""
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    folders = {"/opt/deltaworks/home": str(tmp_path / "home"), "/opt/deltaworks": str(image.folder)}
    environment: dict[str, str] = {}
    for name, value in services["supervisor"]["environment"].items():
        text = re.sub(r"\$\{\w+:\?[^}]*\}", "secret", value)
        for inside, outside in folders.items():
            text = text.replace(inside, outside)
        environment[name] = text
    assert environment["DELTAWORKS_CONTROL_URL"] == "postgresql+psycopg://deltaworks:secret@postgres:5432/deltaworks"
    assert environment["DELTAWORKS_SUPERVISOR_HOST"] == services["supervisor"]["hostname"]
    environment |= {"DELTAWORKS_CONTROL_URL": url, "DELTAWORKS_SUPERVISOR_HOST": HOST}
    registry, supervisor = services["registry"], services["supervisor"]
    kind, *probe = supervisor["healthcheck"]["test"]
    assert kind == "CMD"
    grace_s = float(supervisor["stop_grace_period"].removesuffix("s"))
    return (
        Container(image, tuple(registry["command"]), environment),
        Container(image, tuple(supervisor["command"]), environment, tuple(probe), grace_s),
    )


def of_kubernetes(image: Image, url: str, tmp_path: Path) -> tuple[Container, Container]:
    """The Job and the StatefulSet, with the settings of the base instead of those of the image."""
    base = ROOT / "infra/kubernetes/base"
    (job,) = yaml.safe_load_all((base / "registry.yaml").read_text())
    stateful_set = list(yaml.safe_load_all((base / "supervisor.yaml").read_text()))[-1]
    generators = yaml.safe_load((base / "kustomization.yaml").read_text())["configMapGenerator"]
    literals = [pair for generator in generators for pair in generator.get("literals", ())]
    environment = dict(pair.split("=", 1) for pair in literals)
    (tmp_path / "registry-url").write_text(f"{url}\n")
    settings = (base / "deltaworks.toml").read_text().replace("/run/secrets/deltaworks", str(tmp_path))
    (image.folder / "deltaworks.toml").write_text(settings)
    for name, value in environment.items():
        text = value.replace("/opt/deltaworks", str(image.folder))
        environment[name] = text.replace("/var/lib/deltaworks", str(tmp_path / "volume"))
    (tmp_path / "volume" / "lost+found").mkdir(parents=True)
    pods = [resource["spec"]["template"]["spec"] for resource in (job, stateful_set)]
    (registry,), (supervisor,) = (pod["containers"] for pod in pods)
    given = {variable["name"]: next(iter(variable["valueFrom"])) for variable in supervisor["env"]}
    assert given == {"DELTAWORKS_SUPERVISOR_HOST": "fieldRef", "DELTAWORKS_CORES": "resourceFieldRef"}
    probe = supervisor["livenessProbe"]["exec"]["command"]
    own = {"DELTAWORKS_SUPERVISOR_HOST": HOST, "DELTAWORKS_CORES": supervisor["resources"]["requests"]["cpu"]}
    return (
        Container(image, tuple(registry["command"]), environment),
        Container(
            image,
            tuple(supervisor["command"]),
            environment | own,
            tuple(probe),
            float(pods[1]["terminationGracePeriodSeconds"]),
        ),
    )


def test_the_locks_are_found_in_the_wheel_before_anything_else_is_installed(image: Image) -> None:
    asked = re.search(r"locks=\"\$\(python -c '([^']+)'\)(/[^\"]+)\"", image.dockerfile)
    locks = re.findall(r'-r "\$locks/([\w.-]+)"', image.dockerfile)
    assert asked is not None and len(locks) == 2

    alone = f"import sys; sys.path[:0] = [{str(image.site)!r}]; {asked[1]}"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", alone], capture_output=True, text=True, check=True)

    folder = Path(done.stdout.strip() + asked[2])
    assert folder == image.site / "deltaworks/_infra"
    assert [name for name in locks if not (folder / name).is_file()] == []


def test_the_image_has_the_project_and_no_secret(image: Image) -> None:
    found = {path.name for path in image.folder.iterdir()}

    assert {"dags", "deltaworks.toml", "jobs"} < found
    assert {name for name in found if not name.endswith(".whl")} == {"dags", "deltaworks.toml", "jobs"}


@pytest.mark.parametrize("kind", [of_compose, of_kubernetes], ids=["compose", "Kubernetes"])
def test_the_supervisor_waits_for_the_registry_answers_and_drains(
    kind: Callable[[Image, str, Path], tuple[Container, Container]], image: Image, server: Server, tmp_path: Path
) -> None:
    image = replace(image, folder=shutil.copytree(image.folder, tmp_path / "image"))
    registry, supervisor = kind(image, server.new_database(), tmp_path)
    log = tmp_path / "log"
    before = image.contents()

    running = supervisor.start(supervisor.command, log)
    try:
        until(lambda: supervisor.start(supervisor.probe, log).wait(30) == 0, running, log)
        until(lambda: "has no tables yet" in log.read_text(), running, log)
        assert registry.start(registry.command, log).wait(60) == 0, log.read_text()
        until(lambda: "the registry is back" in log.read_text(), running, log)
        running.send_signal(signal.SIGTERM)
        assert running.wait(supervisor.grace_s) == 0, log.read_text()
    finally:
        running.kill()
        running.wait()
    assert supervisor.start(supervisor.probe, log).wait(30) == 1, "none answers any more"
    assert f"listens on {HOST}:" in log.read_text()
    assert image.contents() == before, "what a container writes outside of its volumes is lost, or refused"
    homes = [path for path in (tmp_path / "home", tmp_path / "volume" / "home") if path.is_dir()]
    assert [(home / "home.json").is_file() for home in homes] == [True]


def until(happens: Callable[[], bool], running: subprocess.Popen[bytes], log: Path) -> None:
    """Waits, for as long as the process runs."""
    end = time.monotonic() + _START_S
    while not happens():
        assert running.poll() is None and time.monotonic() < end, log.read_text()
        time.sleep(0.1)
