/** Who looks: the token of this tab, or what to do if the server knows nobody by it. */
import { useEffect, useState } from "preact/hooks";
import type { Trouble } from "./api";

/** Why nobody looks. */
export interface Refusal { error: string; hint: string | null; airflow: string | null; withToken: boolean }
/** A new number with each token and each new try: whatever was shown is asked for anew. */
export interface Session { number: number; refusal: Refusal | null }

const TOKEN = "deltaworks-token";
const ADDRESS = "#token=";
const NO_TOKEN: Refusal = {
  error: "That is no token.", hint: "letters, digits, - and _, as in the address that `deltaworks ui` has printed",
  airflow: null, withToken: true,
};
let session: Session = { number: 0, refusal: null };
const followers = new Set<(changed: Session) => void>();

function change(refusal: Refusal | null): void {
  session = { number: session.number + 1, refusal };
  for (const follow of followers) follow(session);
}

export function token(): string | null {
  return sessionStorage.getItem(TOKEN);
}

/** Takes a token, or the address that has one. */
export function offer(text: string): void {
  const found = /^(?:.*#token=)?([\w-]+)$/.exec(text.trim())?.[1];
  if (found !== undefined) sessionStorage.setItem(TOKEN, found);
  change(found === undefined ? NO_TOKEN : null);
}

/** Asks again with what there is. */
export function tryAgain(): void {
  change(null);
}

/** Forgets a token that the server does not know, unless there is a newer one. */
export function refuse(used: string | null, trouble: Trouble): void {
  if (used !== token() || session.refusal !== null) return;
  sessionStorage.removeItem(TOKEN);
  change({ error: trouble.error, hint: trouble.hint, airflow: trouble.airflow ?? null, withToken: used !== null });
}

/** Takes a token out of the address, now and later, so that it is neither seen nor kept in the history of the browser. */
export function followAddress(): void {
  const take = (): void => {
    if (!location.hash.startsWith(ADDRESS)) return;
    const given = location.hash;
    history.replaceState(null, "", "#/");
    offer(given);
  };
  take();
  window.addEventListener("hashchange", take);
}

export function useSession(): Session {
  const [known, setKnown] = useState(session);
  useEffect(() => {
    setKnown(session);
    followers.add(setKnown);
    return () => {
      followers.delete(setKnown);
    };
  }, []);
  return known;
}
