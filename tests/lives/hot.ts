/** A module that a development server has loaded anew: it connects again, and the first client stays. */

import { connect } from "varve/client";
import type shop from "./worker.js";

const client = connect<typeof shop>("shop", {
  worker: () => new Worker("/worker.js", { type: "module" }),
});
Object.assign(globalThis, { hot: { add: (key: string) => client.call.add(key) } });
