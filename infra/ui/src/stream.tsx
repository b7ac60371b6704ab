/** One stream. */
import type { JSX } from "preact";
import type { DeadLetters, Me, Replay, Stream, StreamShown, Table as TableOf, Topology } from "./api";
import { useAsked } from "./api";
import { Chart } from "./chart";
import { bytes, count, duration, NONE, rate, time } from "./format";
import { Drawing } from "./graph";
import { Outward } from "./links";
import { Aged, Command, Empty, Heading, Section, State, Table, When, Words } from "./parts";
import type { Theme } from "./theme";

function Actions({ name, me }: { name: string; me: Me | null }): JSX.Element {
  const actions: [string, string, string][] = [
    ["Deploy", `${name}__stream`, `deltaworks deploy ${name}`],
    ["Restart", `${name}__stream`, `deltaworks restart ${name}`],
    ["Drain and stop", `${name}__stream`, `deltaworks stop ${name}`],
    ["Replay", `${name}__replay`, `deltaworks replay ${name}`],
    ["Send dead letters again", "streams__dead_letters", `deltaworks dead-letters resend ${name}`],
  ];
  if (me === null || me.airflow === null) {
    return <ul class="commands">{actions.map(([title, , text]) => <li key={title}><span>{title}</span><Command text={text} /></li>)}</ul>;
  }
  return (
    <nav class="actions" aria-label="Actions">
      {actions.map(([title, dag]) => (
        <Outward key={title} button href={`${me.airflow}/dags/${dag}`} title={`Trigger the DAG ${dag} in Airflow`}>
          {title}<span aria-hidden="true"> ↗</span>
        </Outward>
      ))}
      <span class="soft">in Airflow, as its user that you are</span>
    </nav>
  );
}

function Standing({ stream }: { stream: Stream }): JSX.Element {
  const said = [
    stream.for_seconds === null ? "" : `for ${duration(stream.for_seconds)}`,
    stream.desired === null ? "" : `should be ${stream.desired}`,
  ];
  return (
    <div class="standing">
      <State state={stream.state} />
      <span class="soft">{said.filter((text) => text !== "").join(", ")}</span>
      {stream.gave_up && <span class="tag bad">nothing restarts it</span>}
    </div>
  );
}

function Head({ shown, me }: { shown: StreamShown; me: Me | null }): JSX.Element {
  const stream = shown.stream;
  const stale = stream.records_per_second === null && stream.beat_seconds !== null;
  const waiting = `${count(stream.lag_records)} records wait`;
  const facts: [string, string, string?][] = [
    ["Records/s", rate(stream.records_per_second)],
    ["Lag", duration(stream.lag_seconds), stale ? `${waiting}, ${duration(stream.beat_seconds)} ago` : waiting],
    ["Tables behind", duration(stream.fresh_seconds), stream.fresh_as_of === null ? "no cut yet" : `as of ${time(stream.fresh_as_of).slice(11)}`],
    ["Last batch", duration(stream.batch_seconds), stream.batch_id === null ? "none yet" : `number ${count(stream.batch_id)}`],
    ["State entries", count(stream.state_entries)],
    ["Dead letters", count(stream.dead_letters), "since its start"],
    ["Restarts", count(stream.restarts), `generation ${stream.generation}`],
  ];
  return (
    <>
      <Actions name={stream.name} me={me} />
      {stream.reason !== null && (
        <div class={stream.state === "running" ? "reason" : "reason bad"}>
          <strong>Why:</strong> <span class="pre">{stream.reason}</span>
          {shown.log_lines !== null && shown.log_lines.length > 0 && (
            <details><summary>Log</summary><pre tabIndex={0}>{shown.log_lines.join("\n")}</pre></details>
          )}
        </div>
      )}
      {stream.reason === null && me?.role === "viewer" && ["failed", "dead", "stalled"].includes(stream.state) && (
        <div class="reason bad">Why it is {stream.state} may quote records: operators see it.</div>
      )}
      {shown.incidents.map((incident) => (
        <div class="reason bad" key={`${incident.kind} ${incident.opened_at}`}>
          <strong>{incident.title}</strong> since {time(incident.opened_at)}
          {incident.what !== null && <>: {incident.what}</>}
          {incident.cause !== null && <div>Likely: {incident.cause}</div>}
          <div class="hint">
            <Words text={incident.advice} />{" "}
            {incident.runbook.startsWith("http") && <a href={incident.runbook} target="_blank" rel="noreferrer">Runbook</a>}
          </div>
        </div>
      ))}
      <dl class="tiles facts">
        {facts.map(([title, value, more]) => (
          <div key={title}><dt>{title}</dt><dd>{value}{more !== undefined && <small>{more}</small>}</dd></div>
        ))}
      </dl>
    </>
  );
}

