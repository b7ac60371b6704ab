/** Where one is, and how the list looked when one left it. */
import { useEffect, useState } from "preact/hooks";

/** How the list was sorted and filtered, which stream was opened from there, and how far it was scrolled. */
export interface Left { by: number; turned: boolean; wanted: string; opened: string; y: number }

let moves = 0;

/** Counts a change of the view that is none of the address. */
export function move(): void {
  moves += 1;
}

/** Whether one has come here from another view, not by loading the page. */
export function moved(): boolean {
  return moves > 0;
}

/** Keeps it in the entry of the history that one leaves, for the Back key. */
export function leave(left: Left): void {
  history.replaceState(left, "");
}

export function left(): Left | null {
  return history.state as Left | null;
}

/** The name of the stream, null for the list. */
export function useRoute(): string | null {
  const read = (): string | null => /^#\/streams\/([\w-]+)$/.exec(location.hash)?.[1] ?? null;
  const [name, setName] = useState(read());
  useEffect(() => {
    const follow = (): void => {
      move();
      setName(read());
      window.scrollTo(0, 0);
    };
    window.addEventListener("hashchange", follow);
    return () => window.removeEventListener("hashchange", follow);
  }, []);
  return name;
}
