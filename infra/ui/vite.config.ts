import { defineConfig } from "vite";

export default defineConfig({
  base: "./", // Airflow serves the page below a path
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: { target: "es2022", modulePreload: false, assetsInlineLimit: 0, emptyOutDir: true, sourcemap: false },
});
