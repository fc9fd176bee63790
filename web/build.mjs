// Builds the page into web/dist: `npm ci && npm run build`.
//
// It needs Rust's wasm32 target, and wasm-bindgen's command of the crate's version, which is
// installed into web/target/tools where it is missing.
import { build } from "esbuild";
import { execFileSync } from "node:child_process";
import { copyFileSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

const here = dirname(fileURLToPath(import.meta.url));
const out = join(here, "dist");
const target = process.env.CARGO_TARGET_DIR ?? join(here, "target");
const run = (command, ...words) => execFileSync(command, words, { cwd: here, stdio: "inherit" });

function bindgen() {
  const wanted = /wasm-bindgen = "=([\d.]+)"/.exec(readFileSync(join(here, "Cargo.toml"), "utf8"))[1];
  const own = join(target, "tools", "bin", "wasm-bindgen");
  for (const command of ["wasm-bindgen", own]) {
    try {
      const version = execFileSync(command, ["--version"], { encoding: "utf8" });
      if (version.includes(wanted)) return command;
    } catch {
      // It is not there.
    }
  }
  run("cargo", "install", "wasm-bindgen-cli", "--version", wanted, "--root", join(target, "tools"));
  return own;
}

/** The answers to the first view's questions. */
async function answers() {
  const start = join(target, "bindings", "start.mjs");
  await build({ entryPoints: [join(here, "page", "planner", "start.ts")], bundle: true, format: "esm", outfile: start });
  const { QUESTIONS } = await import(start);
  const { default: init, Planner } = await import(join(target, "bindings", "fulcrum_web.js"));
  await init({ module_or_path: readFileSync(join(out, "fulcrum.wasm")) });
  const planner = new Planner();
  return Object.fromEntries(QUESTIONS.map((question) => [question, planner.answer(question)]));
}

rmSync(out, { recursive: true, force: true });
mkdirSync(out, { recursive: true });
if (!process.argv.includes("--no-wasm")) {
  run("cargo", "build", "--release", "--target", "wasm32-unknown-unknown");
  const wasm = join(target, "wasm32-unknown-unknown", "release", "fulcrum_web.wasm");
  run(bindgen(), wasm, "--target", "web", "--no-typescript", "--out-dir", join(target, "bindings"));
  copyFileSync(join(target, "bindings", "fulcrum_web_bg.wasm"), join(out, "fulcrum.wasm"));
  await build({
    entryPoints: { worker: join(here, "page", "planner", "worker.ts") },
    alias: { "fulcrum-bindings": join(target, "bindings", "fulcrum_web.js") },
    define: { "import.meta.url": "self.location.href" },
    bundle: true,
    minify: true,
    format: "iife",
    outdir: out,
  });
  writeFileSync(join(out, "answers.json"), JSON.stringify(await answers()));
}
await build({
  entryPoints: { page: join(here, "page", "page.tsx") },
  bundle: true,
  minify: true,
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none",
  outdir: out,
});
copyFileSync(join(here, "page", "index.html"), join(out, "index.html"));
const licences = ["preact", "uplot"].map((name) => {
  const folder = join(here, "node_modules", name);
  const version = JSON.parse(readFileSync(join(folder, "package.json"), "utf8")).version;
  return `${name} ${version}\n\n${readFileSync(join(folder, "LICENSE"), "utf8")}`;
});
writeFileSync(join(out, "licences.txt"), licences.join("\n\n---\n\n"));
// `fulcrum web` and `cargo build` need no Node: what they embed is kept beside the server.
const embedded = join(here, "..", "server", "page");
for (const file of ["index.html", "page.js", "page.css", "licences.txt"]) {
  copyFileSync(join(out, file), join(embedded, file));
}
// The native page has no module. This one fetches it while its scripts are read.
const index = readFileSync(join(out, "index.html"), "utf8");
const preload = ["fulcrum.wasm", "answers.json"].map((file) => `<link rel="preload" href="${file}" as="fetch" crossorigin />`);
writeFileSync(join(out, "index.html"), index.replace("  </head>", `    ${preload.join("\n    ")}\n  </head>`));
for (const file of ["page.js", "page.css", "worker.js", "answers.json", "fulcrum.wasm"]) {
  const path = join(out, file);
  if (!existsSync(path)) continue;
  const bytes = readFileSync(path);
  console.log(`${file}: ${(bytes.length / 1e6).toFixed(2)} MB, ${(gzipSync(bytes).length / 1e6).toFixed(2)} MB compressed`);
}
