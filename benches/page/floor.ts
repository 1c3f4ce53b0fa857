/** The floor: a bare worker that writes to a bare file. */

import { type Note, offerStart } from "./start.js";

let worker: Worker | undefined;

function ask(note: Note | null): Promise<Note[]> {
  worker ??= new Worker("/floor-worker.js", { type: "module" });
  const to = worker;
  return new Promise((resolve) => {
    to.onmessage = ({ data }) => resolve(data as Note[]);
    to.postMessage(note);
  });
}

offerStart({ write: (note) => ask(note), list: () => ask(null) });
