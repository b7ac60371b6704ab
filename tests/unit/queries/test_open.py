"""Streams whose stores are not on this machine are refused before anything is opened."""

from __future__ import annotations

from pathlib import Path

import pytest

from deltaworks import queries
from deltaworks.errors import ConfigurationError
from deltaworks.settings import Settings

JOB = """
from deltaworks import Pipeline, StreamsBuilder

def counting(builder: StreamsBuilder) -> None:
    builder.stream("in", key=str, value=str).group_by_key().count(store="counts")

pipeline = Pipeline(name="counting", topology=counting)
"""
SPARK = '[spark]\n"spark.master" = "spark://10.0.0.1:7077"\n"spark.authenticate" = false\n'
S3 = '[s3]\nregion = "eu-1"\naccess_key = "a"\nsecret_key = "b"\n'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "has never run in this home"),
        (f'storage = "s3://streams/prod"\n{S3}', "has never run in this home"),
        (f'storage = "s3://streams/prod"\n{S3}{SPARK}', "where nobody serves them"),
        (f'storage = "s3://streams/prod"\nserve_stores = "executors"\n{S3}{SPARK}', "has never run in this home"),
    ],
)
def test_stores_that_nobody_serves_are_refused(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "counting.py").write_text(JOB)
    (tmp_path / "deltaworks.toml").write_text(text)
    settings = Settings.from_environment({"DELTAWORKS_HOME": str(tmp_path / "home")}, cwd=tmp_path)

    with pytest.raises(ConfigurationError, match=says):
        queries.open("counting", settings)
    assert not (tmp_path / "home").exists()
