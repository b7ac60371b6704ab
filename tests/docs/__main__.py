"""`python -m tests.docs [PAGE ...]`: runs the code on the pages and writes what it prints into them."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.docs.pages import pages, run

for page in map(Path, sys.argv[1:]) if sys.argv[1:] else pages():
    text, shift = page.read_text(), 0
    for block, printed in run(page):
        shown = block.shows
        if shown is None and printed:
            at = block.stop + shift + len("```\n")
            addition = f"\n```text\n{printed}```\n"
            text, shift = text[:at] + addition + text[at:], shift + len(addition)
        elif shown is not None and shown.code != printed:
            text = text[: shown.start + shift] + printed + text[shown.stop + shift :]
            shift += len(printed) - len(shown.code)
    if text != page.read_text():
        page.write_text(text)
        print(f"{page}: updated")
