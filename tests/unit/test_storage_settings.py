"""Where everything is that a stream needs to go on (`storage`), and what follows from it for the tables."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from deltaworks.errors import ConfigurationError
from deltaworks.object_path import ObjectPath, access_of
from deltaworks.object_store import ObjectStoreAccess
from deltaworks.settings import Settings
from tests.support.object_stores import S3_TABLE

LAKE = "s3://lake/deltaworks"
FILE = f'storage = "{LAKE}"{S3_TABLE}'


def settings(project: Path, text: str = "", **variables: str) -> Settings:
    (project / "deltaworks.toml").write_text(text)
    return Settings.from_environment(variables, cwd=project)


def places(settings: Settings) -> tuple[str, str]:
    """Where the streams and the tables are."""
    return str(settings.lasting_pipelines), str(settings.tables)


def test_without_an_address_all_is_in_the_home(tmp_path: Path) -> None:
    found = settings(tmp_path)

    assert (found.storage_address, found.storage, found.tables_address, found.remote) == (None, None, None, None)
    assert found.lasting_pipelines == found.pipelines == tmp_path / ".deltaworks/pipelines"
    assert found.lasting_pipeline("orders") == found.pipeline("orders")
    assert found.environment()["DELTAWORKS_STORAGE"] == "home"


@pytest.mark.parametrize(
    ("text", "variables"),
    [("", {"DELTAWORKS_STORAGE": LAKE}), ("", {"DELTAWORKS_STORAGE": f"{LAKE}/"}), (f'storage = "{LAKE}"', {})],
)
def test_an_address_is_that_of_streams_and_of_tables(tmp_path: Path, text: str, variables: dict[str, str]) -> None:
    found = settings(tmp_path, text, **variables)

    assert places(found) == (f"{LAKE}/pipelines", f"{LAKE}/tables")
    assert isinstance(found.lasting_pipeline("orders"), ObjectPath)
    assert str(found.lasting_pipeline("orders")) == f"{LAKE}/pipelines/orders"
    assert found.pipeline("orders") == tmp_path / ".deltaworks/pipelines/orders"
    assert found.local_tables == tmp_path / ".deltaworks/tables"


@pytest.mark.parametrize("tables", ["s3://others/tables", "home"])
@pytest.mark.parametrize("by", ["variable", "file", "variable of a file"])
def test_tables_may_be_elsewhere(tmp_path: Path, tables: str, by: str) -> None:
    text = f'tables = "{tables}"' if by == "file" else ""
    text = f'tables = "s3://one/more"\n{text}' if by == "variable of a file" else text
    variables = {} if by == "file" else {"DELTAWORKS_TABLES": tables}

    found = settings(tmp_path, text, DELTAWORKS_STORAGE=LAKE, **variables)

    at = str(tmp_path / ".deltaworks/tables") if tables == "home" else tables
    assert places(found) == (f"{LAKE}/pipelines", at)


def test_home_turns_it_off(tmp_path: Path) -> None:
    found = settings(tmp_path, FILE, DELTAWORKS_STORAGE="home")

    assert (found.storage, found.remote) == (None, None)
    assert places(found) == (str(found.pipelines), str(found.local_tables))


def test_home_turns_it_off_and_leaves_tables_where_they_are(tmp_path: Path) -> None:
    found = settings(tmp_path, f'tables = "s3://others/tables"\n{FILE}', DELTAWORKS_STORAGE="home")

    assert places(found) == (str(found.pipelines), "s3://others/tables")


def test_an_environment_has_a_storage_of_its_own(tmp_path: Path) -> None:
    found = settings(
        tmp_path, f'{FILE}[environments.dev]\nstorage = "s3://dev/streams"\n', DELTAWORKS_ENVIRONMENT="dev"
    )

    assert places(found) == ("s3://dev/streams/pipelines", "s3://dev/streams/tables")


def test_the_store_is_reached_as_the_file_says(tmp_path: Path) -> None:
    found = settings(tmp_path, FILE)
    assert found.storage is not None and found.remote is not None

    access = access_of(found.storage.path)

    assert access == access_of(found.remote.path)
    assert access[1] == found.local_tables
    assert isinstance(access[0], ObjectStoreAccess)
    assert (access[0].endpoint, access[0].region, access[0].path_style) == ("https://s3.example.com", "eu-1", True)
    assert pickle.loads(pickle.dumps(found.storage)) == found.storage


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"DELTAWORKS_STORAGE": "s3://others/streams"},
        {"DELTAWORKS_STORAGE": "home"},
        {"DELTAWORKS_TABLES": "home"},
        {"DELTAWORKS_TABLES": "s3://others/tables"},
        {"DELTAWORKS_STORAGE": "home", "DELTAWORKS_TABLES": "s3://others/tables"},
        {"DELTAWORKS_STORAGE": "s3://others/streams", "DELTAWORKS_TABLES": "home"},
    ],
)
@pytest.mark.parametrize("tables", ["", 'tables = "s3://lake/tables"'])
def test_another_process_has_the_same_places(tmp_path: Path, tables: str, variables: dict[str, str]) -> None:
    found = settings(tmp_path, f"{tables}\n{FILE}", **variables)

    again = Settings.from_environment(found.environment(), cwd=Path("/"))

    assert again == found
    assert places(again) == places(found)
    assert again.environment() == found.environment()
    assert "s3cret" not in str(found.environment())


@pytest.mark.parametrize(
    "address",
    [
        "s3://lake",
        "s3://lake/",
        "lake/streams",
        "gs://lake/streams",
        "s3:/lake/streams",
        "s3://Lake/streams",
        "s3://la/streams",
        "s3://lake//streams",
        "s3://lake/a b",
        "s3://lake/a/..",
        "s3://lake/a?b",
        "s3://lake/a%20b",
        "file:///lake",
        "Home",
    ],
)
@pytest.mark.parametrize("tables", [{}, {"DELTAWORKS_TABLES": "home"}])
def test_an_address_that_is_none_says_what_is_expected(address: str, tmp_path: Path, tables: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match=r"(?s)DELTAWORKS_STORAGE is .*expected a bucket and.*such as s3://"):
        Settings.from_environment({"DELTAWORKS_STORAGE": address, **tables}, cwd=tmp_path)
    with pytest.raises(ConfigurationError, match=r"storage in \S*/deltaworks.toml is .*expected a bucket and a folder"):
        settings(tmp_path, f'storage = "{address}"', **tables)


def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    found = settings(tmp_path, FILE)

    for name in ("..", "a/b", "", ".hidden"):
        with pytest.raises(ConfigurationError):
            found.lasting_pipeline(name)
