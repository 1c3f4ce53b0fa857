/** A module reloaded by a development server: it connects again, and the first client stays open. */

import { connect } from "varve/client";
import type shop from "./worker.js";

const client = connect<typeof shop>("shop", {
  worker: () => new Worker("/worker.js", { type: "module" }),
});
Object.assign(globalThis, { hot: { add: (key: string) => client.call.add(key) } });
