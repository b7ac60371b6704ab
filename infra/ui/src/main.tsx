import { render } from "preact";
import { takeToken } from "./api";
import { App } from "./app";
import "./style.css";
import { apply } from "./theme";

apply();
takeToken();
const place = document.getElementById("app");
if (place !== null) {
  place.replaceChildren();
  render(<App />, place);
}
