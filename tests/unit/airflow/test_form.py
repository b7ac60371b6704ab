"""What the form of a stream's DAG lets through."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.sdk.exceptions import ParamValidationError

from deltaworks.airflow.form import form
from jobs.orders import pipeline

SHOWN = ["action", "launcher", "trigger_interval_s", "start_offsets"]
INTERNAL = ["attach", "expected_generation", "given_up"]


def test_the_defaults_are_valid() -> None:
    assert {name: field.resolve() for name, field in form(pipeline).items()} == {
        "action": "deploy",
        "launcher": "local",
        "trigger_interval_s": None,
        "start_offsets": None,
        "attach": None,
        "expected_generation": None,
        "given_up": None,
    }


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("action", action) for action in ("deploy", "restart", "stop")),
        ("trigger_interval_s", 0),
        ("trigger_interval_s", 0.5),
        *(("start_offsets", offsets) for offsets in ("earliest", "latest", None)),
        ("attach", 3),
    ],
)
def test_what_makes_sense_is_taken(name: str, value: Any) -> None:
    assert form(pipeline)[name].resolve(value) == value


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("action", "delete"),
        ("launcher", "moon"),
        ("trigger_interval_s", -1),
        ("trigger_interval_s", "soon"),
        ("start_offsets", "middle"),
        ("attach", 0),
        ("expected_generation", "3"),
    ],
)
def test_what_makes_no_sense_is_refused(name: str, value: Any) -> None:
    with pytest.raises(ParamValidationError):
        form(pipeline)[name].resolve(value)


def test_every_field_has_a_title_and_a_description() -> None:
    poor = [name for name, field in form(pipeline).items() if not (field.schema.get("title") and field.description)]

    assert poor == []


def test_what_only_the_reconciler_sets_is_in_a_section_of_its_own() -> None:
    fields = form(pipeline)

    assert [name for name, field in fields.items() if "section" not in field.schema] == SHOWN
    assert [name for name, field in fields.items() if "section" in field.schema] == INTERNAL


def test_the_form_says_which_interval_the_pipeline_has() -> None:
    assert "Empty: the pipeline's own interval, 1" in str(form(pipeline)["trigger_interval_s"].description)
