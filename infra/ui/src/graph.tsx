/** The topology: boxes and lines as the server has placed them, with what flows along them. */
import type { JSX } from "preact";
import type { Box, Graph, Line } from "./api";
import { rate } from "./format";

const EDGE = 12;
const ROW = 20;

function path(points: [number, number][]): string {
  const [first, ...rest] = points;
  if (first === undefined) return "";
  let [x, y] = first;
  let text = `M${x},${y}`;
  for (const [nextX, nextY] of rest) {
    const middle = (x + nextX) / 2;
    text += `C${middle},${y} ${middle},${nextY} ${nextX},${nextY}`;
    [x, y] = [nextX, nextY];
  }
  return text;
}

function cut(text: string, width: number): string {
  const most = Math.floor((width - 24) / 7.2);
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}

function Shape({ box }: { box: Box }): JSX.Element {
  const round = box.kind === "topic" || box.kind === "exchange" ? 22 : box.kind === "table" || box.kind === "sink" ? 2 : 8;
  return (
    <g transform={`translate(${box.x},${box.y})`} class={`box ${box.kind}`}>
      <title>{`${box.title} (${box.subtitle})${box.stores.length > 0 ? `, stores: ${box.stores.join(", ")}` : ""}`}</title>
      <rect width={box.width} height={box.height} rx={round} />
      <text x={round > 20 ? 18 : 12} y={19} class="title">{cut(box.title, box.width)}</text>
      <text x={round > 20 ? 18 : 12} y={34} class="subtitle">{cut(box.subtitle, box.width + 20)}</text>
      {box.stores.map((store, index) => (
        <g key={store} transform={`translate(8,${42 + index * ROW})`}>
          <rect width={box.width - 16} height={ROW - 4} rx={4} class="store" />
          <text x={8} y={12} class="store">{cut(store, box.width - 8)}</text>
        </g>
      ))}
    </g>
  );
}

function Edge({ line, rates }: { line: Line; rates: Record<string, number> }): JSX.Element {
  const flow = line.topic === null ? undefined : rates[line.topic];
  const [first, second] = line.points;
  const width = flow === undefined || flow <= 0 ? 1.4 : Math.min(5, 1.6 + Math.log10(1 + flow) * 0.8);
  return (
    <g class={flow !== undefined && flow > 0 ? "line live" : "line"}>
      <path d={path(line.points)} stroke-width={width} marker-end="url(#arrow)" />
      {flow !== undefined && first !== undefined && second !== undefined && (
        <text x={(first[0] + second[0]) / 2} y={(first[1] + second[1]) / 2 - 6} text-anchor="middle">{`${rate(flow)}/s`}</text>
      )}
    </g>
  );
}

export function Drawing({ graph, rates }: { graph: Graph; rates: Record<string, number> }): JSX.Element {
  const width = graph.width + 2 * EDGE;
  const height = graph.height + 2 * EDGE;
  const names = new Map(graph.boxes.map((box) => [box.id, box.title]));
  const stores = graph.boxes.reduce((sum, box) => sum + box.stores.length, 0);
  return (
    <>
      <div class="scroll graph" tabIndex={0} role="region" aria-label="Graph of the topology; scrolls sideways">
        <svg
          role="img" aria-label={`${graph.boxes.length} boxes, ${graph.lines.length} lines, ${stores} uses of stores`}
          viewBox={`${-EDGE} ${-EDGE} ${width} ${height}`} width={width} height={height}
          style={{ minWidth: `${Math.round(width * 0.55)}px` }}
        >
          <defs>
            <marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" markerUnits="userSpaceOnUse" orient="auto">
              <path d="M0,0 8,4 0,8z" />
            </marker>
          </defs>
          {graph.lines.map((line) => <Edge key={`${line.source} ${line.target}`} line={line} rates={rates} />)}
          {graph.boxes.map((box) => <Shape key={box.id} box={box} />)}
        </svg>
      </div>
      <details class="words">
        <summary>The same in words</summary>
        <ul>
          {graph.lines.map((line) => {
            const flow = line.topic === null ? undefined : rates[line.topic];
            return (
              <li key={`${line.source} ${line.target}`}>
                {names.get(line.source)} → {names.get(line.target)}{flow === undefined ? "" : `, ${rate(flow)} records/s`}
              </li>
            );
          })}
        </ul>
      </details>
    </>
  );
}
