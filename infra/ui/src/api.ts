/** What the server says, and asking for it again and again while somebody looks. */
import { useEffect, useState } from "preact/hooks";

export interface Me { role: "viewer" | "operator"; airflow: string | null; docs: string | null; version: string }
export interface Stream {
  name: string; desired: string | null; state: string; generation: number; for_seconds: number | null;
  batch_id: number | null; batch_seconds: number | null; lag_records: number | null; lag_seconds: number | null;
  records_per_second: number | null; state_entries: number | null; dead_letters: number | null; restarts: number;
  incidents: number; gave_up: boolean; fresh_as_of: string | null; fresh_seconds: number | null;
  beat_seconds: number | null; reason: string | null;
}
export interface Streams { streams: Stream[]; registry_problem: string | null }
export interface Series { at: number[]; values: (number | null)[] }
export interface History {
  from_s: number; to_s: number;
  records_per_second: Series; lag_seconds: Series; batch_seconds: Series; state_entries: Series;
}
export interface Incident {
  kind: string; title: string; advice: string; runbook: string; opened_at: string; what: string | null;
  cause: string | null;
}
export interface Deployment {
  generation: number; state: string; requested_at: string; ended_at: string | null; exit_code: number | null;
  requested_by: string | null; reason: string | null;
}
export interface StreamShown {
  stream: Stream; log_lines: string[] | null; incidents: Incident[]; deployments: Deployment[];
  lag_by_partition: Record<string, Record<string, number>>; batch_phases: Record<string, number>;
  alert_lag_seconds: number | null; history: History; registry_problem: string | null;
}
export interface Box {
  id: string; kind: string; title: string; subtitle: string; stage: number | null; stores: string[];
  x: number; y: number; width: number; height: number;
}
export interface Line { source: string; target: string; topic: string | null; points: [number, number][] }
export interface Graph { boxes: Box[]; lines: Line[]; width: number; height: number }
export interface Store { name: string; kind: string; stage: number; retention_ms: number | null }
export interface Topology { graph: Graph; rates: Record<string, number>; stores: Store[]; command: string }
export interface Table {
  name: string; kind: string | null; grain: string | null; rows: number; files: number; size_bytes: number;
  version: number; fresh_as_of: string | null;
}
export interface DeadLetter { record: string; at: string; operator: string; error_class: string; message: string | null }
export interface DeadLetters { table: string | null; letters: DeadLetter[] }
export interface Replay {
  run_id: string; state: string; begun: string; tables: string[]; differences: number | null; reason: string | null;
  error: string | null;
}
export interface Connector {
  name: string; desired: string | null; state: string; tasks: number; running_tasks: number; failed_tasks: number;
  restarts: number; dead_letters: number | null; reason: string | null;
}
export interface Connectors { connectors: Connector[]; problem: string | null }

export interface Trouble { status: number; error: string; hint: string | null }
/** The newest answer, and what is wrong since then. */
export interface Asked<T> { value: T | null; trouble: Trouble | null; at: number | null; again: () => void }

const TOKEN = "deltaworks-token";

/** Takes the token out of the address, so that it is neither seen nor kept in the history of the browser. */
export function takeToken(): void {
  const given = /^#token=([\w-]+)$/.exec(location.hash);
  if (given?.[1] === undefined) return;
  useToken(given[1]);
  history.replaceState(null, "", "#/");
}

export function useToken(token: string): void {
  sessionStorage.setItem(TOKEN, token);
}

async function get<T>(path: string, signal: AbortSignal): Promise<T> {
  const token = sessionStorage.getItem(TOKEN);
  const headers: Record<string, string> = token === null ? {} : { Authorization: `Bearer ${token}` };
  let response: Response;
  try {
    response = await fetch(new URL(`api/${path}`, document.baseURI), { headers, signal });
  } catch (error) {
    if (signal.aborted) throw error;
    throw { status: 0, error: "The server of this page does not answer.", hint: "deltaworks ui" } satisfies Trouble;
  }
  if (response.ok) return (await response.json()) as T;
  const said = (await response.json().catch(() => ({}))) as Partial<Trouble>;
  throw {
    status: response.status,
    error: said.error ?? `The server answers ${response.status}.`,
    hint: said.hint ?? null,
  } satisfies Trouble;
}

/** Asks at once and then every so many seconds, but not while nobody sees the page. */
export function useAsked<T>(path: string, everySeconds: number): Asked<T> {
  const [state, setState] = useState<{ path: string; value: T | null; trouble: Trouble | null; at: number | null }>({
    path, value: null, trouble: null, at: null,
  });
  const [round, setRound] = useState(0);
  useEffect(() => {
    const controller = new AbortController();
    let timer: number | undefined;
    const ask = async (): Promise<void> => {
      try {
        const value = await get<T>(path, controller.signal);
        setState({ path, value, trouble: null, at: Date.now() });
      } catch (trouble) {
        if (controller.signal.aborted) return;
        const said = trouble as Trouble;
        setState((before) =>
          before.path === path ? { ...before, trouble: said } : { path, value: null, trouble: said, at: null });
      }
      if (!controller.signal.aborted) timer = window.setTimeout(next, everySeconds * 1000);
    };
    const next = (): void => {
      if (!document.hidden) void ask();
      else timer = window.setTimeout(next, 1000);
    };
    void ask();
    return () => {
      controller.abort();
      window.clearTimeout(timer);
    };
  }, [path, everySeconds, round]);
  const again = (): void => setRound((number) => number + 1);
  return state.path === path ? { ...state, again } : { value: null, trouble: null, at: null, again };
}
