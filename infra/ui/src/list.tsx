/** All streams, those that need somebody first; connectors beside them. */
import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Asked, Connectors, Me, Stream, Streams } from "./api";
import { useAsked } from "./api";
import { count, duration, rank, rate, time } from "./format";
import { Outward } from "./links";
import { Command, Empty, Heading, Section, State, Table, When, Wrong } from "./parts";
import type { Left } from "./route";
import { leave, left, moved } from "./route";

type Column = { title: string; right?: boolean; by: (stream: Stream) => number | string; down?: boolean };
const COLUMNS: Column[] = [
  { title: "State", by: rank },
  { title: "Stream", by: (stream) => stream.name },
  { title: "Records/s", right: true, by: (stream) => stream.records_per_second ?? -1, down: true },
  { title: "Lag", right: true, by: (stream) => stream.lag_seconds ?? -1, down: true },
  { title: "Waiting", right: true, by: (stream) => stream.lag_records ?? -1, down: true },
  { title: "Tables behind", right: true, by: (stream) => stream.fresh_seconds ?? -1, down: true },
  { title: "Batch", right: true, by: (stream) => stream.batch_seconds ?? -1, down: true },
  { title: "State entries", right: true, by: (stream) => stream.state_entries ?? -1, down: true },
  { title: "Restarts", right: true, by: (stream) => stream.restarts, down: true },
  { title: "Incidents", right: true, by: (stream) => stream.incidents, down: true },
  { title: "For", right: true, by: (stream) => stream.for_seconds ?? -1 },
];

function sorted(streams: Stream[], column: Column, turned: boolean): Stream[] {
  const sign = (column.down === true) !== turned ? -1 : 1;
  return [...streams].sort((one, other) => {
    const [a, b] = [column.by(one), column.by(other)];
    if (a === b) return one.name < other.name ? -1 : 1;
    return a < b ? -sign : sign;
  });
}

/** To the stream that was opened from here, unless somebody has gone on already. */
function comeBack({ opened, y }: Left): void {
  window.scrollTo(0, y);
  const now = document.activeElement;
  if (now !== document.body && !(now instanceof HTMLHeadingElement)) return;
  document.querySelector<HTMLElement>(`a[href="#/streams/${CSS.escape(opened)}"]`)?.focus({ preventScroll: true });
}

function Row({ stream, open }: { stream: Stream; open: (stream: Stream) => void }): JSX.Element {
  return (
    <tr class={rank(stream) === 0 ? "failing" : undefined}>
      <td><State state={stream.state} />{stream.gave_up && <span class="tag bad">given up</span>}</td>
      <th scope="row">
        <a href={`#/streams/${stream.name}`} onClick={() => open(stream)}>{stream.name}</a>
        {stream.reason !== null && <div class="why">{stream.reason.split("\n")[0]}</div>}
      </th>
      <td class="right">{rate(stream.records_per_second)}</td>
      <td class="right">{duration(stream.lag_seconds)}</td>
      <td class="right">{count(stream.lag_records)}</td>
      <td class="right" title={time(stream.fresh_as_of)}>{duration(stream.fresh_seconds)}</td>
      <td class="right">{duration(stream.batch_seconds)}</td>
      <td class="right">{count(stream.state_entries)}</td>
      <td class="right">{stream.restarts > 0 ? <span class="tag warn">{stream.restarts}</span> : 0}</td>
      <td class="right">{stream.incidents > 0 ? <span class="tag bad">{stream.incidents}</span> : 0}</td>
      <td class="right">{duration(stream.for_seconds)}</td>
    </tr>
  );
}

function Tiles({ streams }: { streams: Stream[] }): JSX.Element {
  const failing = streams.filter((stream) => rank(stream) === 0).length;
  const running = streams.filter((stream) => stream.state === "running").length;
  const incidents = streams.reduce((sum, stream) => sum + stream.incidents, 0);
  const all = streams.reduce((sum, stream) => sum + (stream.records_per_second ?? 0), 0);
  const lag = Math.max(0, ...streams.map((stream) => stream.lag_seconds ?? 0));
  return (
    <dl class="tiles">
      <div><dt>Running</dt><dd>{running}<small> of {streams.length}</small></dd></div>
      <div class={failing > 0 ? "bad" : undefined}><dt>Failing</dt><dd>{failing}</dd></div>
      <div class={incidents > 0 ? "warn" : undefined}><dt>Open incidents</dt><dd>{incidents}</dd></div>
      <div><dt>Records/s</dt><dd>{rate(all)}</dd></div>
      <div><dt>Largest lag</dt><dd>{duration(lag)}</dd></div>
    </dl>
  );
}

