/** The frame around all pages: where one is, light and dark, and logging in if that is needed. */
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { Me } from "./api";
import { useAsked } from "./api";
import { framed, Outward } from "./links";
import { List } from "./list";
import { Heading, Words } from "./parts";
import { move, useRoute } from "./route";
import type { Refusal } from "./session";
import { offer, tryAgain, useSession } from "./session";
import { StreamPage } from "./stream";
import type { Theme } from "./theme";
import { useTheme } from "./theme";

/** Nobody asks again by itself, but whoever comes back from logging in need not say so. */
function AirflowLogin({ airflow }: { airflow: string }): JSX.Element {
  useEffect(() => {
    const look = (): void => {
      if (!document.hidden) tryAgain();
    };
    document.addEventListener("visibilitychange", look);
    return () => document.removeEventListener("visibilitychange", look);
  }, []);
  const login = `${airflow}/api/v2/auth/login?next=${encodeURIComponent(location.href)}`;
  return (
    <>
      {framed
        ? <Outward button href={`${airflow}/`}>Log in to Airflow again</Outward>
        : <a class="button" href={login}>Log in to Airflow again</a>}
      <button type="button" onClick={tryAgain}>I have logged in</button>
    </>
  );
}

function Token({ withToken }: { withToken: boolean }): JSX.Element {
  const [token, setToken] = useState("");
  const enter = (event: Event): void => {
    event.preventDefault();
    offer(token);
  };
  return (
    <form onSubmit={enter}>
      <label>
        Token <input type="password" autoComplete="off" value={token} onInput={(event) => setToken(event.currentTarget.value)} />
      </label>
      <button type="submit" class="button">Look</button>
      {withToken && <button type="button" onClick={tryAgain}>Go on without it</button>}
    </form>
  );
}

function LogIn({ refusal }: { refusal: Refusal }): JSX.Element {
  useEffect(move, []);
  return (
    <main id="main" class="welcome">
      <Heading focus>{refusal.airflow === null ? "Who are you?" : "Log in again"}</Heading>
      <div role="alert"><p>{refusal.error}</p>{refusal.hint !== null && <p>Hint: <Words text={refusal.hint} /></p>}</div>
      {refusal.airflow === null ? <Token withToken={refusal.withToken} /> : <AirflowLogin airflow={refusal.airflow} />}
    </main>
  );
}

interface Surroundings { theme: Theme; toggle: () => void }

function Frame({ me, theme, toggle, children }: Surroundings & { me: Me | null; children: ComponentChildren }): JSX.Element {
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
        {me !== null && <span class="soft" title="What this token may see">{me.role}</span>}
        {me?.airflow != null && !framed && <a href={me.airflow || "/"} target="_blank" rel="noreferrer">Airflow</a>}
        {me?.docs != null && <a href={me.docs} target="_blank" rel="noreferrer">Docs</a>}
        <button type="button" onClick={toggle} aria-label={theme === "dark" ? "Light colours" : "Dark colours"}>
          {theme === "dark" ? "☀" : "☾"}
        </button>
      </header>
      {children}
      <footer>
        {me !== null && <>deltaworks {me.version} · </>}
        <a href="./assets/licences.txt">licences</a>
      </footer>
    </>
  );
}

function Views({ name, ...around }: Surroundings & { name: string | null }): JSX.Element {
  const me = useAsked<Me>("me", 60, ["role", "airflow", "docs", "version"]).value;
  return (
    <Frame me={me} {...around}>
      {name === null ? <List me={me} /> : <StreamPage key={name} name={name} me={me} theme={around.theme} />}
    </Frame>
  );
}

export function App(): JSX.Element {
  const { number, refusal } = useSession();
  const name = useRoute();
  const [theme, toggle] = useTheme();
  const view = refusal !== null ? "Log in" : name ?? "Streams";
  useEffect(() => {
    document.title = `${view} · deltaworks`;
  }, [view]);
  return refusal !== null
    ? <Frame me={null} theme={theme} toggle={toggle}><LogIn key={number} refusal={refusal} /></Frame>
    : <Views key={number} name={name} theme={theme} toggle={toggle} />;
}