function Charts({ shown, theme }: { shown: StreamShown; theme: Theme }): JSX.Element {
  const { history } = shown;
  const common = { from: history.from_s, to: history.to_s, theme };
  return (
    <Section title="Last hours" note="times in UTC">
      <div class="charts">
        <Chart {...common} title="Records per second" series={history.records_per_second} shown={rate} />
        <Chart {...common} title="Lag" series={history.lag_seconds} shown={duration} limit={shown.alert_lag_seconds} />
        <Chart {...common} title="Batch time" series={history.batch_seconds} shown={duration} />
        <Chart {...common} title="State entries" series={history.state_entries} shown={count} />
      </div>
    </Section>
  );
}

function Partitions({ lag }: { lag: StreamShown["lag_by_partition"] }): JSX.Element | null {
  const rows = Object.entries(lag).flatMap(([topic, parts]) =>
    Object.entries(parts).map(([partition, records]) => ({ topic, partition, records })));
  if (rows.length === 0) return null;
  const most = Math.max(1, ...rows.map((row) => row.records));
  return (
    <Section title="Waiting records by partition">
      <Table caption="Waiting records by partition">
        <thead><tr><th scope="col">Partition</th><th scope="col" class="right">Records</th><th class="wide" aria-hidden="true" /></tr></thead>
        <tbody>
          {rows.map((row) => (
            <tr key={`${row.topic}-${row.partition}`}>
              <th scope="row">{row.topic}-{row.partition}</th>
              <td class="right">{count(row.records)}</td>
              <td aria-hidden="true"><meter min={0} max={most} value={row.records} /></td>
            </tr>
          ))}
        </tbody>
      </Table>
    </Section>
  );
}

