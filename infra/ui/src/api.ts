/** What the server says, and asking for it again and again while somebody looks. */
import { useEffect, useState } from "preact/hooks";
import { refuse, token } from "./session";

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

/** `airflow`, the path of it here, if its session says who looks. */
export interface Trouble { status: number; error: string; hint: string | null; airflow?: string | null }
/** The newest answer, when it came, and what is wrong since then. */
export interface Asked<T> { value: T | null; trouble: Trouble | null; at: number | null; again: () => void }
/** What an answer has at least; of a list nothing. */
export type Has<T> = T extends unknown[] ? "a list" : readonly (keyof T & string)[];

const PATIENCE_MS = 90_000; // more than the server has with code of the project
const LONGEST_S = 60;
const IN_BETWEEN = "a proxy may stand in between, with a page of its own: load this page again, or ask whoever runs it";

async function get<T>(path: string, has: Has<T>, signal: AbortSignal): Promise<T> {
  const used = token();
  const headers: Record<string, string> = used === null ? {} : { Authorization: `Bearer ${used}` };
  let response: Response;
  try {
    response = await fetch(new URL(`api/${path}`, document.baseURI), { headers, signal, redirect: "manual" });
  } catch {
    throw { status: 0, error: "The server of this page does not answer.", hint: "`deltaworks ui` starts it" } satisfies Trouble;
  }
  const status = response.status;
  if (response.type === "opaqueredirect") {
    throw { status, error: "The answer leads to another page.", hint: IN_BETWEEN } satisfies Trouble;
  }
  let text: string;
  try {
    text = await response.text();
  } catch {
    throw { status, error: "The answer of the server was cut off.", hint: null } satisfies Trouble;
  }
  const body = parsed(text);
  if (!response.ok) {
    const trouble = refused(status, body);
    if (trouble.status === 401) refuse(used, trouble);
    throw trouble;
  }
  if (body === undefined) {
    const html = text.trimStart().startsWith("<");
    throw {
      status, error: html ? "The answer is a page, and no data." : "The answer of the server cannot be read.",
      hint: html ? IN_BETWEEN : "it is cut off, or not of this server",
    } satisfies Trouble;
  }
  if (!(has === "a list" ? Array.isArray(body) : fields(body, has))) {
    throw {
      status, error: "The answer of the server has another form than this page knows.",
      hint: "the server is newer or older than this page: load the page again",
    } satisfies Trouble;
  }
  return body as T;
}

/** undefined: it is no JSON. */
function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function fields(body: unknown, has: readonly string[]): body is Record<string, unknown> {
  return typeof body === "object" && body !== null && has.every((name) => name in body);
}

function refused(status: number, body: unknown): Trouble {
  if (!fields(body, ["error"]) || typeof body["error"] !== "string") {
    // a proxy that wants a login knows nothing of our token: only our server refuses it
    return { status: status === 401 ? 0 : status, error: `The answer is ${status}, without a reason.`, hint: IN_BETWEEN };
  }
  const text = (value: unknown): string | null => typeof value === "string" ? value : null;
  return { status, error: body["error"], hint: text(body["hint"]), airflow: text(body["airflow"]) };
}

/** The next question: after failures ever later, and not all of them at the same time. */
function pause(everySeconds: number, failures: number): number {
  const seconds = Math.min(Math.max(everySeconds, LONGEST_S), everySeconds * 2 ** failures);
  return seconds * (failures === 0 ? 1 : 0.85 + 0.3 * Math.random()) * 1000;
}

/** Asks at once and then every so many seconds, but not while nobody sees the page, nor of a server that knows nobody. */
export function useAsked<T>(path: string, everySeconds: number, has: Has<T>): Asked<T> {
  const [state, setState] = useState<{ path: string; value: T | null; trouble: Trouble | null; at: number | null }>({
    path, value: null, trouble: null, at: null,
  });
  const [round, setRound] = useState(0);
  useEffect(() => {
    let ended = false;
    let failures = 0;
    let timer: number | undefined;
    let controller: AbortController | undefined;
    const ask = async (): Promise<void> => {
      controller = new AbortController();
      const patience = window.setTimeout(() => controller?.abort(), PATIENCE_MS);
      try {
        const value = await get<T>(path, has, controller.signal);
        if (ended) return;
        failures = 0;
        setState({ path, value, trouble: null, at: Date.now() });
      } catch (trouble) {
        if (ended) return;
        const said = trouble as Trouble;
        failures += 1;
        setState((before) =>
          before.path === path ? { ...before, trouble: said } : { path, value: null, trouble: said, at: null });
        if (said.status === 401) return;
      } finally {
        window.clearTimeout(patience);
        controller = undefined;
      }
      timer = window.setTimeout(next, pause(everySeconds, failures));
    };
    const next = (): void => {
      window.clearTimeout(timer);
      if (!document.hidden) void ask();
      else timer = window.setTimeout(next, 1000);
    };
    const online = (): void => {
      if (controller === undefined) next();
    };
    void ask();
    window.addEventListener("online", online);
    return () => {
      ended = true;
      controller?.abort();
      window.clearTimeout(timer);
      window.removeEventListener("online", online);
    };
  }, [path, everySeconds, round]);
  const again = (): void => setRound((number) => number + 1);
  return state.path === path ? { ...state, again } : { value: null, trouble: null, at: null, again };
}
