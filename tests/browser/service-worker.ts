/** A service worker that operates on databases for pages. */

import { type Client, connect, open, serve } from "varve";
import { at, lastCommit, pack, snapshot, undo } from "varve/client";

/**
 * A request of a page: a call of a client, or a function for one, a number of file reads that are to fail, unchanged file times, or
 * the contents of a database given as bytes.
 */
export interface Asked {
  readonly name: string;
  readonly call:
    | "get"
    | "getText"
    | "getMany"
    | "set"
    | "status"
    | "close"
    | keyof typeof functions
    | "refuse"
    | "timeless"
    | "image";
  readonly args: readonly unknown[];
}

interface MessageToWorker extends MessageEvent {
  waitUntil(promise: Promise<unknown>): void;
}

/** What is asked about the past. */
const functions = { at, lastCommit, pack, snapshot, undo };

const clients = new Map<string, Client>();

function clientOf(name: string): Client {
  let client = clients.get(name);
  if (client === undefined) {
    client = connect(name, { worker: serve(name).here });
    clients.set(name, client);
  }
  return client;
}

/** Makes the next reads of files fail, as in Chromium when the file has changed since it was opened. */
function refuse(times: number): void {
  const { arrayBuffer } = File.prototype;
  let left = times;
  File.prototype.arrayBuffer = async function (this: File) {
    left -= 1;
    if (left <= 0) File.prototype.arrayBuffer = arrayBuffer;
    throw new DOMException(`${this.name} could not be read`, "NotReadableError");
  };
}

/** Makes files keep their creation time, as in a private window of Chromium. */
function timeless(isSo: boolean): void {
  if (!isSo) Object.defineProperty(File.prototype, "lastModified", LAST_MODIFIED);
  else Object.defineProperty(File.prototype, "lastModified", { ...LAST_MODIFIED, get: () => 0 });
}

const LAST_MODIFIED = Object.getOwnPropertyDescriptor(
  File.prototype,
  "lastModified",
) as PropertyDescriptor;

/** Every operation on a database that is only read, most of which are loaded on demand. */
async function image(bytes: ArrayBuffer, key: string): Promise<unknown> {
  const db = await open("image", { from: bytes, readOnly: true, strictViews: true });
  try {
    const { ok } = await db.verify();
    const { byteLength } = await new Response(db.export()).arrayBuffer();
    return [db.getText(key), ok, byteLength > 0];
  } finally {
    await db.close();
  }
}

async function answer({ name, call, args }: Asked): Promise<unknown> {
  if (call === "refuse") return refuse(args[0] as number);
  if (call === "timeless") return timeless(args[0] as boolean);
  if (call === "image") return image(args[0] as ArrayBuffer, args[1] as string);
  const client = clientOf(name);
  if (call === "status") return client.status;
  if (call === "close") clients.delete(name);
  if (Object.hasOwn(functions, call)) {
    const ask = functions[call as "at"] as (...args: readonly unknown[]) => Promise<unknown>;
    return typeof (await ask(client, ...args));
  }
  return (client[call as keyof Client] as (...args: readonly unknown[]) => Promise<unknown>)(
    ...args,
  );
}

addEventListener("message", (event) => {
  const { data, ports, waitUntil } = event as MessageToWorker;
  const [port] = ports;
  const reported = answer(data as Asked).then(
    (value) => port?.postMessage({ value }),
    (error: { name: string; code?: string; applied?: unknown; message: string }) => {
      const { name, code, applied, message } = error;
      port?.postMessage({ error: { name, code, applied, message } });
    },
  );
  waitUntil.call(event, reported);
});

// The next version takes over at once, so that a test does not meet the one of an earlier run.
addEventListener("install", () => (globalThis as unknown as { skipWaiting(): void }).skipWaiting());
