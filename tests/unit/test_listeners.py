"""A stack belongs to one project: that of another one is refused by name wherever it would be used, and left alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from deltaworks import exits, listeners
from deltaworks.cli import pipelines, recovery, replay
from deltaworks.control import outcome, preflight
from deltaworks.control.overview import overview
from deltaworks.control.paths import PipelinePaths
from deltaworks.control.registry import Registry
from deltaworks.errors import ControlUnavailableError, DeltaworksError, StackError
from deltaworks.processes import Registered
from deltaworks.settings import Settings
from deltaworks.stack import lifecycle, ports
from deltaworks.stack.airflow_api import AirflowApi
from deltaworks.stack.components import Component
from deltaworks.stack.native import NativeHost
from deltaworks.stack.ports import free_ports
from deltaworks.stack.state import ComponentState
from tests.unit.other_stack import OtherStack, running


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OtherStack]:
    with running(tmp_path_factory.mktemp("other")) as stack:
        yield stack


@pytest.fixture
def settings(tmp_path: Path, other: OtherStack) -> Settings:
    """Of a project whose ports are those of the other one; its own stack is down."""
    (tmp_path / "jobs").mkdir()
    settings = replace(
        Settings.from_environment({}, cwd=tmp_path),
        bootstrap=f"127.0.0.1:{other.port}",
        postgres_port=other.port,
        airflow_port=other.port,
        run_from="source",
    )
    own_broker(settings)
    settings.airflow.mkdir()
    return settings


def own_broker(settings: Settings) -> None:
    (settings.kafka / "data").mkdir(parents=True)
    (settings.kafka / "data" / "meta.properties").write_text("cluster.id=x")


def test_what_listens_is_known_by_its_runner(other: OtherStack) -> None:
    assert listeners.stack_on(other.port) == listeners.Stack(
        component="kafka", project=other.project, home=other.home.resolve()
    )


def test_what_no_runner_has_started_is_nobodys_stack(tmp_path: Path) -> None:
    with running(tmp_path, module="somebody.else") as alone:
        assert listeners.listener(alone.port) is not None
        assert listeners.stack_on(alone.port) is None


def test_a_port_without_a_listener_is_nobodys(settings: Settings) -> None:
    [port] = free_ports(1)

    assert listeners.stack_on(port) is None
    listeners.require_none_of_another(settings, port)


def test_ones_own_stack_is_used(settings: Settings, other: OtherStack) -> None:
    own = replace(settings, home=other.home)

    listeners.require_none_of_another(own, other.port)


def test_ones_own_stack_is_used_through_a_link_to_its_home(
    settings: Settings, other: OtherStack, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(other.home)

    listeners.require_none_of_another(replace(settings, home=tmp_path / "link"), other.port)


def test_the_error_names_port_component_and_project(settings: Settings, other: OtherStack) -> None:
    with pytest.raises(StackError) as raised:
        listeners.require_own_kafka(settings)

    assert f"Port {other.port} is used by kafka of the project {other.project} (home {other.home})" in str(raised.value)
    assert "deltaworks down" in str(raised.value) and "DELTAWORKS_BOOTSTRAP=127.0.0.1:<port>" in str(raised.value)


def test_a_kafka_that_the_settings_name_is_used_whoever_runs_it(settings: Settings, other: OtherStack) -> None:
    listeners.require_own_kafka(replace(settings, bootstrap=f"localhost:{other.port}"))
    listeners.require_own_kafka(replace(settings, bootstrap=f"127.0.0.1:{other.port},127.0.0.2:{other.port}"))
    (settings.kafka / "data" / "meta.properties").unlink()
    listeners.require_own_kafka(settings)  # a home that never had a broker of its own


def test_a_new_home_does_not_use_a_kafka_that_happens_to_be_at_the_default_port(
    tmp_path: Path, other: OtherStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Settings, "bootstrap", f"127.0.0.1:{other.port}")
    new = replace(Settings.from_environment({}, cwd=tmp_path), bootstrap=f"127.0.0.1:{other.port}")

    with pytest.raises(StackError, match="is used by kafka of the project"):
        listeners.require_own_kafka(new)


COMMANDS: dict[str, Callable[[], None]] = {
    "run": lambda: pipelines.run("wordcount"),
    "produce": lambda: pipelines.produce("wordcount"),
    "deploy": lambda: pipelines.deploy("wordcount"),
    "restart": lambda: pipelines.restart("wordcount"),
    "replay": lambda: replay.replay("wordcount"),
    "accept": lambda: recovery.accept("wordcount", lost_records=True),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_that_needs_kafka_refuses_that_of_another_project(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    project = Path(__file__).parents[2]
    for name, value in (settings.environment() | {"DELTAWORKS_PROJECT": str(project)}).items():
        monkeypatch.setenv(name, value)

    with pytest.raises(StackError, match="is used by kafka of the project"):
        COMMANDS[command]()
    assert settings.marker.exists() is (command in ("run", "replay"))  # those that write to the home before


def test_a_driver_leaves_word_that_it_was_refused(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in settings.environment().items():
        monkeypatch.setenv(name, value)

    with pytest.raises(StackError):
        pipelines.run("wordcount", generation=3)

    word = outcome.read(PipelinePaths.of(settings, "wordcount").outcome(3))
    assert word is not None and word.exit_code == exits.UNAVAILABLE
    assert "is used by kafka of the project" in (word.reason or "")


def test_the_preflight_of_a_deployment_refuses_it(settings: Settings) -> None:
    with pytest.raises(StackError, match="is used by kafka of the project"):
        preflight._require_kafka(settings, "orders")


@pytest.mark.parametrize(
    "ask", [lambda registry: registry.pipelines(), lambda registry: registry.deploying("p").__enter__()]
)
def test_no_connection_is_opened_to_the_registry_of_another_project(
    settings: Settings, ask: Callable[[Registry], object]
) -> None:
    with pytest.raises(ControlUnavailableError, match="is used by kafka of the project"):
        ask(Registry.of(settings))


def test_status_shows_no_port_of_a_component_that_is_gone(settings: Settings, other: OtherStack) -> None:
    gone = ComponentState(name="kafka", phase="ready", ports=(other.port,))
    runner = Registered(name="runner", kind="runner", pid=0, started_s=0.0, command=(), log="", started="gone")

    seen = lifecycle._component_status(NativeHost.of(settings), gone, runner)

    assert (seen.state, seen.ports) == ("dead", ())


def test_status_says_so_and_shows_what_this_host_knows(settings: Settings) -> None:
    seen = overview(settings)

    assert seen.registry_problem is not None and "of the project" in seen.registry_problem
    assert seen.pipelines == []


def test_a_registry_that_the_settings_name_is_used_whoever_runs_it(settings: Settings) -> None:
    [nobody] = free_ports(1)
    named = replace(settings, control_url=f"postgresql+psycopg://x@127.0.0.1:{nobody}/x")
    asked: list[object] = []

    def ask(*_: object, **__: object) -> None:
        asked.append(_)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(listeners, "require_none_of_another", ask)
        with pytest.raises(DeltaworksError):
            Registry.of(named).pipelines()
    assert asked == []


def test_the_airflow_of_another_project_gets_no_password(settings: Settings) -> None:
    with pytest.raises(StackError, match="is used by kafka of the project"):
        AirflowApi.of(settings)
    assert list(settings.airflow.iterdir()) == []


def test_up_names_the_project_whose_stack_has_the_port(other: OtherStack) -> None:
    with pytest.raises(StackError, match=f"where X should listen, is used by kafka of the project {other.project}"):
        ports.require_free(other.port, "X", hint="choose another")


def test_what_answers_in_the_place_of_a_component_does_not_make_it_ready(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = NativeHost.of(settings)
    kafka = host.components.by_name["kafka"]
    monkeypatch.setattr(NativeHost, "_answers", lambda *_: True)

    def is_ready(component: Component) -> bool:
        return host.is_ready(component, None)  # type: ignore[arg-type]

    assert not is_ready(kafka)
    (free, again) = free_ports(2)
    host = NativeHost.of(replace(settings, bootstrap=f"127.0.0.1:{free}", controller_port=again))
    assert is_ready(kafka)
