"""What the documentation site needs besides its pages: generated pages, and links to files of the repository.

MkDocs calls the functions named `on_...` (`hooks` in `mkdocs.yml`). The pages of the reference are made when the site
is built, from the sources: settings, commands, and the public names with their docstrings.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import typer
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

import deltaworks
import deltaworks.connect
import deltaworks.queries
import deltaworks.testing
from deltaworks import config
from deltaworks.cli import app as cli
from deltaworks.settings import Settings
from deltaworks.topology.docs import texts_below

ROOT = Path(__file__).parents[1]
_OUTSIDE = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])+)\]\(((?:\.\./)+)([^)#\s]*)(#[^)\s]*)?\)")
_VARIABLE = re.compile(r"\b[A-Z][A-Z_]{3,}\b")

API: Mapping[str, tuple[str, str, tuple[str, ...]]] = {
    "streams": (
        "Streams and tables",
        "What reads topics, and the operators.",
        (
            *("StreamsBuilder", "KStream", "KTable", "GlobalKTable", "BranchedKStream"),
            *("KGroupedStream", "KGroupedTable", "TimeWindowedKStream", "SessionWindowedKStream"),
            *("CogroupedKStream", "TimeWindowedCogroupedKStream", "SessionWindowedCogroupedKStream"),
            *("Materialized", "StreamPartitioner", "TopicNameExtractor", "RecordContext"),
        ),
    ),
    "windows": (
        "Windows and time",
        "How time cuts a stream, and where a record's time comes from.",
        (
            *("TimeWindows", "SlidingWindows", "SessionWindows", "UnlimitedWindows", "JoinWindows", "Windowed"),
            *("Windows", "EmitStrategy", "Suppressed", "BufferConfig"),
            *("TimestampExtractor", "ConsumedRecord", "Timestamps", "FailOnInvalidTimestamp"),
            *("LogAndSkipOnInvalidTimestamp", "UsePartitionTimeOnInvalidTimestamp", "WallclockTimestampExtractor"),
        ),
    ),
    "processors": (
        "Processor API",
        "Operators that you write, and topologies node by node.",
        (
            *("Processor", "FixedKeyProcessor", "ValueTransformer", "ProcessorContext", "FixedKeyProcessorContext"),
            *("Record", "FixedKeyRecord", "RecordMetadata", "PunctuationType", "Punctuator", "Cancellable"),
            *("Topology", "Plan"),
        ),
    ),
    "stores": (
        "State stores",
        "Stores of processors.",
        (
            *("Stores", "StoreBuilder", "KeyValueStore", "TimestampedKeyValueStore", "VersionedKeyValueStore"),
            *("WindowStore", "TimestampedWindowStore", "SessionStore", "ValueAndTimestamp", "VersionedRecord"),
            *("OrderedBytes",),
        ),
    ),
    "types": (
        "Types and serdes",
        "How keys and values become bytes and columns.",
        (
            *("Serde", "String", "Bytes", "Long", "Integer", "Short", "Double", "Float", "Boolean", "Uuid", "Void"),
            *(
                "Json",
                "Avro",
                "Protobuf",
                "JsonSchema",
                "Debezium",
                "DebeziumChanges",
                "DebeziumKey",
                "RowChange",
                "ListOf",
                "DecimalText",
                "DecimalDigits",
                "ConnectDecimal",
                "Timestamp",
            ),
            *("TimeWindowed", "SessionWindowed"),
        ),
    ),
    "pipelines": (
        "Pipelines and sinks",
        "A topology with a name and settings; sinks of your own; other systems that are asked.",
        (
            *("Pipeline", "Topic", "DeadLetters", "Reprocess", "ChangeLimit"),
            *("HandOver", "Corrections", "Alerts"),
            *("Column", "Doc", "Secret"),
            *("Sink", "SinkTask", "SinkWriter", "SinkBatch", "SinkRecord", "RefusedRecord"),
            *("Http", "Asking", "Breaker"),
        ),
    ),
    "errors": (
        "Errors",
        "What happens to records that fail, and the exceptions.",
        (
            *("ErrorPolicy", "ErrorHandler", "ErrorContext", "ErrorAction", "FailedRecord", "DeadLetterRecord"),
            *("Response", "DeltaworksError", "ConfigurationError", "TopologyError", "TerminalError"),
            *("TransientError", "IncompatibleCheckpointError", "LeaseError", "SerializationError", "SinkError"),
            *("StackError", "StreamsError", "CallOutError"),
        ),
    ),
}
"""Page of the API -> title, first sentence, public names of `deltaworks`; those of `deltaworks.testing` follow."""


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages that are made from the sources."""
    for path, text in pages().items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Turns links to files of the repository into their names; a file that does not exist fails the build."""
    try:
        return without_outside_links(markdown, page.file.src_uri)
    except ValueError as error:
        raise PluginError(str(error)) from error


def without_outside_links(markdown: str, page: str) -> str:
    """The text of a page in which links out of `docs/` are the names of the files that they led to.

    Raises:
        ValueError: there is no such file.
    """
    here = (ROOT / "docs" / page).parent

    def shown(link: re.Match[str]) -> str:
        image, text, up, rest, _ = link.groups()
        target = (here / up / rest).resolve()
        if target.is_relative_to(ROOT / "docs"):
            return link[0]
        if not target.exists():
            raise ValueError(f"{page}: the link to {up}{rest} leads nowhere")
        name = f"`{target.relative_to(ROOT)}`"
        return name if image or text.strip("`") in name else f"{text} ({name})"

    return _OUTSIDE.sub(shown, markdown)


def pages() -> dict[str, str]:
    """The generated pages: path in the site -> Markdown."""
    api = {
        f"reference/api/{page}.md": _api(title, about, "deltaworks", names)
        for page, (title, about, names) in API.items()
    }
    testing = _api("Testing", "The test driver.", "deltaworks.testing", deltaworks.testing.__all__)
    about = "The stores of a running stream ([how to](../../how-to/queries.md))."
    queries = _api("Queries", about, "deltaworks.queries", deltaworks.queries.__all__)
    about = "Connectors of Kafka Connect ([how to](../../how-to/connect.md))."
    connect = _api("Connectors", about, "deltaworks.connect", deltaworks.connect.__all__)
    return {
        "reference/settings.md": settings_page(),
        "reference/cli.md": commands_page(),
        **api,
        "reference/api/testing.md": testing,
        "reference/api/queries.md": queries,
        "reference/api/connect.md": connect,
    }


def _api(title: str, about: str, module: str, names: tuple[str, ...] | list[str]) -> str:
    parts = [f"# {title}\n\n{about} Import them from `{module}`.\n"]
    for name in names:
        found = getattr(sys.modules[module], name)
        home, own = getattr(found, "__module__", module), getattr(found, "__name__", name)
        parts.append(f"::: {home}.{own}\n")
    return "\n".join(parts)


def settings_page() -> str:
    """All settings as a table."""
    meanings = texts_below(Settings)
    rows = []
    for field in fields(Settings):
        text = meanings[field.name]
        variable = ", ".join(f"`{name}`" for name in dict.fromkeys(_VARIABLE.findall(text)))
        default = "" if field.default is MISSING or field.default in (None, ()) else f"`{_plain(field.default)}`"
        key = f"`{field.name}`" if field.name in config.KEYS else ""
        rows.append(f"| {variable or '-'} | {key} | {default} | {text.replace('|', chr(92) + '|')} |")
    return (
        "# Settings\n\nSettings come from environment variables and from "
        "[`deltaworks.toml`](../how-to/configure.md). They are read once, when a command starts; the processes that it "
        "starts get the same ones.\n\n"
        "| variable | key in the file | default | meaning |\n|---|---|---|---|\n" + "\n".join(rows) + "\n"
    )


def _plain(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def commands_page() -> str:
    """All commands with their arguments, options and exit codes."""
    root = typer.main.get_command(cli.app)
    parts = [
        "# Commands\n\nThe command is `deltaworks`; in a clone of the repository, `.venv/bin/deltaworks`.\n",
        f"{exit_codes()}\n",
    ]
    for path, command in _commands(root, ()):
        parts.append(f"## `deltaworks {' '.join(path)}`\n\n{_paragraphs(command.help or '')}\n")
        rows = [_parameter(parameter) for parameter in command.params if not getattr(parameter, "hidden", False)]
        if rows:
            parts.append("| | default | meaning |\n|---|---|---|\n" + "\n".join(rows) + "\n")
    return "\n".join(parts)


def exit_codes() -> str:
    """The sentence on exit codes in the help of the application."""
    text = next(part for part in cli.EPILOG.split("\n\n") if part.startswith("Exit codes"))
    return " ".join(text.split())


def _commands(group: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        if command.hidden:
            continue
        if hasattr(command, "commands"):
            yield from _commands(command, (*path, name))
        else:
            yield (*path, name), command


def _paragraphs(text: str) -> str:
    return "\n\n".join(" ".join(part.split()) for part in text.replace("\b", "").split("\n\n"))


def _parameter(parameter: Any) -> str:
    named = ", ".join(f"`{option}`" for option in (*parameter.opts, *parameter.secondary_opts))
    is_option = parameter.param_type_name == "option"
    has_default = is_option and parameter.default not in (None, False, (), "") and not callable(parameter.default)
    shown = f"`{parameter.default}`" if has_default else ""
    meaning = _paragraphs(getattr(parameter, "help", "") or "")
    return f"| {named if is_option else f'`{parameter.name.upper()}`'} | {shown} | {meaning} |"
