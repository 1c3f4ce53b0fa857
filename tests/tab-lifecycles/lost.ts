/** A page with workers that open databases themselves, and with a client. */

import { type Client, connect } from "varve/client";

const workers: Worker[] = [];

/** Calls a worker of the page. Returns its result, or its error. */
function ask(at: number, ...call: string[]): Promise<unknown> {
  workers[at] ??= new Worker("/lost-worker.js", { type: "module" });
  const worker = workers[at];
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
    end: (at: number) => workers[at]?.terminate(),
    isThere: () => hasFile(false),
    make: () => hasFile(true),
    /** Removes all files of this origin, which only Chromium allows. */
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
    /** Calls the client. Returns its result, or its error. */
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
