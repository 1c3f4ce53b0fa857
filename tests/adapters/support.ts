import { type Client, connect, type Database, memory, open, serve } from "varve";
import { afterAll, beforeAll, describe, onTestFinished } from "vitest";
import { wasmOption } from "../support/context.js";

/** A client of a database in memory, which is served at the other end of a channel. */
function served() {
  const { port1, port2 } = new MessageChannel();
  serve("adapters", { storage: memory(), ...wasmOption() }).listen(port1);
  const client = connect("adapters", { worker: () => port2 });
  const close = async () => {
    await client.close();
    port1.close();
    port2.close();
  };
  return { to: client as Client, close };
}

async function opened(strictViews: boolean) {
  // Views end with the turn, and what an adapter gives must not.
  const to = await open("adapters", { storage: memory(), strictViews, ...wasmOption() });
  return { to, close: () => to.close() };
}

const KINDS = { database: opened, client: served };

/** What an adapter works on. */
export type Kind = keyof typeof KINDS;

/** A database in memory, or a client of one, which is closed when the test ends. */
export async function fresh<K extends Kind>(
  kind: K,
  { strictViews = true } = {},
): Promise<{ database: Database; client: Client }[K]> {
  const { to, close } = await KINDS[kind](strictViews);
  onTestFinished(close);
  return to as { database: Database; client: Client }[K];
}

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
