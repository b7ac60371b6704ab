/** Numbers, times and states as people read them. */
const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const ONE = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const SHORT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
export const NONE = "–";

export function count(value: number | null): string {
  if (value === null) return NONE;
  return value < 100_000 ? WHOLE.format(value) : SHORT.format(value);
}

export function rate(value: number | null): string {
  if (value === null) return NONE;
  return value < 100 ? ONE.format(value) : count(value);
}

export function duration(seconds: number | null): string {
  if (seconds === null) return NONE;
  if (seconds < 1) return seconds === 0 ? "0 s" : `${Math.max(1, Math.round(seconds * 1000))} ms`;
  if (seconds < 10) return `${ONE.format(seconds)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7_200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172_800) return `${Math.round(seconds / 3_600)} h`;
  return `${Math.round(seconds / 86_400)} d`;
}

export function bytes(value: number): string {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${value < 10 && unit > 0 ? ONE.format(value) : WHOLE.format(value)} ${units[unit]}`;
}

export function time(text: string | null): string {
  return text === null ? NONE : text.slice(0, 19).replace("T", " ");
}

export type Tone = "good" | "busy" | "bad" | "warn" | "off";
const TONES: Record<string, Tone> = {
  running: "good", launching: "busy", draining: "busy", stopped: "off", superseded: "off", unknown: "warn",
  failed: "bad", dead: "bad", stalled: "bad",
  RUNNING: "good", PAUSED: "off", STOPPED: "off", FAILED: "bad", MISSING: "bad", UNASSIGNED: "warn", UNKNOWN: "warn",
};

export function tone(state: string): Tone {
  return TONES[state] ?? "warn";
}

/** What needs somebody comes first. */
export function rank(stream: { state: string; incidents: number; gave_up: boolean }): number {
  if (stream.gave_up || tone(stream.state) === "bad") return 0;
  if (stream.incidents > 0 || tone(stream.state) === "warn") return 1;
  return stream.state === "stopped" || stream.state === "superseded" ? 3 : 2;
}
