import { render } from "preact";
import { App } from "./app";
import { followAddress } from "./session";
import "./style.css";
import { apply } from "./theme";

apply();
followAddress();
const place = document.getElementById("app");
if (place !== null) {
  place.replaceChildren();
  render(<App />, place);
}
