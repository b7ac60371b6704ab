"""Mutations of connectors: what is checked before anything changes, what is shown, who is overwritten."""

from __future__ import annotations

from tests.mutation.mutation import Breach, Mutation, Patch, Stall, nothing

_PLANNING = "tests/unit/connect/test_planning.py::"
_API = "tests/unit/connect/test_api.py::"


def _problems_ignored(patch: Patch) -> None:
    from deltaworks.connect import planning

    patch(planning, "require_none", nothing)


def _any_version(patch: Patch) -> None:
    from deltaworks.connect import validation

    patch(validation, "_of_version", nothing)


def _secrets_shown(patch: Patch) -> None:
    from deltaworks.connect import planning

    patch(planning, "shown", lambda setting, value, secret=False: value)


def _worker_quoted(patch: Patch) -> None:
    from deltaworks.connect import validation

    patch(validation, "MASK", "hunter2")


def _overwritten(patch: Patch) -> None:
    from deltaworks.connect.api import ConnectApi

    configs: dict[str, dict[str, str]] = {}
    original = ConnectApi.configs

    def asked(self: ConnectApi) -> dict[str, dict[str, str]]:
        configs.update(original(self))
        return dict(configs)

    patch(ConnectApi, "configs", asked)
    patch(ConnectApi, "config", lambda self, name: configs.get(name))


def _no_second_request(patch: Patch) -> None:
    from deltaworks.connect import api

    patch(api, "_CONFLICT", -1)


def _no_time_out(patch: Patch) -> None:
    from deltaworks.connect.api import ConnectApi

    original = ConnectApi._sent
    patch(ConnectApi, "_sent", lambda self, method, path, body, answer_s: original(self, method, path, body, 5.0))


MUTATIONS = {
    "connectors applied in spite of problems": Mutation(
        Breach.UNCHECKED,
        _problems_ignored,
        (f"{_PLANNING}test_what_the_worker_says_of_a_setting_is_a_problem",),
    ),
    "plugins of another version accepted": Mutation(
        Breach.UNCHECKED,
        _any_version,
        (
            f"{_PLANNING}test_a_plugin_of_another_version_than_the_lock_is_refused_unless_the_file_says_it",
            f"{_PLANNING}test_a_class_of_which_the_workers_know_no_version_has_none_that_is_wanted",
        ),
    ),
    "secrets of connectors shown": Mutation(
        Breach.SECRET, _secrets_shown, (f"{_PLANNING}test_secrets_are_masked_in_a_plan_whoever_wrote_them",)
    ),
    "what a worker says of secrets shown": Mutation(
        Breach.SECRET, _worker_quoted, (f"{_PLANNING}test_the_worker_is_not_quoted_with_the_secrets_that_it_has_read",)
    ),
    "a connector that somebody has changed overwritten": Mutation(
        Breach.UNCHECKED,
        _overwritten,
        (f"{_PLANNING}test_somebody_who_changes_a_connector_meanwhile_is_not_overwritten",),
    ),
    "workers that rebalance asked once": Mutation(
        Stall.REBALANCE, _no_second_request, (f"{_API}test_it_asks_again_while_the_workers_rebalance",)
    ),
    "a worker that hangs waited for": Mutation(
        Stall.HANGING_CLIENT, _no_time_out, (f"{_API}test_a_worker_that_hangs_is_an_error",)
    ),
}
