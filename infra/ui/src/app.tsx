/** The frame around all pages: where one is, light and dark, and a token if one is needed. */
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { Me } from "./api";
import { useAsked, useToken } from "./api";
import { framed } from "./links";
import { List } from "./list";
import { StreamPage } from "./stream";
import { useTheme } from "./theme";

function useRoute(): string | null {
  const read = (): string | null => /^#\/streams\/([\w-]+)$/.exec(location.hash)?.[1] ?? null;
  const [name, setName] = useState(read());
  useEffect(() => {
    const follow = (): void => {
      setName(read());
      window.scrollTo(0, 0);
    };
    window.addEventListener("hashchange", follow);
    return () => window.removeEventListener("hashchange", follow);
  }, []);
  return name;
}

function Token({ error }: { error: string }): JSX.Element {
  const [token, setToken] = useState("");
  const enter = (event: Event): void => {
    event.preventDefault();
    useToken(token.trim());
    location.reload();
  };
  return (
    <main id="main">
      <form class="welcome" onSubmit={enter}>
        <h1>Token</h1>
        <p>{error}</p>
        <label>
          Token <input type="password" autoComplete="off" value={token} onInput={(event) => setToken(event.currentTarget.value)} />
        </label>
        <button type="submit" class="button">Look</button>
      </form>
    </main>
  );
}

export function App(): JSX.Element {
  const me = useAsked<Me>("me", 60);
  const name = useRoute();
  const [theme, toggle] = useTheme();
  useEffect(() => {
    document.title = name === null ? "Streams · deltaworks" : `${name} · deltaworks`;
  }, [name]);
  const unknown = me.trouble !== null && me.trouble.status === 401;
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => {
        event.preventDefault();
        const main = document.getElementById("main");
        main?.setAttribute("tabindex", "-1");
        main?.focus();
      }}>Skip to the content</a>
      <header class="top">
        <a href="#/" class="brand"><img src="./assets/icon.svg" alt="" width="22" height="22" />deltaworks</a>
        <span class="grow" />
        {me.value !== null && <span class="soft" title="What this token may see">{me.value.role}</span>}
        {me.value?.airflow != null && !framed && <a href={me.value.airflow || "/"} target="_blank" rel="noreferrer">Airflow</a>}
        {me.value?.docs != null && <a href={me.value.docs} target="_blank" rel="noreferrer">Docs</a>}
        <button type="button" onClick={toggle} aria-label={theme === "dark" ? "Light colours" : "Dark colours"}>
          {theme === "dark" ? "☀" : "☾"}
        </button>
      </header>
      {unknown
        ? <Token error={me.trouble?.error ?? ""} />
        : name === null ? <List me={me.value} /> : <StreamPage key={name} name={name} me={me.value} theme={theme} />}
      <footer>
        {me.value !== null && <>deltaworks {me.value.version} · </>}
        <a href="./assets/licences.txt">licences</a>
      </footer>
    </>
  );
}
