/** Small parts that all pages use. */
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Asked, Trouble } from "./api";
import { NONE, tone } from "./format";
import { moved } from "./route";

/** The heading of a view; whoever comes from another one begins to read here. */
export function Heading(
  { focus, hidden, children }: { focus?: boolean; hidden?: boolean; children: ComponentChildren },
): JSX.Element {
  const place = useRef<HTMLHeadingElement>(null);
  useEffect(() => {
    if (focus === true || moved()) place.current?.focus({ preventScroll: true });
  }, []);
  return <h1 ref={place} tabIndex={-1} class={hidden === true ? "hidden" : undefined}>{children}</h1>;
}

export function State({ state }: { state: string }): JSX.Element {
  return <span class={`state ${tone(state)}`}><span class="dot" aria-hidden="true" />{state.toLowerCase()}</span>;
}

export function Section(
  { title, note, children }: { title: string; note?: ComponentChildren; children: ComponentChildren },
): JSX.Element {
  const id = title.toLowerCase().replace(/\W+/g, "-");
  return (
    <section class="card" aria-labelledby={id}>
      <header><h2 id={id}>{title}</h2>{note !== undefined && <div class="note">{note}</div>}</header>
      {children}
    </section>
  );
}

/** Text in which code is between backticks. */
export function Words({ text }: { text: string }): JSX.Element {
  return <>{text.split("`").map((part, index) => index % 2 === 1 ? <code key={index}>{part}</code> : part)}</>;
}

function clock(at: number | null): string {
  return at === null ? NONE : `${new Date(at).toISOString().slice(11, 19)} UTC`;
}

export function Wrong({ trouble, at, again }: { trouble: Trouble; at?: number | null; again?: () => void }): JSX.Element {
  return (
    <div class="wrong" role="alert">
      <div>
        <strong>{trouble.error}</strong>
        {at != null && <div>What is shown is stale, as of {clock(at)}. The page goes on asking.</div>}
        {trouble.hint !== null && <div class="hint">Hint: <Words text={trouble.hint} /></div>}
      </div>
      {again !== undefined && <button type="button" onClick={again}>Try again</button>}
    </div>
  );
}

/** What came before the trouble began looks like it. */
export function Aged<T>({ asked, children }: { asked: Asked<T>; children: ComponentChildren }): JSX.Element {
  return <div class={asked.trouble === null ? undefined : "stale"}>{children}</div>;
}

/** Waits for an answer, says what is wrong, or shows it; of the main answer of a view all that is known of the trouble. */
export function When<T>(
  { asked, main, children }: { asked: Asked<T>; main?: boolean; children: (value: T) => ComponentChildren },
): JSX.Element {
  if (asked.value === null) {
    if (asked.trouble !== null) return <Wrong trouble={asked.trouble} again={asked.again} />;
    return <div class="loading" role="status"><span class="bar" /><span class="bar" /><span class="hidden">Loading…</span></div>;
  }
  return (
    <>
      {asked.trouble !== null && (main === true
        ? <Wrong trouble={asked.trouble} at={asked.at} again={asked.again} />
        : <p class="since">Stale, as of {clock(asked.at)}: {asked.trouble.error}</p>)}
      <Aged asked={asked}>{children(asked.value)}</Aged>
    </>
  );
}

export function Empty({ children }: { children: ComponentChildren }): JSX.Element {
  return <p class="empty">{children}</p>;
}

/** A table that scrolls within itself when the window is narrow. */
export function Table({ caption, children }: { caption: string; children: ComponentChildren }): JSX.Element {
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label={caption}>
      <table><caption class="hidden">{caption}</caption>{children}</table>
    </div>
  );
}

export function Command({ text }: { text: string }): JSX.Element {
  const [copied, setCopied] = useState(false);
  const copy = (): void => {
    void navigator.clipboard?.writeText(text).then(() => {
      setCopied(true);
      window.setTimeout(() => setCopied(false), 1500);
    });
  };
  return (
    <span class="command">
      <code>{text}</code>
      <button type="button" onClick={copy} aria-label={`Copy ${text}`}>{copied ? "copied" : "copy"}</button>
    </span>
  );
}
