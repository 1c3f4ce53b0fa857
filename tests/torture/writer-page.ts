/** Starts a writer in a worker, and forwards its reports to the server, which outlives the browser. */

import type { Order, Report } from "./writer.js";

const waiting: Report[] = [];
let _sending: Promise<void> | undefined;

/** Sends the reports in order. An acknowledgement includes all earlier ones, so only the last waiting one is sent. */
async function send(worker: Worker): Promise<void> {
  for (let report = waiting.shift(); report !== undefined; report = waiting.shift()) {
    if (report.acknowledged !== undefined && waiting[0]?.acknowledged !== undefined) continue;
    const answer = await fetch("/reports", { method: "POST", body: JSON.stringify(report) });
    if (!answer.ok) throw new Error(`the server answers ${answer.status}`);
    if (report.acknowledged === undefined) worker.postMessage("received");
  }
  _sending = undefined;
}

function begin(order: Order): void {
  const worker = new Worker("/writer-worker.js", { type: "module" });
  worker.addEventListener("message", ({ data }: MessageEvent<Report>) => {
    waiting.push(data);
    _sending ??= send(worker);
  });
  worker.addEventListener("error", ({ message }) => {
    waiting.push({ writer: order.writer, failed: `the worker failed: ${message}` });
    _sending ??= send(worker);
  });
  worker.postMessage(order);
}

Object.assign(globalThis, { begin });
