import { defineConfig } from "vite";

export default defineConfig({
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: { target: "es2022", modulePreload: false, assetsInlineLimit: 0, emptyOutDir: true, sourcemap: false },
});
