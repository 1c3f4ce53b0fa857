import { type Client, connect, type Database, memory, open, type Storage, serve } from "varve";
import { afterAll, beforeAll, describe, onTestFinished } from "vitest";
import { FakeStorage, platform } from "../contract/fake-storage.js";
import { wasmOption } from "../support/context.js";

/** A client of a database in memory, which is served at the other end of a channel. */
function served(_strictViews: boolean, storage: Storage = memory()) {
  const { port1, port2 } = new MessageChannel();
  serve("adapters", { storage, ...wasmOption() }).listen(port1);
  const client = connect("adapters", { worker: () => port2 });
  const close = async () => {
    await client.close();
    port1.close();
    port2.close();
  };
  return { to: client as Client, close };
}

async function opened(strictViews: boolean, storage: Storage = memory()) {
  // Views end with the turn, and what an adapter gives must not.
  const to = await open("adapters", { storage, strictViews, ...wasmOption() });
  return { to, close: () => to.close() };
}

const KINDS = { database: opened, client: served };

/** What an adapter works on. */
export type Kind = keyof typeof KINDS;

/** A database in memory, or a client of one, which is closed when the test ends. */
export async function fresh<K extends Kind>(
  kind: K,
  { strictViews = true, storage }: { strictViews?: boolean; storage?: Storage } = {},
): Promise<{ database: Database; client: Client }[K]> {
  const { to, close } = await KINDS[kind](strictViews, storage);
  onTestFinished(close);
  return to as { database: Database; client: Client }[K];
}

/** The same with a file that cannot grow beyond 3 MiB until `free` is called. */
export async function nearlyFull(kind: Kind): Promise<{ to: Database | Client; free: () => void }> {
  const storage = new FakeStorage();
  const to = await fresh(kind, { storage });
  await to.set("before", "kept");
  storage.fault = ({ op, at, length }) =>
    op !== "read" && at + length > 3 * 1_048_576 ? platform.quota() : undefined;
  const free = () => {
    storage.fault = () => undefined;
  };
  return { to, free };
}

/** What a full disk refuses with. */
export const FULL = { name: "QuotaExceededError", code: "VARVE_QUOTA_EXCEEDED" };

/** Registers the same tests for a database and for a client. All tests of each share one. */
export function onBoth(name: string, define: (to: () => Database | Client, kind: Kind) => void) {
  for (const kind of Object.keys(KINDS) as Kind[]) {
    describe(`${name} on a ${kind}`, () => {
      let shared: Awaited<ReturnType<(typeof KINDS)[Kind]>>;
      beforeAll(async () => {
        shared = await KINDS[kind](true);
      });
      afterAll(() => shared.close());
      define(() => shared.to, kind);
    });
  }
}
