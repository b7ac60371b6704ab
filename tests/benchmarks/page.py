"""How long the page of the streams takes with forty of them, in a real browser, and how large its files are.

`python -m tests.benchmarks.page`

The server is real, and so are the files of the streams; nobody runs them. First paint is when the browser shows
something, `all rows` when the forty streams are there. It prints the median and the most of several tries, each in a
window without a cache.
"""

from __future__ import annotations

import gzip
import statistics
import tempfile
from pathlib import Path

from tests.support.browser import chromium
from tests.support.page import served

TRIES = 7
_PAINT = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
_ROWS = """() => new Promise((done) => {
  const look = () => document.querySelectorAll('tbody tr').length >= 40
    ? requestAnimationFrame(() => done(performance.now())) : requestAnimationFrame(look);
  look();
})"""


def main() -> None:
    """Measures and prints."""
    from deltaworks.ui.app import STATIC

    for file in sorted((STATIC / "assets").iterdir()):
        content = file.read_bytes()
        print(f"{file.name}: {len(content) / 1000:.1f} kB, compressed {len(gzip.compress(content)) / 1000:.1f} kB")
    paints, rows = [], []
    with tempfile.TemporaryDirectory() as folder, served(Path(folder), "forty") as (url, _), chromium() as browser:
        for _ in range(TRIES):
            context = browser.new_context(viewport={"width": 1440, "height": 900})
            page = context.new_page()
            page.goto(url, wait_until="commit")
            rows.append(page.evaluate(_ROWS))
            paints.append(page.evaluate(_PAINT))
            context.close()
    for name, found in (("first paint", paints), ("all rows", rows)):
        print(f"{name}: median {statistics.median(found):.0f} ms, at most {max(found):.0f} ms")


if __name__ == "__main__":
    main()
