import { persist } from "varve";
import { assert, describe, expect, onTestFinished, test } from "vitest";
import { context } from "../support/context.js";

describe("persist on a page", () => {
  test("persist: it asks the browser and returns its answer", async () => {
    if (/Firefox/.test(navigator.userAgent)) {
      // Firefox would show a prompt, which no user answers.
      const { storage } = navigator;
      Object.defineProperty(storage, "persist", { value: async () => false, configurable: true });
      onTestFinished(() => {
        Reflect.deleteProperty(storage, "persist");
      });
    }
    const answer = await persist();
    assert(answer === "granted" || answer === "refused", answer);
    expect(answer === "granted").toBe(await navigator.storage.persisted());
  });
});

/** The package's modules by name, dependencies first. */
async function modules(
  name = "index.js",
  found = new Map<string, string>(),
): Promise<Map<string, string>> {
  if (found.has(name)) return found;
  const source = await (await fetch(`${context().root}/dist/${name}`)).text();
  for (const [, specifier] of source.matchAll(IMPORTS)) {
    const { pathname } = new URL(specifier ?? "", `file:///${name}`);
    await modules(pathname.slice(1), found);
  }
  return found.set(name, source);
}

const IMPORTS = /\b(?:from |import\()"(\.[^"]+)"/g;

/** The message to a frame. */
interface FrameMessage {
  sources: Map<string, string>;
  wasm: ArrayBuffer;
  program: string;
}

/**
 * The program of a frame without an origin. It may load no modules, so it makes them of the texts that it is
 * sent, and a worker that imports them. The worker's messages go to the page.
 */
function frame(port: MessagePort, { sources, wasm, program }: FrameMessage): void {
  const urls = new Map<string, string>();
  const urlOf = (text: string) =>
    URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
  for (const [name, source] of sources) {
    const own = source.replace(
      /\b(from |import\()"(\.[^"]+)"/g,
      (_, start: string, specifier: string) =>
        `${start}"${urls.get(new URL(specifier, `file:///${name}`).pathname.slice(1))}"`,
    );
    urls.set(name, urlOf(own));
  }
  const start = `import * as varve from "${urls.get("index.js")}";
    const wasm = await new Promise((resolve) => { onmessage = ({ data }) => resolve(data); });
    ${program}`;
  // Chromium starts module workers of such a frame from a data URL, and Firefox from a blob.
  const workerUrls = [urlOf(start), `data:text/javascript,${encodeURIComponent(start)}`];
  const begin = (url: string | undefined, reason: string): void => {
    if (url === undefined) {
      port.postMessage(`the worker did not start: ${reason}`);
      return;
    }
    const worker = new Worker(url, { type: "module" });
    worker.postMessage(wasm);
    worker.onmessage = ({ data }) => port.postMessage(data);
    worker.onerror = (event) => begin(workerUrls.shift(), event.message);
  };
  begin(workerUrls.shift(), "");
}

/** Runs a program in a worker of a sandboxed frame without an origin, and returns its message. */
async function sandboxed(program: string): Promise<unknown> {
  const inside = document.createElement("iframe");
  inside.sandbox.add("allow-scripts");
  inside.srcdoc = `<script>
    const frame = ${frame};
    onmessage = ({ data, ports }) => frame(ports[0], data);
  </script>`;
  const loaded = new Promise((resolve) => {
    inside.onload = resolve;
  });
  document.body.append(inside);
  onTestFinished(() => inside.remove());
  await loaded;
  const { port1, port2 } = new MessageChannel();
  const message = new Promise((resolve) => {
    port1.onmessage = ({ data }) => resolve(data);
  });
  const wasm = await (await fetch(`${context().root}/dist/varve.wasm`)).arrayBuffer();
  const content: FrameMessage = { sources: await modules(), wasm, program };
  inside.contentWindow?.postMessage(content, "*", [port2]);
  return message;
}

describe("a sandboxed frame without storage", () => {
  test("sandboxed frame: open fails with a clear error that names memory()", async () => {
    const message = await sandboxed(`
      const error = await varve.open("shop", { wasm }).catch((error) => error);
      postMessage([error.code, error.message, error.cause?.name].join("|"));`);
    assert(/^VARVE_STORAGE_UNAVAILABLE\|.*memory\(\).*\|/.test(String(message)), String(message));
    assert(/sandboxed or third-party|secure origins/.test(String(message)), String(message));
  });

  test("sandboxed frame: persist fails with an error", async () => {
    const message = await sandboxed(`
      const error = await varve.persist().catch((error) => error);
      postMessage([error.code, error.message].join("|"));`);
    assert(/^VARVE_STORAGE_UNAVAILABLE\|.*memory\(\)/.test(String(message)), String(message));
  });

  test("sandboxed frame: memory() works", async () => {
    const message = await sandboxed(`
      const db = await varve.open("shop", { storage: varve.memory(), wasm });
      db.set("key", "value");
      postMessage(db.getText("key"));`);
    expect(message).toBe("value");
  });
});
