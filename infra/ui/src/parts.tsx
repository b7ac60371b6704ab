/** Small parts that all pages use. */
import type { ComponentChildren, JSX } from "preact";
import { useState } from "preact/hooks";
import type { Asked, Trouble } from "./api";
import { tone } from "./format";

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

export function Wrong({ trouble, again }: { trouble: Trouble; again?: () => void }): JSX.Element {
  return (
    <div class="wrong" role="alert">
      <div>
        <strong>{trouble.error}</strong>
        {trouble.hint !== null && <div class="hint">Hint: {trouble.hint}</div>}
      </div>
      {again !== undefined && <button type="button" onClick={again}>Try again</button>}
    </div>
  );
}

/** Waits for an answer, says what is wrong, or shows it. */
export function When<T>(
  { asked, children }: { asked: Asked<T>; children: (value: T) => ComponentChildren },
): JSX.Element {
  if (asked.value === null) {
    if (asked.trouble !== null) return <Wrong trouble={asked.trouble} again={asked.again} />;
    return <div class="loading" role="status"><span class="bar" /><span class="bar" /><span class="hidden">Loading…</span></div>;
  }
  return (
    <>
      {asked.trouble !== null && <Wrong trouble={asked.trouble} again={asked.again} />}
      {children(asked.value)}
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
