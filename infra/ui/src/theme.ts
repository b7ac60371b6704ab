/** Light or dark: as the system says, until somebody chooses. */
import { useEffect, useState } from "preact/hooks";

export type Theme = "light" | "dark";
const KEY = "deltaworks-theme";
const dark = window.matchMedia("(prefers-color-scheme: dark)");

function chosen(): Theme | null {
  const kept = localStorage.getItem(KEY);
  return kept === "light" || kept === "dark" ? kept : null;
}

export function current(): Theme {
  return chosen() ?? (dark.matches ? "dark" : "light");
}

export function apply(): void {
  document.documentElement.dataset["theme"] = current();
}

export function useTheme(): [Theme, () => void] {
  const [theme, setTheme] = useState<Theme>(current());
  useEffect(() => {
    const follow = (): void => {
      apply();
      setTheme(current());
    };
    dark.addEventListener("change", follow);
    return () => dark.removeEventListener("change", follow);
  }, []);
  const toggle = (): void => {
    localStorage.setItem(KEY, theme === "dark" ? "light" : "dark");
    apply();
    setTheme(current());
  };
  return [theme, toggle];
}
