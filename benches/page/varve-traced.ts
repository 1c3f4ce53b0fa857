/** A page with varve's client whose worker records its steps. */

import { connect } from "varve/client";
import { LIST, type Note, offerStart } from "./start.js";
import type { Step } from "./trace.js";
import type served from "./varve-worker.js";

const steps: Step[] = [];
const now = () => performance.timeOrigin + performance.now();
const mark = (name: string) => steps.push({ name: `page: ${name}`, from: now(), to: now() });

const client = connect<typeof served>("bench", {
  worker() {
    mark("new Worker");
    const worker = new Worker("/traced-worker.js", { type: "module" });
    const post = worker.postMessage.bind(worker) as (...args: unknown[]) => void;
    worker.postMessage = (...args: unknown[]) => {
      mark(`posts ${(args[0] as { type?: string }).type}`);
      post(...args);
    };
    worker.addEventListener("message", ({ data }) =>
      mark(
        `receives ${(data as { type?: string }).type} ${(data as { state?: string }).state ?? ""}`,
      ),
    );
    return worker;
  },
});
const notes = client.collection("notes");

offerStart({
  write: (note) => notes.set(note.id, note),
  list: () => notes.values({ limit: LIST }).all() as Promise<Note[]>,
});

/** The steps of the page and its worker in the order of their ends, in milliseconds since the navigation. */
function trace(): Promise<Step[]> {
  const channel = new BroadcastChannel("trace");
  return new Promise((resolve) => {
    channel.onmessage = ({ data }) => {
      // Other pages ask by the same channel.
      channel.close();
      const { timeOrigin } = performance;
      const all = [...steps, ...(data as Step[])].map(({ name, from, to }) => ({
        name,
        from: from - timeOrigin,
        to: to - timeOrigin,
      }));
      resolve(all.sort((a, b) => a.to - b.to));
    };
    channel.postMessage(0);
  });
}

Object.assign(globalThis, { trace });
