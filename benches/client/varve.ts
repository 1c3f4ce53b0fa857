/** A tab with varve's client. */

import { connect } from "varve/client";
import { offerTab } from "./tab.js";

const VALUE = new Uint8Array(64);

offerTab(async () => {
  const worker = () => new Worker("/worker.js", { type: "module" });
  const client = connect("bench", { worker });
  const key = `tab/${crypto.randomUUID()}`;
  return {
    get: () => client.get(key),
    set: () => client.set(key, VALUE),
    owns: () => client.status.owner === "here",
  };
});
