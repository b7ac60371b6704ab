"""The jars of an object store come with those that a project has."""

from __future__ import annotations

from pathlib import Path

import pytest

from deltaworks.object_path import ObjectPath
from deltaworks.settings import Settings
from deltaworks.spark import s3a


@pytest.mark.parametrize(
    ("own", "jars"), [({}, "aws.jar"), ({"spark.jars": "mine.jar", "spark.x": "1"}, "mine.jar,aws.jar")]
)
def test_a_session_that_uses_a_store_gets_its_jars_beside_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: dict[str, str], jars: str
) -> None:
    settings = Settings.from_environment({}, cwd=tmp_path)
    monkeypatch.setattr(s3a, "ensure_jars", lambda settings, name: [Path("aws.jar")])

    assert s3a.with_jars(settings, ObjectPath("s3://lake/streams"), own) == own | {"spark.jars": jars}
    assert s3a.with_jars(settings, tmp_path, own) == own
