/** A page with varve's client. */

import { connect } from "varve/client";
import { LIST, type Note, offerStart } from "./start.js";
import type served from "./varve-worker.js";

const client = connect<typeof served>("bench", {
  worker: () => new Worker("/varve-worker.js", { type: "module" }),
});
const notes = client.collection("notes");

offerStart({
  write: (note) => notes.set(note.id, note),
  list: () => notes.values({ limit: LIST }).all() as Promise<Note[]>,
});
