/** A service worker that does with databases what pages ask of it. */

import { type Client, connect, open, serve } from "varve";

/**
 * What a page asks for: a call of a client of that database, that the next so many reads of files fail,
 * that files do not tell when they were changed, or what there is in the bytes of a database.
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
    | "refuse"
    | "timeless"
    | "image";
  readonly args: readonly unknown[];
}

interface MessageToWorker extends MessageEvent {
  waitUntil(promise: Promise<unknown>): void;
}

const clients = new Map<string, Client>();

function clientOf(name: string): Client {
  let client = clients.get(name);
  if (client === undefined) {
    client = connect(name, { worker: serve(name).here });
    clients.set(name, client);
  }
  return client;
}

/** The next reads of files fail, as they do in Chromium where the file has changed since it was looked at. */
function refuse(times: number): void {
  const { arrayBuffer } = File.prototype;
  let left = times;
  File.prototype.arrayBuffer = async function (this: File) {
    left -= 1;
    if (left <= 0) File.prototype.arrayBuffer = arrayBuffer;
    throw new DOMException(`${this.name} could not be read`, "NotReadableError");
  };
}

/** Files keep the time at which they were made, as in a private window of Chromium. */
function timeless(isSo: boolean): void {
  if (!isSo) Object.defineProperty(File.prototype, "lastModified", LAST_MODIFIED);
  else Object.defineProperty(File.prototype, "lastModified", { ...LAST_MODIFIED, get: () => 0 });
}

const LAST_MODIFIED = Object.getOwnPropertyDescriptor(
  File.prototype,
  "lastModified",
) as PropertyDescriptor;

/** Everything that a database does which is only read, and most of which is loaded when it is needed. */
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
  return (client[call] as (...args: readonly unknown[]) => Promise<unknown>)(...args);
}

addEventListener("message", (event) => {
  const { data, ports, waitUntil } = event as MessageToWorker;
  const [port] = ports;
  const told = answer(data as Asked).then(
    (value) => port?.postMessage({ value }),
    (error: { name: string; code?: string; applied?: unknown; message: string }) => {
      const { name, code, applied, message } = error;
      port?.postMessage({ error: { name, code, applied, message } });
    },
  );
  waitUntil.call(event, told);
});

// The next version of it takes over at once: a test is not to meet that of the run before.
addEventListener("install", () => (globalThis as unknown as { skipWaiting(): void }).skipWaiting());
