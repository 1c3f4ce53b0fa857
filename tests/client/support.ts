import { type Client, connect, memory, type Procedures, type ServeOptions, serve } from "varve";
import { cleanup, wasmOption } from "../harness.js";

/** What a client may call in these tests. */
export type Shop<P extends Procedures> = Client<{ procedures: P }>;

/** A client of a database in memory, which is served at the other end of a channel. */
export function shop<P extends Procedures = Record<never, never>>(
  options: ServeOptions<P> = {},
  more: { timeout?: number } = {},
): Shop<P> {
  const { port1, port2 } = new MessageChannel();
  const all: ServeOptions<P> = { storage: memory(), ...wasmOption(), ...options };
  serve("shop", all).listen(port1);
  const client = connect<{ procedures: P }>("shop", { worker: () => port2, ...more });
  cleanup(async () => {
    await client.close();
    port1.close();
  });
  return client;
}
