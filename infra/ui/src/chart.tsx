/** A line over the last hours. */
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import type { Series } from "./api";
import type { Theme } from "./theme";

interface Properties {
  title: string;
  series: Series;
  from: number;
  to: number;
  shown: (value: number) => string;
  limit?: number | null;
  theme: Theme;
}

const HEIGHT = 150;

function color(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

export function Chart({ title, series, from, to, shown, limit, theme }: Properties): JSX.Element {
  const place = useRef<HTMLDivElement>(null);
  const known = series.values.filter((value): value is number => value !== null);
  const last = known.at(-1);
  const most = known.length > 0 ? Math.max(...known) : undefined;

  useEffect(() => {
    const element = place.current;
    if (element === null || most === undefined) return;
    const top = Math.max(most, limit !== null && limit !== undefined && limit < most * 3 ? limit : 0) || 1;
    const axis = {
      stroke: color("--soft"), grid: { stroke: color("--grid"), width: 1 }, ticks: { show: false },
      font: "11px system-ui, sans-serif",
    };
    const plot = new uPlot(
      {
        width: element.clientWidth, height: HEIGHT, legend: { show: false }, padding: [8, 6, 0, 0],
        cursor: { y: false, points: { size: 6 } },
        tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "UTC"),
        scales: { x: { time: true, range: () => [from, to] }, y: { range: () => [0, top * 1.1] } },
        axes: [
          { ...axis, space: 70, size: 24, values: (_, splits) => splits.map((at) => new Date(at * 1000).toISOString().slice(11, 16)) },
          { ...axis, size: 58, space: 34, values: (_, splits) => splits.map(shown) },
        ],
        series: [
          {},
          { stroke: color("--accent"), width: 1.6, fill: color("--accent-fill"), spanGaps: false, points: { show: series.at.length < 3 } },
        ],
        hooks: {
          draw: [(drawn) => {
            if (limit === null || limit === undefined || limit > top * 1.1) return;
            const y = drawn.valToPos(limit, "y", true);
            drawn.ctx.save();
            drawn.ctx.strokeStyle = color("--bad");
            drawn.ctx.setLineDash([6, 5]);
            drawn.ctx.beginPath();
            drawn.ctx.moveTo(drawn.bbox.left, y);
            drawn.ctx.lineTo(drawn.bbox.left + drawn.bbox.width, y);
            drawn.ctx.stroke();
            drawn.ctx.restore();
          }],
        },
      },
      [series.at, series.values],
      element,
    );
    const sized = new ResizeObserver(() => plot.setSize({ width: element.clientWidth, height: HEIGHT }));
    sized.observe(element);
    return () => {
      sized.disconnect();
      plot.destroy();
    };
  }, [series, from, to, theme, limit]);

  const summary = last === undefined || most === undefined ? "nothing is known yet" : `now ${shown(last)}, at most ${shown(most)}`;
  return (
    <figure class="chart">
      <figcaption><span>{title}</span><span class="soft">{summary}</span></figcaption>
      {most === undefined
        ? <div class="blank">No data in the last hours.</div>
        : <div ref={place} role="img" aria-label={`${title}: ${summary}`} />}
    </figure>
  );
}
