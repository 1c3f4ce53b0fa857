import {
  type Client,
  type CollectionSpecs,
  connect,
  memory,
  type Procedures,
  type Served,
  type ServeOptions,
  serve,
} from "varve";
import { onTestFinished } from "vitest";
import { wasmOption } from "../support/context.js";

type None = Record<never, never>;

/** A client of a database in memory, which is served at the other end of a channel, or behind a relay. */
export function shop<P extends Procedures = None, const C extends CollectionSpecs = None>(
  options: ServeOptions<P, C> = {},
  more: { timeout?: number; relay?: (server: MessagePort) => MessagePort } = {},
) {
  return clientsOf(options)(more);
}

/** Serves a database in memory, and returns a function that makes a client of it: opening takes most of the time. */
export function clientsOf<P extends Procedures = None, const C extends CollectionSpecs = None>(
  options: ServeOptions<P, C> = {},
) {
  const all: ServeOptions<P, C> = { storage: memory(), ...wasmOption(), ...options };
  const served = serve("shop", all);
  return (more: { timeout?: number; relay?: (server: MessagePort) => MessagePort } = {}) => {
    const { relay = (port: MessagePort) => port, ...others } = more;
    const { port1, port2: server } = new MessageChannel();
    const port2 = relay(server);
    served.listen(port1);
    const { collections = {} as C } = options;
    const client = connect<Served<P, C>>("shop", { worker: () => port2, collections, ...others });
    onTestFinished(async () => {
      await (client as Client).close();
      port1.close();
      port2.close();
    });
    return client;
  };
}