export function StreamPage({ name, me, theme }: { name: string; me: Me | null; theme: Theme }): JSX.Element {
  const path = `streams/${encodeURIComponent(name)}`;
  const stream = useAsked<StreamShown>(path, 5, [
    "stream", "log_lines", "incidents", "deployments", "lag_by_partition", "batch_phases", "history",
  ]);
  const topology = useAsked<Topology>(`${path}/topology`, 10, ["graph", "rates", "stores", "command"]);
  const tables = useAsked<TableOf[]>(`${path}/tables`, 30, "a list");
  const letters = useAsked<DeadLetters>(`${path}/dead-letters`, 30, ["letters"]);
  const replays = useAsked<Replay[]>(`${path}/replays`, 30, "a list");
  const top = (
    <>
      <p class="back"><a href="#/">← All streams</a></p>
      <div class="head">
        <Heading>{name}</Heading>
        {stream.value !== null && <Aged asked={stream}><Standing stream={stream.value.stream} /></Aged>}
      </div>
      <When main asked={stream}>{(shown) => <Head shown={shown} me={me} />}</When>
    </>
  );
  if (stream.trouble !== null && stream.value === null) return <main id="main">{top}</main>;
  return (
    <main id="main">
      {top}
      <Section title="Topology" note="rates of the last minute, as far as they are known">
        <When asked={topology}>{(found) => <Drawing graph={found.graph} rates={found.rates} />}</When>
      </Section>
      {stream.value !== null && <Aged asked={stream}><Charts shown={stream.value} theme={theme} /></Aged>}
      <div class="columns">
        <Section title="Stores" note="as of the last committed batch">
          <When asked={topology}>
            {(found) => found.stores.length === 0 ? <Empty>It keeps no state.</Empty> : (
              <Table caption="Stores">
                <thead><tr><th scope="col">Store</th><th scope="col">Kind</th><th scope="col">Read it</th></tr></thead>
                <tbody>
                  {found.stores.map((store) => (
                    <tr key={store.name}>
                      <th scope="row">{store.name}</th>
                      <td>{store.kind}{store.retention_ms !== null && <span class="soft"> {duration(store.retention_ms / 1000)}</span>}</td>
                      <td><Command text={`${found.command} ${store.name}`} /></td>
                    </tr>
                  ))}
                </tbody>
              </Table>
            )}
          </When>
        </Section>
        <Section title="Tables">
          <When asked={tables}>
            {(found) => found.length === 0 ? <Empty>It has written no Delta table yet.</Empty> : (
              <Table caption="Tables">
                <thead>
                  <tr>
                    <th scope="col">Table</th><th scope="col" class="right">Rows</th><th scope="col" class="right">Size</th>
                    <th scope="col" class="right">Version</th><th scope="col">As of (UTC)</th>
                  </tr>
                </thead>
                <tbody>
                  {found.map((table) => (
                    <tr key={table.name}>
                      <th scope="row">{table.name}{table.grain !== null && <div class="why">{table.grain}</div>}</th>
                      <td class="right">{count(table.rows)}</td>
                      <td class="right">{bytes(table.size_bytes)}</td>
                      <td class="right">{table.version}</td>
                      <td>{time(table.fresh_as_of)}</td>
                    </tr>
                  ))}
                </tbody>
              </Table>
            )}
          </When>
        </Section>
      </div>
      <Section title="Newest dead letters" note={me?.role === "operator" ? undefined : "what they say is for operators"}>
        <When asked={letters}>
          {(found) => found.letters.length === 0
            ? <Empty>{found.table === null ? "It keeps no table of dead letters." : "No record has failed."}</Empty>
            : (
              <Table caption="Newest dead letters">
                <thead><tr>{["Record", "Its time (UTC)", "Operator", "Error"].map((title) => <th key={title} scope="col">{title}</th>)}</tr></thead>
                <tbody>
                  {found.letters.map((letter) => (
                    <tr key={`${letter.record} ${letter.operator}`}>
                      <th scope="row"><code>{letter.record}</code></th>
                      <td>{time(letter.at)}</td>
                      <td>{letter.operator}</td>
                      <td>{letter.error_class}{letter.message !== null && <div class="why">{letter.message}</div>}</td>
                    </tr>
                  ))}
                </tbody>
              </Table>
            )}
        </When>
      </Section>
      <div class="columns">
        <Section title="Replays">
          <When asked={replays}>
            {(found) => found.length === 0 ? <Empty>Nothing was processed again.</Empty> : (
              <Table caption="Replays">
                <thead><tr>{["Run", "State", "Begun (UTC)", "Tables"].map((title) => <th key={title} scope="col">{title}</th>)}</tr></thead>
                <tbody>
                  {found.map((replay) => (
                    <tr key={replay.run_id}>
                      <th scope="row">{replay.run_id}{replay.reason !== null && <div class="why">{replay.reason}</div>}</th>
                      <td>{replay.state}{replay.error !== null && <div class="why">{replay.error}</div>}</td>
                      <td>{time(replay.begun)}</td>
                      <td>{replay.tables.join(", ")}</td>
                    </tr>
                  ))}
                </tbody>
              </Table>
            )}
          </When>
        </Section>
        <Section title="Deployments">
          <When asked={stream}>
            {(shown) => shown.deployments.length === 0 ? <Empty>Nobody has deployed it, or the registry does not answer.</Empty> : (
              <Table caption="Deployments">
                <thead><tr>{["Generation", "State", "Requested (UTC)", "By", "Why it ended"].map((title) => <th key={title} scope="col">{title}</th>)}</tr></thead>
                <tbody>
                  {shown.deployments.map((each) => (
                    <tr key={each.generation}>
                      <th scope="row">{each.generation}</th>
                      <td><State state={each.state} /></td>
                      <td>{time(each.requested_at)}</td>
                      <td>{each.requested_by ?? NONE}</td>
                      <td class="said">{each.reason?.split("\n")[0] ?? (each.exit_code === null ? NONE : `exit code ${each.exit_code}`)}</td>
                    </tr>
                  ))}
                </tbody>
              </Table>
            )}
          </When>
        </Section>
      </div>
      {stream.value !== null && <Aged asked={stream}><Partitions lag={stream.value.lag_by_partition} /></Aged>}
    </main>
  );
}
