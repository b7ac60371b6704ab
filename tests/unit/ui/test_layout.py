"""Where boxes and lines are: none over another, and from left to right."""

from __future__ import annotations

import random
from itertools import combinations

import pytest

from deltaworks.control import jobs
from deltaworks.settings import Settings
from deltaworks.ui.graph import drawn
from deltaworks.ui.layout import Layout, placed

SIZE = (100.0, 40.0)


def overlapping(layout: Layout, sizes: dict[str, tuple[float, float]]) -> list[tuple[str, str]]:
    found = []
    for one, other in combinations(layout.boxes, 2):
        (x, y), (w, h) = layout.boxes[one], sizes[one]
        (x2, y2), (w2, h2) = layout.boxes[other], sizes[other]
        if x < x2 + w2 and x2 < x + w and y < y2 + h2 and y2 < y + h:
            found.append((one, other))
    return found


def test_nothing_needs_no_room() -> None:
    assert placed({}, []) == Layout({}, {}, 0.0, 0.0)


def test_a_chain_is_a_row() -> None:
    layout = placed(dict.fromkeys("abc", SIZE), [("a", "b"), ("b", "c")])

    assert [layout.boxes[name][0] for name in "abc"] == [0.0, 156.0, 312.0]
    assert {layout.boxes[name][1] for name in "abc"} == {0.0}
    assert layout.lines["a", "b"] == ((100.0, 20.0), (156.0, 20.0))


def test_lines_that_could_cross_do_not() -> None:
    layout = placed(dict.fromkeys("abcd", SIZE), [("a", "d"), ("b", "c")])

    assert (layout.boxes["a"][1] < layout.boxes["b"][1]) == (layout.boxes["d"][1] < layout.boxes["c"][1])


def test_a_line_over_a_column_passes_its_boxes() -> None:
    layout = placed(dict.fromkeys("abc", SIZE), [("a", "b"), ("b", "c"), ("a", "c")])

    line = layout.lines["a", "c"]
    top, bottom = layout.boxes["b"][1], layout.boxes["b"][1] + SIZE[1]
    assert len(line) == 4 and all(not top <= y <= bottom for _, y in line[1:3])


def test_a_cycle_is_drawn_back() -> None:
    layout = placed(dict.fromkeys("ab", SIZE), [("a", "b"), ("b", "a"), ("b", "b")])

    assert layout.boxes["a"][0] < layout.boxes["b"][0]
    assert layout.lines["b", "a"] == layout.lines["a", "b"][::-1]


@pytest.mark.parametrize("seed", range(20))
def test_no_box_is_over_another(seed: int) -> None:
    rng = random.Random(seed)
    names = [f"n{number}" for number in range(rng.randint(2, 30))]
    sizes = {name: (rng.choice((96.0, 180.0)), rng.choice((44.0, 84.0))) for name in names}
    edges = [(rng.choice(names), rng.choice(names)) for _ in range(rng.randint(1, 50))]

    layout = placed(sizes, edges)

    assert overlapping(layout, sizes) == []
    assert set(layout.lines) == set(edges)
    assert all(0 <= x <= layout.width - sizes[name][0] + 0.1 for name, (x, _) in layout.boxes.items())
    assert all(0 <= y <= layout.height - sizes[name][1] + 0.1 for name, (_, y) in layout.boxes.items())


@pytest.mark.parametrize("name", ["orders", "enrichment", "inventory"])
def test_a_job_is_drawn_with_all_that_it_reads_and_writes(name: str) -> None:
    plan = jobs.load(Settings.from_environment({}), name).plan()

    graph = drawn(plan)

    titles = {(box.kind, box.title) for box in graph.boxes}
    assert {("topic", topic) for topic in (*plan.source_topics, *plan.sink_topics, *plan.global_topics)} <= titles
    assert {("table", node.table) for stage in plan.stages for node in stage.tables} <= titles
    shown = {store for box in graph.boxes for store in box.stores}
    assert {store.name for store in plan.stores} <= shown
    ends = {end for line in graph.lines for end in (line.source, line.target)}
    assert ends <= {box.id for box in graph.boxes}
    assert {line.topic for line in graph.lines} - {None} <= {*plan.source_topics, *plan.global_topics}
