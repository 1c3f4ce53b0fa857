/** The floor: a bare worker that writes to a bare file. */

import { type Note, offerStart } from "./start.js";

/** Whether another page has the file, so that its worker is asked. */
const isSecond = new URLSearchParams(location.search).has("second");

let worker: Worker | undefined;

function ask(note: Note | null): Promise<Note[]> {
  worker ??= new Worker("/floor-worker.js", {
    type: "module",
    name: isSecond ? "second" : "",
  });
  const to = worker;
  return new Promise((resolve) => {
    to.onmessage = ({ data }) => resolve(data as Note[]);
    to.postMessage(note);
  });
}

/** Starts a worker, and asks the other page's worker for the list. */
async function askOther(): Promise<Note[]> {
  await ask(null);
  const channel = new BroadcastChannel("floor");
  const answer = new Promise<Note[]>((resolve) => {
    channel.onmessage = ({ data }) => resolve(data as Note[]);
  });
  channel.postMessage(0);
  return answer;
}

offerStart({
  write: (note) => ask(note),
  list: () => (isSecond ? askOther() : ask(null)),
});
