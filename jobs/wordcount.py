"""How often each word was written: the "hello, world" of streams, and the job to read first.
Sample data: `sample_data/wordcount.py`. Expected results: `recomputed/wordcount.sql`.

```
wordcount-lines -> words -> exchange to the task that owns the word |-> wordcount_counts, wordcount-counts   (ever)
                                                               '-> wordcount_hours                      (per hour)
```
"""

from __future__ import annotations

import unicodedata
from datetime import timedelta

from deltaworks import Column, DeadLetters, Pipeline, StreamsBuilder, TimeWindows

WORD = Column("word", "The word, in lower case.")
COUNT = Column("count", "How often it was written.")


def words(line: str) -> list[str]:
    """Runs of letters, accents and digits of any script, with inner apostrophes; `É` and `é` are one letter.

    >>> words("Don't panic: 42 is «l'ÉTÉ» of नमस्ते!")
    ["don't", 'panic', '42', 'is', "l'été", 'of', 'नमस्ते']
    """
    line = unicodedata.normalize("NFC", line.casefold()).replace("\u2019", "'")
    line = "".join(sign if sign == "'" or unicodedata.category(sign)[0] in "LMN" else " " for sign in line)
    return [word for run in line.split() if (word := run.strip("'"))]


def topology(builder: StreamsBuilder) -> None:
    """Splits each line into words; every word counts for ever and in its hour."""
    by_word = (
        builder.stream("wordcount-lines", key=bytes, value=str, on_null="skip", name="lines")
        .flat_map_values(words, value=str, name="words")
        .group_by(lambda _, word: word, key=str, name="by-word")
    )
    counts = by_word.count(store="wordcount-ever")
    counts.to_delta("wordcount_counts", key=WORD, value=COUNT, doc="How often each word is used")
    counts.to_stream().to("wordcount-counts")

    hours = TimeWindows(size=timedelta(hours=1), grace=timedelta(minutes=10))
    by_word.windowed_by(hours).count(store="wordcount-hourly").to_delta(
        "wordcount_hours", key=WORD, value=COUNT, doc="How often each word is used in an hour"
    )


pipeline = Pipeline(
    name="wordcount",
    topology=topology,
    on_error="continue",  # a line that is not UTF-8 becomes a dead letter
    dead_letters=DeadLetters(topic="wordcount-dead-letters", table="wordcount_dead_letters"),
    max_trigger_interval=timedelta(seconds=5),
    cores=1,
)
