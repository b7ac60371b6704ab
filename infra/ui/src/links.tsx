/** Links to Airflow: in a window of their own, or, within Airflow, in the page around this one. */
import type { ComponentChildren, JSX } from "preact";

export const framed = window.parent !== window;

/** The frame has no right to open windows, but Airflow's router follows the address of its own page. */
function lead(event: MouseEvent, href: string): void {
  if (!framed) return;
  const target = new URL(href, document.baseURI);
  if (target.origin !== location.origin) return;
  event.preventDefault();
  window.parent.history.pushState(null, "", target);
  window.parent.dispatchEvent(new PopStateEvent("popstate"));
}

export function Outward(
  { href, button, title, children }: { href: string; button?: boolean; title?: string; children: ComponentChildren },
): JSX.Element {
  return (
    <a
      href={href} class={button === true ? "button" : undefined} title={title} target="_blank" rel="noreferrer"
      onClick={(event) => lead(event, href)}
    >
      {children}
    </a>
  );
}
