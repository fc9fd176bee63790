// The built page on a port of its own, in a headless browser.
import { createServer } from "node:http";
import { readFile } from "node:fs/promises";
import { dirname, extname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";

export const web = join(dirname(fileURLToPath(import.meta.url)), "..");
const TYPES = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".wasm": "application/wasm", ".txt": "text/plain", ".json": "application/json" };

/** Serves web/dist, and opens a browser: CHROMIUM names its program. */
export async function open() {
  const server = createServer(async (request, response) => {
    const name = new URL(request.url, "http://localhost").pathname.replace(/^\/$/, "/index.html");
    try {
      const bytes = await readFile(join(web, "dist", name));
      response.writeHead(200, { "content-type": TYPES[extname(name)] ?? "application/octet-stream" }).end(bytes);
    } catch {
      response.writeHead(404).end();
    }
  });
  await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
  const browser = await chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: ["--no-sandbox"],
  });
  const address = `http://127.0.0.1:${server.address().port}/`;
  const close = async () => {
    await browser.close();
    server.close();
  };
  return { browser, address, close };
}

/** Waits for the answers to what the address asks. */
export const ready = (page, results = 1) =>
  page.waitForFunction(
    (wanted) => {
      const answered = [...document.querySelectorAll("article[data-ready]")];
      const current = (it) => location.hash === "" || it.dataset.ready === location.hash;
      return answered.length === wanted && answered.every(current);
    },
    results,
    { timeout: 60_000 },
  );
