"""Where the tables are (`tables`), and how the object store is reached that has them (`[s3]`)."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from deltaworks.errors import ConfigurationError
from deltaworks.object_path import ObjectPath, access_of
from deltaworks.object_store import ObjectStoreAccess
from deltaworks.remote import Remote
from deltaworks.settings import Settings
from tests.support.object_stores import S3_TABLE

S3 = f'tables = "s3://lake/tables"{S3_TABLE}ca_file = "certificates/ca.pem"\n'
OWN = """
[s3]
endpoint = "http://127.0.0.1:19333"
region = "us-east-1"
access_key = "own"
secret_key = { file = "secret" }
path_style = true
"""


def settings(project: Path, text: str, **variables: str) -> Settings:
    (project / "deltaworks.toml").write_text(text)
    return Settings.from_environment(variables, cwd=project)


def remote_of(settings: Settings) -> Remote:
    assert settings.remote is not None
    return settings.remote


def access_in(settings: Settings) -> ObjectStoreAccess:
    path = settings.tables
    assert isinstance(path, ObjectPath)
    found = access_of(path)[0]
    assert isinstance(found, ObjectStoreAccess)
    return found


def test_tables_are_in_the_home_unless_an_address_says_otherwise(tmp_path: Path) -> None:
    alone = settings(tmp_path, "")
    assert (alone.tables, alone.remote) == (tmp_path / ".deltaworks/tables", None)

    found = settings(tmp_path, S3)
    assert found.tables == ObjectPath("s3://lake/tables")
    assert found.local_tables == tmp_path / ".deltaworks/tables"
    assert found.tables.local == tmp_path / ".deltaworks/tables/lake/tables"


def test_all_settings_of_the_store_reach_its_access(tmp_path: Path) -> None:
    assert access_in(settings(tmp_path, S3)) == ObjectStoreAccess(
        endpoint="https://s3.example.com",
        region="eu-1",
        access_key="me",
        secret_key="s3cret",
        path_style=True,
        verify=str(tmp_path / "certificates/ca.pem"),
    )
    assert access_in(settings(tmp_path, 'tables = "s3://lake/a/b"')) == ObjectStoreAccess()


def test_a_secret_is_where_the_file_refers_to(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s3cret\n")
    text = S3.replace('"s3cret"', '{ file = "secret" }').replace('"me"', '{ env = "S3_ID" }')

    found = settings(tmp_path, text, S3_ID="me")

    secret = access_in(found).secret_key
    assert not isinstance(secret, str | None)
    assert secret.read() == "s3cret"
    assert found.environment()["S3_ID"] == "me"


def test_an_environment_has_a_store_of_its_own(tmp_path: Path) -> None:
    text = f'{S3}[environments.dev]\ntables = "s3://dev/tables"\n[environments.dev.s3]\nregion = "eu-2"\n'

    found = settings(tmp_path, text, DELTAWORKS_ENVIRONMENT="dev")

    assert found.tables == ObjectPath("s3://dev/tables")
    assert (access_in(found).region, access_in(found).endpoint) == ("eu-2", "https://s3.example.com")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("s3 = 1", r"s3 in \S*/deltaworks.toml is not a table"),
        ("[s3]\nbucket = 'a'", r"s3.bucket in \S*/deltaworks.toml is no setting.*access_key"),
        ("[s3]\nendpoint = 'localhost:9000'", r"s3.endpoint in .* is 'localhost:9000'; expected http:// or https://"),
        ("[s3]\nendpoint = 9000", "s3.endpoint in .*expected http"),
        ("[s3]\npath_style = 'yes'", "s3.path_style in .* is 'yes'; it is true or false"),
        ("[s3]\npath_style = 1", "s3.path_style in .* is 1; it is true or false"),
        ("[s3]\nregion = { env = 'REGION' }", "s3.region in .* is a reference, but it is no secret"),
        ("[s3]\nca_file = { file = 'ca' }", "s3.ca_file in .* is a reference, but it is no secret"),
        ("[s3]\nsecret_key = { somewhere = 'x' }", "s3.secret_key in .* is no reference"),
        ("[s3]\naccess_key = ['a']", "s3.access_key in .*expected text"),
        ("[pipelines.orders.s3]\nregion = 'a'", r"'pipelines.orders.s3', which is no setting of a pipeline"),
        ("[environments.dev.s3]\nbucket = 'a'\n[environments.dev]\nenvironment = 'x'", "environment"),
    ],
)
def test_a_mistake_in_the_settings_of_the_store(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=f"(?s){message}"):
        settings(tmp_path, text)


@pytest.mark.parametrize(
    "address",
    [
        "s3://lake",
        "s3://lake/",
        "lake/tables",
        "gs://lake/tables",
        "s3:/lake/tables",
        "s3://Lake/tables",
        "s3://la/tables",
        "s3://lake//tables",
        "s3://lake/a b",
        "s3://lake/a/..",
        "s3://lake/a?b",
        "s3://lake/a%20b",
        "file:///lake",
    ],
)
def test_an_address_that_is_none_says_what_is_expected(address: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"(?s)DELTAWORKS_TABLES is .*expected a bucket and.*such as s3://"):
        Settings.from_environment({"DELTAWORKS_TABLES": address}, cwd=tmp_path)
    with pytest.raises(ConfigurationError, match=r"tables in \S*/deltaworks.toml is .*expected a bucket and a folder"):
        settings(tmp_path, f'tables = "{address}"')


@pytest.mark.parametrize("address", ["s3://lake/tables", "s3://lake.example-1/a/b_c/d=1.x/", "s3://abc/x"])
def test_an_address_is_a_bucket_and_a_folder(address: str, tmp_path: Path) -> None:
    assert settings(tmp_path, "", DELTAWORKS_TABLES=address).tables_address == address.rstrip("/")


def test_another_process_gets_the_address_and_the_access(tmp_path: Path) -> None:
    found = settings(tmp_path, S3, DELTAWORKS_TABLES="s3://lake/others")

    variables = found.environment()
    again = Settings.from_environment(variables, cwd=Path("/"))

    assert variables["DELTAWORKS_TABLES"] == "s3://lake/others"
    assert again == found
    assert again.remote == found.remote
    assert "s3cret" not in str(variables)


def test_another_process_keeps_tables_in_the_home_whatever_the_file_says(tmp_path: Path) -> None:
    found = settings(tmp_path, S3, DELTAWORKS_TABLES="home")

    assert (found.remote, found.tables) == (None, tmp_path / ".deltaworks/tables")
    assert Settings.from_environment(found.environment(), cwd=Path("/")) == found


def own_access(project: Path, text: str = OWN) -> Path:
    file = Settings.s3_access_in(project / ".deltaworks")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    (file.parent / "secret").write_text("s3cret")
    return file


def test_the_store_of_the_stack_is_used_unless_another_is_named(tmp_path: Path) -> None:
    file = own_access(tmp_path)

    alone = settings(tmp_path, "", DELTAWORKS_TABLES="s3://lake/tables")
    found = access_in(alone)
    assert (found.endpoint, found.access_key, found.path_style) == ("http://127.0.0.1:19333", "own", True)
    assert found.keys().secret_key == "s3cret"
    assert alone.values.table_origins[("s3", ""), "region"] == f"s3.region in {file}"
    assert access_in(Settings.from_environment(alone.environment(), cwd=Path("/"))) == found

    other = access_in(settings(tmp_path, 'tables = "s3://lake/a"\n[s3]\nendpoint = "https://s3.example.com"'))
    assert other == ObjectStoreAccess(endpoint="https://s3.example.com"), "no secret of ours goes to another store"


@pytest.mark.parametrize("endpoint", ["", 'endpoint = "http://127.0.0.1:19333"\n'])
def test_what_the_project_says_of_the_store_of_the_stack_wins(tmp_path: Path, endpoint: str) -> None:
    own_access(tmp_path)

    found = access_in(settings(tmp_path, f'tables = "s3://lake/a"\n[s3]\n{endpoint}region = "eu-1"'))

    assert (found.endpoint, found.region, found.access_key) == ("http://127.0.0.1:19333", "eu-1", "own")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("s3 = 1", "s3 in .*access.toml is not a table"),
        ("", "is not as the stack has written it"),
        ("[s3]\nregion = 'a'", "is not as the stack has written it"),
        ("[", "cannot be read"),
        ("[s3]\nbucket = 'a'", "s3.bucket in .*access.toml is no setting"),
    ],
)
def test_a_damaged_access_to_the_store_of_the_stack_is_told(tmp_path: Path, text: str, message: str) -> None:
    own_access(tmp_path, text)

    with pytest.raises(ConfigurationError, match=message):
        settings(tmp_path, "")


def test_no_repr_shows_a_secret(tmp_path: Path) -> None:
    found = settings(tmp_path, S3)

    shown = [found, found.values, found.remote, found.tables, access_in(found), found.environment()]

    assert "s3cret" not in "".join(f"{each!r} {each}" for each in shown)


def test_a_place_can_be_sent_to_another_process(tmp_path: Path) -> None:
    remote = remote_of(settings(tmp_path, S3))

    assert pickle.loads(pickle.dumps(remote)) == remote
    assert access_of(pickle.loads(pickle.dumps(remote)).path) == access_of(remote.path)


def test_settings_differ_by_their_place(tmp_path: Path) -> None:
    found = settings(tmp_path, S3)
    assert replace(found, tables_address=None) != found
