"""The page of the streams within Airflow: each user sees what they may see of the DAGs."""

from __future__ import annotations

import pytest

from deltaworks.airflow import plugin
from deltaworks.airflow.plugin import StreamsPlugin
from tests.unit.airflow import page_requests
from tests.unit.airflow.role_requests import NAME


def test_only_the_api_server_makes_the_page() -> None:
    assert StreamsPlugin.fastapi_apps == StreamsPlugin.external_views == []


def test_a_connector_and_a_stream_of_its_name_have_dags_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    class Manager:
        def get_authorized_dag_ids(self, *, user: object, method: str) -> set[str]:
            return {"orders__connector", "clicks__stream", "clicks__replay", "a__b__stream"}

        def is_authorized_dag(self, **_: object) -> bool:
            return True

    monkeypatch.setattr("airflow.api_fastapi.app.get_auth_manager", Manager)

    found = plugin._client(None)

    assert found.may_see("clicks") and found.may_see("a__b") and found.may_see_connector("orders")
    assert not found.may_see("orders") and not found.may_see_connector("clicks") and found.operates


@pytest.mark.slow
def test_a_user_of_airflow_sees_what_its_permissions_allow() -> None:
    found = page_requests.looked()

    assert found["view"]["href"] == "/base/deltaworks/"
    for nobody in ("nobody", "another key"):
        assert found[nobody]["status"] == [200, 401, 401, 401], "the page itself has no data"
        assert found[nobody]["me"]["airflow"] == "/base" and "log in to Airflow" in found[nobody]["me"]["hint"]
    for role in ("viewer", "admin"):
        assert found[role]["status"] == [200, 200, 200, 403], "a stream without a DAG is nobody's"
        assert [each["name"] for each in found[role]["streams"]] == [NAME]
        assert found[role]["me"]["airflow"] == "/base"
    assert found["viewer"]["me"]["role"] == "viewer" and found["viewer"]["streams"][0]["reason"] is None
    assert found["admin"]["me"]["role"] == "operator" and "4711" in found["admin"]["streams"][0]["reason"]
