/** Starts a life in a worker, and passes on what it tells to the server, which outlives the browser. */

import type { News, Order } from "./life.js";

const waiting: News[] = [];
let _telling: Promise<void> | undefined;

/** One after the other. Of acknowledgements the last one says all: those that wait are passed over. */
async function tell(worker: Worker): Promise<void> {
  for (let news = waiting.shift(); news !== undefined; news = waiting.shift()) {
    if (news.acknowledged !== undefined && waiting[0]?.acknowledged !== undefined) continue;
    const answer = await fetch("/news", { method: "POST", body: JSON.stringify(news) });
    if (!answer.ok) throw new Error(`the server answers ${answer.status}`);
    if (news.acknowledged === undefined) worker.postMessage("heard");
  }
  _telling = undefined;
}

function begin(order: Order): void {
  const worker = new Worker("/worker.js", { type: "module" });
  worker.addEventListener("message", ({ data }: MessageEvent<News>) => {
    waiting.push(data);
    _telling ??= tell(worker);
  });
  worker.addEventListener("error", ({ message }) => {
    waiting.push({ life: order.life, failed: `the worker failed: ${message}` });
    _telling ??= tell(worker);
  });
  worker.postMessage(order);
}

Object.assign(globalThis, { begin });
