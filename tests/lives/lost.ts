/** A page with a worker that has a database open, and with a client of another. */

import { type Client, connect } from "varve/client";

const made: Worker[] = [];

/** Has one of the page's workers do something: what it gives, or the error. */
function ask(at: number, ...call: string[]): Promise<unknown> {
  made[at] ??= new Worker("/lost-worker.js", { type: "module" });
  const worker = made[at];
  return new Promise((resolve, reject) => {
    worker.onmessage = ({ data }) => resolve(data.value);
    worker.onerror = ({ message }) => reject(new Error(message));
    worker.postMessage(call);
  });
}

async function hasFile(create: boolean): Promise<boolean> {
  const root = await navigator.storage.getDirectory();
  return root.getFileHandle("shop.varve", { create }).then(
    () => true,
    () => false,
  );
}

let client: Client;
const plain = ({ name, code, reason }: Error & { code?: string; reason?: string }) => ({
  name,
  code,
  reason,
});

Object.assign(globalThis, {
  lost: {
    ask,
    end: (at: number) => made[at]?.terminate(),
    isThere: () => hasFile(false),
    make: () => hasFile(true),
    /** All that this origin has, by the program itself; Chromium lets it. */
    async removeAll() {
      const root = await navigator.storage.getDirectory();
      await (root as unknown as { remove(o: object): Promise<void> }).remove({ recursive: true });
    },
    connect() {
      client = connect("shop", {
        worker: () => new Worker("/worker.js", { type: "module" }),
        timeout: 60_000,
      });
    },
    /** Calls the client: what it gives, or the error. */
    client: (call: "setText" | "getText" | "flush" | "close" | "size", ...texts: string[]) => {
      const { set, getText, flush, close } = client;
      const calls = {
        setText: () => set.call(client, ...(texts as [string, string])),
        getText: () => getText.call(client, ...(texts as [string])),
        flush: () => flush.call(client),
        close: () => close.call(client),
        size: async () => (await client.export()).size,
      };
      return (calls[call]() as Promise<unknown>).catch(plain);
    },
    status: () => client.status,
  },
});