function Found({ found, me }: { found: Streams; me: Me | null }): JSX.Element {
  const [before] = useState(left);
  const [by, setBy] = useState(before?.by ?? 0);
  const [turned, setTurned] = useState(before?.turned ?? false);
  const [wanted, setWanted] = useState(before?.wanted ?? "");
  useEffect(() => {
    if (before !== null && moved()) comeBack(before);
  }, []);
  const open = (stream: Stream): void => leave({ by, turned, wanted, opened: stream.name, y: window.scrollY });
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => {
    const focus = (event: KeyboardEvent): void => {
      if (event.key !== "/" || event.target instanceof HTMLInputElement) return;
      event.preventDefault();
      field.current?.focus();
    };
    document.addEventListener("keydown", focus);
    return () => document.removeEventListener("keydown", focus);
  }, []);
  const column = COLUMNS[by] ?? (COLUMNS[0] as Column);
  const matching = found.streams.filter((stream) => `${stream.name} ${stream.state}`.toLowerCase().includes(wanted.trim().toLowerCase()));
  const problem = found.registry_problem !== null && (
    <Wrong trouble={{ status: 503, error: "This is only what this host knows.", hint: found.registry_problem }} />
  );
  if (found.streams.length === 0) {
    return (
      <>
        {problem}
        <div class="welcome">
          <h2>No stream yet</h2>
          <p>Nobody has deployed or run a stream in this home.</p>
          <Command text="deltaworks deploy NAME" />
          {me?.airflow != null && <p>or trigger its DAG in <Outward href={`${me.airflow}/dags`}>Airflow</Outward>.</p>}
        </div>
      </>
    );
  }
  return (
    <>
      {problem}
      <Tiles streams={found.streams} />
      <Section
        title="Streams"
        note={
          <label class="filter">
            <span class="hidden">Show streams with</span>
            <input
              ref={field} type="search" placeholder="Filter by name or state  ( / )" value={wanted}
              onInput={(event) => setWanted(event.currentTarget.value)}
            />
          </label>
        }
      >
        <Table caption="Streams">
          <thead>
            <tr>
              {COLUMNS.map((each, index) => {
                const down = (each.down === true) !== turned;
                return (
                  <th
                    key={each.title} scope="col" class={each.right === true ? "right" : undefined}
                    aria-sort={index !== by ? "none" : down ? "descending" : "ascending"}
                  >
                    <button type="button" onClick={() => { setTurned(index === by && !turned); setBy(index); }}>
                      {each.title}<span class="sort" aria-hidden="true">{index !== by ? "" : down ? "▾" : "▴"}</span>
                    </button>
                  </th>
                );
              })}
            </tr>
          </thead>
          <tbody>{sorted(matching, column, turned).map((stream) => <Row key={stream.name} stream={stream} open={open} />)}</tbody>
        </Table>
        {matching.length === 0 && <Empty>No stream has “{wanted}” in its name or state.</Empty>}
      </Section>
    </>
  );
}

function Beside({ asked }: { asked: Asked<Connectors> }): JSX.Element | null {
  if (asked.value !== null && asked.value.connectors.length === 0 && asked.value.problem === null) return null;
  return (
    <Section title="Connectors" note="of Kafka Connect">
      <When asked={asked}>
        {(found) => (
          <>
            {found.problem !== null && <Wrong trouble={{ status: 503, error: found.problem, hint: null }} />}
            {found.connectors.length > 0 && (
              <Table caption="Connectors">
                <thead>
                  <tr>
                    {["State", "Connector"].map((title) => <th key={title} scope="col">{title}</th>)}
                    {["Tasks", "Running", "Failed", "Dead letters", "Restarts"].map((title) => (
                      <th key={title} scope="col" class="right">{title}</th>
                    ))}
                  </tr>
                </thead>
                <tbody>
                  {found.connectors.map((each) => (
                    <tr key={each.name} class={each.failed_tasks > 0 || each.state === "FAILED" ? "failing" : undefined}>
                      <td><State state={each.state} /></td>
                      <th scope="row">{each.name}{each.reason !== null && <div class="why">{each.reason}</div>}</th>
                      <td class="right">{each.tasks}</td>
                      <td class="right">{each.running_tasks}</td>
                      <td class="right">{each.failed_tasks > 0 ? <span class="tag bad">{each.failed_tasks}</span> : 0}</td>
                      <td class="right">{count(each.dead_letters)}</td>
                      <td class="right">{each.restarts}</td>
                    </tr>
                  ))}
                </tbody>
              </Table>
            )}
          </>
        )}
      </When>
    </Section>
  );
}

export function List({ me }: { me: Me | null }): JSX.Element {
  const streams = useAsked<Streams>("streams", 3, ["streams", "registry_problem"]);
  const connectors = useAsked<Connectors>("connectors", 30, ["connectors", "problem"]);
  return (
    <main id="main">
      <Heading hidden>Streams</Heading>
      <When main asked={streams}>{(found) => <Found found={found} me={me} />}</When>
      {streams.value !== null && <Beside asked={connectors} />}
    </main>
  );
}
